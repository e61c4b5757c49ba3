use plimsoll_adopt::{Config, Plan, Source, Wish, plan};

use crate::adopt_envoy::check_agents;

const BACKEND: &str = "app";

/// A haproxy.cfg whose backend `app` is adopted.
pub fn adopt_haproxy(data: &[u8]) {
    let histogram = Source::Histogram {
        url: "http://127.0.0.1:8001/metrics".to_owned(),
        name: "seconds".to_owned(),
        gauge: None,
    };
    for (source, enforce) in [(Source::Log, true), (histogram, false)] {
        let Some(planned) = planned(data, &source, enforce) else {
            continue;
        };
        check_agents(&planned.agents);
        let after = planned.edits.apply(data);
        // Whoever adopts twice changes nothing more.
        let again = self::planned(&after, &source, enforce).expect("a plan");
        let twice = again.edits.apply(&after);
        assert!(
            again.edits.is_empty() || twice == after,
            "{}",
            lossy(&twice)
        );
        assert_eq!(again.agents, planned.agents);
    }
}

fn planned(bytes: &[u8], source: &Source, enforce: bool) -> Option<Plan> {
    let environment = |name: &str| (name == "A").then(|| "192.0.2.9".to_owned());
    let config = Config::parse(bytes, &environment);
    assert_eq!(config.print(), bytes);
    let wish = Wish {
        backend: BACKEND,
        sla: "1s",
        sla_milliseconds: 1000.0,
        source: source.clone(),
        enforce,
        environment: &environment,
        resolve: &|_| None,
    };
    plan(&config, &wish).ok()
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
