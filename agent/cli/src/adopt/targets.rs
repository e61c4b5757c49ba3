//! Plans the change for each proxy's file.

use std::net::{IpAddr, ToSocketAddrs};

use anyhow::bail;
use plimsoll_adopt::{
    Config, Plan, Problem, Source, Wish, adoptable,
    envoy::{self, Tree},
    plan,
};

use super::{AdoptArgs, ask, refusal, store::Original};

/// The name of the backend or cluster, and its plan.
pub type Planned = (String, Plan);

/// Plans a change of haproxy.cfg.
pub fn haproxy(original: &Original, args: &AdoptArgs) -> anyhow::Result<Planned> {
    let refused = |problems: &[Problem]| anyhow::Error::msg(refusal(&args.file, problems));
    let environment = |name: &str| std::env::var(name).ok();
    let config = Config::parse(&original.bytes, &environment);
    if !config.problems.is_empty() {
        return Err(refused(&config.problems));
    }
    let found = adoptable(&config);
    let choices: Vec<(String, String)> = found
        .iter()
        .map(|(section, line, mode)| (section.name.clone(), format!("line {line}, mode {mode}")))
        .collect();
    let backend = ask::name(args.backend.clone(), "backend", &choices)?;
    let (sla, duration) = ask::sla(args.sla.clone())?;
    let source = match (&args.metrics, &args.histogram) {
        (Some(url), Some(name)) => Source::Histogram {
            url: url.clone(),
            name: name.clone(),
            gauge: args.gauge.clone(),
        },
        _ => Source::Log,
    };
    let wish = Wish {
        backend: &backend,
        sla: &sla,
        sla_milliseconds: duration.as_secs_f64() * 1e3,
        source,
        enforce: args.enforce,
        environment: &environment,
        resolve: &|name| resolve(name).into_iter().min_by_key(IpAddr::is_ipv6),
    };
    let plan = plan(&config, &wish).map_err(|problems| refused(&problems))?;
    Ok((backend, plan))
}

/// Plans a change of an Envoy bootstrap.
pub fn envoy(original: &Original, args: &AdoptArgs) -> anyhow::Result<Planned> {
    let refused = |problems: &[Problem]| anyhow::Error::msg(refusal(&args.file, problems));
    let tree = Tree::parse(&original.bytes).map_err(|problem| refused(&[problem]))?;
    let choices: Vec<(String, String)> = envoy::clusters(&tree)
        .into_iter()
        .map(|it| {
            let detail = format!("line {}, {}, {}", it.line, it.kind, few(&it.endpoints));
            (it.name, detail)
        })
        .collect();
    let cluster = ask::name(args.backend.clone(), "cluster", &choices)?;
    let (sla, duration) = ask::sla(args.sla.clone())?;
    let metrics = ask::text(
        args.metrics.clone(),
        "Envoy does not report delays to agents. At which URL does a node's agent reach the service's metrics?",
        "--metrics, --histogram: required, since Envoy does not report delays to agents; name the service's own histogram",
    )?;
    if let Err(error) = plimsoll_net::http_url(&metrics) {
        bail!("--metrics: \"{metrics}\": {error}");
    }
    let histogram = ask::text(
        args.histogram.clone(),
        "Which of these metrics is the delay histogram?",
        "--histogram: required; the name of the delay histogram",
    )?;
    let wish = envoy::Wish {
        cluster: &cluster,
        sla: &sla,
        sla_milliseconds: duration.as_secs_f64() * 1e3,
        metrics: &metrics,
        histogram: &histogram,
        gauge: args.gauge.as_deref(),
        enforce: args.enforce,
        resolve: &resolve,
    };
    let plan = envoy::plan(&original.bytes, &wish).map_err(|problems| refused(&problems))?;
    Ok((cluster, plan))
}

/// Lists the first few endpoints.
fn few(endpoints: &[String]) -> String {
    match endpoints {
        [] => "no endpoints".to_owned(),
        [one, two, _, more @ ..] => format!("{one} {two} and {} more", more.len() + 1),
        some => some.join(" "),
    }
}

fn resolve(name: &str) -> Vec<IpAddr> {
    let found = (name, 0).to_socket_addrs().into_iter().flatten();
    let mut found: Vec<IpAddr> = found.map(|it| it.ip()).collect();
    found.sort_unstable();
    found.dedup();
    found
}
