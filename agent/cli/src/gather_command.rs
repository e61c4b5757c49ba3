//! `plimsoll gather`: from reading the configuration to the last answer.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use clap::Args;
use plimsoll_exposition::Catalogue;
use plimsoll_net::{Caller, HttpUrl, bind, get_as};
use plimsoll_scatter::gather::{
    GatherConfig, GatherContext, GatherMetrics, reference as gather_reference,
    serve as serve_gathers,
};
use prometheus::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::{
    logging::{self, LogLevel},
    metrics::ProcessMetrics,
    notify::{self, Watchdog},
};

/// Arguments of `plimsoll gather`.
#[derive(Args, Clone, Debug)]
pub struct GatherArgs {
    /// Configuration file.
    #[arg(
        long,
        env = "PLIMSOLL_GATHER_CONFIG",
        value_name = "FILE",
        default_value = "/etc/plimsoll/gather.toml"
    )]
    config: PathBuf,
    /// Validate the configuration and exit.
    #[arg(long, env = "PLIMSOLL_CHECK_CONFIG")]
    check_config: bool,
    /// Ask the gather running with this configuration whether it is ready, and exit.
    #[arg(long, conflicts_with = "check_config")]
    check_health: bool,
}

/// A slower answer counts as unhealthy.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_HEALTH_BODY: usize = 4096;

/// The reference of its configuration, in Markdown.
pub fn reference() -> String {
    let head = "# Configuration of `plimsoll gather`\n\n\
        Written by `plimsoll config-reference gather`; change it there.\n\n\
        TOML, read by `plimsoll gather --config FILE`, checked by `--check-config`, read again on SIGHUP. Unknown keys, \
        reloads, durations and `localhost` are as in [agent-config.md](agent-config.md). \
        `agent/cli/packaging/gather.toml` is an annotated example.\n";
    head.to_owned() + &plimsoll_settings::markdown(&gather_reference())
}

/// Runs the command.
pub fn run(args: GatherArgs) -> anyhow::Result<()> {
    let config = GatherConfig::load(&args.config)?;
    if args.check_config {
        return Ok(());
    }
    if args.check_health {
        return check_health(&config);
    }
    let log_level = logging::start(config.log_level, config.log_format);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(serve(args.config, config, log_level));
    runtime.shutdown_background();
    ended
}

/// Fails unless the server at this address reports that it is ready.
fn check_health(config: &GatherConfig) -> anyhow::Result<()> {
    let mut address = config.listen;
    let scheme = match config.health_tls {
        Some(_) => "https",
        None => "http",
    };
    // The certificate names an address that can be connected to.
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    let url = format!("{scheme}://{address}/readyz");
    let parsed: HttpUrl = url.parse().map_err(anyhow::Error::msg)?;
    let caller = Caller {
        token: None,
        tls: config.health_tls.clone(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (status, _) =
        runtime.block_on(get_as(&caller, &parsed, HEALTH_TIMEOUT, MAX_HEALTH_BODY))?;
    if status != 200 {
        bail!("{url}: the answer is {status}, not 200");
    }
    Ok(())
}

/// Serves until a signal arrives.
async fn serve(path: PathBuf, config: GatherConfig, log_level: LogLevel) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let listener = bind(config.listen).with_context(|| {
        let (path, address) = (path.display(), config.listen);
        format!("{path}: http.listen: cannot listen on {address}")
    })?;
    let registry = Registry::new();
    let mut catalogue = Catalogue::new(&registry);
    let process = ProcessMetrics::new(&mut catalogue)?;
    let current = Arc::new(ArcSwap::from_pointee(config.clone()));
    let metrics = GatherMetrics::new(&mut catalogue)?;
    let (closed, refused) = (process.http_closed.clone(), process.http_refused.clone());
    let context = GatherContext::new(Arc::clone(&current), metrics, registry, closed, refused);
    info!(
        version = env!("CARGO_PKG_VERSION"),
        http = %config.listen,
        partitions = config.partitions.len(),
        "started"
    );
    let stop = CancellationToken::new();
    let mut watchdog = Watchdog::new();
    notify::ready();
    let mut served = tokio::spawn(serve_gathers(listener, context, stop.clone()));
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = watchdog.due() => watchdog.feed(),
            _ = hangup.recv() => {
                notify::reloading();
                let is_applied = match reloaded(&path, &current.load()) {
                    Ok(new) => {
                        log_level.set(new.log_level);
                        current.store(Arc::new(new));
                        info!(file = %path.display(), "configuration reloaded");
                        true
                    }
                    Err(problem) => {
                        error!("reload refused, the old configuration stays: {problem:#}");
                        false
                    }
                };
                process.reloaded(is_applied);
                notify::ready();
            }
            ended = &mut served => {
                ended??;
                bail!("the server stopped unexpectedly");
            }
        }
    }
    info!("stopping");
    notify::stopping();
    stop.cancel();
    let grace = current.load().shutdown_grace;
    if let Ok(ended) = tokio::time::timeout(grace, served).await {
        return ended?;
    }
    info!("requests still in progress were cancelled");
    Ok(())
}

fn reloaded(path: &std::path::Path, running: &GatherConfig) -> anyhow::Result<GatherConfig> {
    let new = GatherConfig::load(path)?;
    let fixed = [
        ("http.listen", new.listen == running.listen),
        ("gather.log_format", new.log_format == running.log_format),
    ];
    if let Some((key, _)) = fixed.iter().find(|(_, same)| !same) {
        bail!("{}: {key}: needs a restart to change", path.display());
    }
    Ok(new)
}
