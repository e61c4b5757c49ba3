//! `plimsoll agent --check-config`: validates the configuration, and with `--probe` tests it on this machine.

use std::{io, io::Write, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::ensure;
use plimsoll_core::Objective;
use plimsoll_exposition::Catalogue;
use plimsoll_net::bind;
use plimsoll_node::{
    control_loop::ServiceConfig,
    ring::{LinkSettings, Server, told},
};
use plimsoll_scatter::partition::{PartitionConfig, PartitionServer, Partitions, probe_partition};
use plimsoll_settings::ConfigError;
use plimsoll_signal::{
    jobs::{GaugeConfig, Jobs, JobsConfig, SocketsConfig},
    source_error::SourceError,
    sources::{self, Source, SourceContext},
};
use prometheus::Registry;
use tokio::time::{Instant, sleep, timeout};

use crate::{config::Config, metrics::Metrics, node_command};

/// Limit for the first count of jobs, or the second scrape.
const COUNT_LIMIT: Duration = Duration::from_secs(2);
/// Pause between attempts.
const COUNT_PAUSE: Duration = Duration::from_millis(20);

/// A probe and its result.
struct Tried {
    what: String,
    result: Result<String, String>,
}

impl Tried {
    fn new(what: String, result: Result<String, String>) -> Self {
        Tried { what, result }
    }
}

/// Prints a summary; fails if a check or a probe fails.
pub fn run(path: &Path, config: &Config, probe: bool, out: &mut impl Write) -> anyhow::Result<()> {
    state_directory(path, config)?;
    for service in &config.services {
        writeln!(out, "{}", summary(config, service))?;
    }
    writeln!(out, "{}: configuration is valid", path.display())?;
    if !probe {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let all = runtime.block_on(probes(config))?;
    // A name server or database that hangs must not delay the exit.
    runtime.shutdown_background();
    for Tried { what, result } in &all {
        match result {
            Ok(found) => writeln!(out, "ok    {what}: {found}")?,
            Err(problem) => writeln!(out, "FAIL  {what}: {problem}")?,
        }
    }
    let failed = all.iter().filter(|tried| tried.result.is_err()).count();
    ensure!(failed == 0, "{failed} of {} probes failed", all.len());
    Ok(())
}

fn state_directory(path: &Path, config: &Config) -> Result<(), ConfigError> {
    let Some(directory) = &config.state_directory else {
        return Ok(());
    };
    let shown = directory.display();
    let problem = match std::fs::metadata(directory) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => format!("{shown} is not a directory"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => format!(
            "{shown} does not exist; create it, owned by the agent's user: install -d -m 0750 -o plimsoll {shown}"
        ),
        Err(error) => format!("{shown}: {error}"),
    };
    Err(ConfigError::at(path, "agent.state_directory", problem))
}

/// A one-line summary of a service.
fn summary(config: &Config, service: &ServiceConfig) -> String {
    let sla = &service.settings.sla;
    let mut outputs = vec![
        format!("agent-check {}", config.agent_check.listen),
        format!("HTTP {}", config.http_listen),
    ];
    if let Some(address) = config.envoy.orca_listen {
        outputs.push(format!("ORCA {address}"));
    }
    if let Some(ring) = &service.ring {
        outputs.push(format!("ring {} as {}", ring.cluster, ring.node));
    }
    let whom = match sla.objective {
        Objective::Mean => "the mean".to_owned(),
        Objective::Quantile(quantile) => format!("{} %", 100.0 * quantile),
    };
    format!(
        "{}: source: {}; SLA: {} s for {whom}; outputs: {}",
        service.name,
        service.source,
        sla.delay.get(),
        outputs.join(", ")
    )
}

async fn probes(config: &Config) -> anyhow::Result<Vec<Tried>> {
    let mut all = Vec::new();
    let socket = config.control_socket.as_deref();
    let is_running = socket.is_some_and(node_command::answers);
    let mut listeners = vec![
        ("http.listen", config.http_listen),
        ("agent_check.listen", config.agent_check.listen),
    ];
    listeners.extend(config.envoy.orca_listen.map(|it| ("envoy.orca_listen", it)));
    for (key, address) in listeners {
        all.push(listener(key, address, is_running));
    }
    let metrics = Metrics::new(&mut Catalogue::new(&Registry::new()))?;
    let context = SourceContext {
        partitions: Arc::new(Partitions::new(metrics.partitions)?),
        metrics: metrics.loops.source,
        observations: Arc::default(),
    };
    for service in &config.services {
        all.push(source(service, &context, is_running).await);
        if let Some(tried) = jobs(service).await {
            all.push(tried);
        }
    }
    for partition in &config.partitions {
        all.extend(partition_database(partition).await);
    }
    if let Some(settings) = &config.redis {
        all.push(redis(settings).await);
    }
    Ok(all)
}

fn listener(key: &str, address: SocketAddr, is_running: bool) -> Tried {
    let result = match bind(address) {
        Ok(_) => Ok("free".to_owned()),
        Err(error) => in_use(&error.to_string(), error.kind(), is_running),
    };
    Tried::new(format!("{key} {address}"), result)
}

fn in_use(problem: &str, kind: io::ErrorKind, is_running: bool) -> Result<String, String> {
    match kind {
        io::ErrorKind::AddrInUse if is_running => Ok("in use, by the running agent".to_owned()),
        io::ErrorKind::AddrInUse => Err(
            "in use: `ss -lnp`, run as root, shows the process; if it is this agent, set control.socket"
                .to_owned(),
        ),
        io::ErrorKind::AddrNotAvailable => {
            Err("not an address of this machine: `ip address` lists them".to_owned())
        }
        _ => Err(problem.to_owned()),
    }
}

async fn source(service: &ServiceConfig, context: &SourceContext, is_running: bool) -> Tried {
    let what = format!("{} source: {}", service.name, service.source);
    if let Some(listen) = service.source.log_listen() {
        let result = match sources::haproxy_log::check_listen(listen) {
            Ok(()) => Ok("free".to_owned()),
            Err(_) if is_running => Ok("in use, by the running agent".to_owned()),
            Err(error) => Err(format!(
                "{error}; `ss -lnp`, run as root, shows who listens where"
            )),
        };
        return Tried::new(what, result);
    }
    let Some(url) = service.source.scraped() else {
        return Tried::new(what, Ok("nothing to probe".to_owned()));
    };
    let result = scrape(service, context).await;
    let result = result.map_err(|error| advice(&error, &url.to_string()));
    Tried::new(what, result)
}

async fn scrape(service: &ServiceConfig, context: &SourceContext) -> Result<String, SourceError> {
    let (sla, jobs) = (service.settings.sla, service.jobs.in_scrape());
    let mut source = Source::open(&service.name, &service.source, sla, jobs, context)?;
    source.observe().await?;
    let Some(GaugeConfig { gauge, .. }) = service.jobs.gauge_in_scrape() else {
        return Ok("found".to_owned());
    };
    // The first scrape is only the baseline of the next.
    sleep(COUNT_PAUSE).await;
    match source.observe().await? {
        Some(sample) if sample.jobs.is_none() => Err(SourceError::new(
            "no_series",
            format!("found the histogram, but no series of gauge {gauge}"),
        )),
        _ => Ok(format!("found, and so is gauge {gauge}")),
    }
}

/// The error, with a hint for fixing it.
fn advice(error: &SourceError, url: &str) -> String {
    let hint = match error.kind {
        "unreachable" => "is the service running and listening there?".to_owned(),
        "timeout" => format!("how long does `curl {url}` take?"),
        "no_series" => format!(
            "`curl -s {url} | grep _bucket` lists the histograms; write the name without _bucket"
        ),
        "status" => format!("is the path right? Try `curl -i {url}`"),
        _ => return error.message.clone(),
    };
    format!("{}; {hint}", error.message)
}

async fn jobs(service: &ServiceConfig) -> Option<Tried> {
    let (what, hint) = match &service.jobs {
        JobsConfig::Prometheus(GaugeConfig {
            gauge,
            url: Some(url),
            ..
        }) => (
            format!("gauge {gauge} at {url}"),
            format!("`curl -s {url}` shows its metrics"),
        ),
        JobsConfig::None | JobsConfig::Prometheus(_) => return None,
        JobsConfig::Sockets(SocketsConfig { port, .. }) => (
            format!("sockets of port {port}"),
            format!("`ss -tn sport = :{port}` lists the connections that would be counted"),
        ),
        JobsConfig::Database(config) => (
            format!("{} at {}", config.kind, config.address),
            "is this user allowed to connect and to see other sessions?".to_owned(),
        ),
    };
    let mut jobs = Jobs::open(&service.jobs);
    let until = Instant::now() + COUNT_LIMIT;
    let result = loop {
        match jobs.count().await {
            Ok(count) => match count.now {
                Some(now) => break Ok(format!("{now} jobs")),
                None if Instant::now() > until => break Err(format!("no count; {hint}")),
                None => sleep(COUNT_PAUSE).await,
            },
            Err(error) => break Err(format!("{error}; {hint}")),
        }
    };
    Some(Tried::new(format!("{} jobs: {what}", service.name), result))
}

/// A partition's database; a service is asked by callers only.
async fn partition_database(config: &PartitionConfig) -> Option<Tried> {
    let PartitionServer::PostgreSql(database) = &config.server else {
        return None;
    };
    let what = format!("partition {}: {}", config.name, database.address);
    let result = timeout(COUNT_LIMIT, probe_partition(database)).await;
    let result = result.unwrap_or_else(|_| Err("does not answer".to_owned()));
    Some(Tried::new(what, result))
}

async fn redis(settings: &LinkSettings) -> Tried {
    let what = format!("redis {}", settings.urls.join(", "));
    let asked = async {
        let mut server = Server::open(settings).await?;
        server.query::<String>(&::redis::cmd("PING")).await
    };
    let result = match asked.await {
        Ok(_) => Ok("answers and accepts writes".to_owned()),
        Err(problem) => Err(format!(
            "{}; see redis.urls, user, password_file, and the server's protected-mode",
            told(&problem)
        )),
    };
    Tried::new(what, result)
}
