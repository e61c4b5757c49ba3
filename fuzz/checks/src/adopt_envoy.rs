use std::{net::IpAddr, path::Path};

use plimsoll_adopt::{
    Agent,
    envoy::{Tree, Wish, clusters, plan},
};

use crate::config::Config;

/// An Envoy bootstrap in YAML whose cluster `app` is adopted.
pub fn adopt_envoy(data: &[u8]) {
    let Ok(tree) = Tree::parse(data) else { return };
    let lines = 1 + data.iter().filter(|byte| **byte == b'\n').count();
    for cluster in clusters(&tree) {
        assert!((1..=lines).contains(&cluster.line));
    }
    let wish = Wish {
        cluster: "app",
        sla: "1s",
        sla_milliseconds: 1000.0,
        metrics: "http://127.0.0.1:8001/metrics",
        histogram: "seconds",
        gauge: None,
        enforce: false,
        resolve: &|name| match name {
            "known" => vec![IpAddr::from([192, 0, 2, 21])],
            _ => Vec::new(),
        },
    };
    let Ok(planned) = plan(data, &wish) else {
        return;
    };
    check_agents(&planned.agents);
    let after = planned.edits.apply(data);
    // Whoever adopts twice changes nothing more.
    let again = plan(&after, &wish).expect("a plan");
    assert!(again.edits.is_empty());
    if !planned.edits.is_empty() {
        assert!(after.len() > data.len());
    }
}

/// An agent takes the configuration that is written for it, but for addresses that are to be filled in.
pub fn check_agents(agents: &[Agent]) {
    for Agent { file, text, .. } in agents {
        if !text.contains("in its place") {
            let parsed = Config::parse(Path::new(file), text);
            assert!(parsed.is_ok(), "{}\n{text}", parsed.unwrap_err());
        }
    }
}
