//! `plimsoll top`: watches a live cluster on a terminal.

mod screen;
mod snapshot;
mod table;

use std::{
    io::{IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Args;
use plimsoll_net::{Caller, HttpUrl, http_or_https_url};
use tokio::signal::unix::{SignalKind, signal};

use crate::caller_args::CallerArgs;
use snapshot::Snapshot;

/// Polling faster is pointless, since agents decide once per period.
const MIN_INTERVAL: Duration = Duration::from_millis(200);
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// Arguments of `plimsoll top`.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    /// HTTP addresses of the agents, one URL each.
    #[arg(
        env = "PLIMSOLL_URLS",
        value_name = "URL",
        value_delimiter = ',',
        value_parser = http_or_https_url,
        default_value = "http://127.0.0.1:9464"
    )]
    urls: Vec<HttpUrl>,
    /// Show only this service.
    #[arg(long, env = "PLIMSOLL_SERVICE", value_name = "NAME")]
    service: Option<String>,
    /// Refresh interval, 200ms to 60s.
    #[arg(
        long,
        env = "PLIMSOLL_TOP_INTERVAL",
        value_name = "TIME",
        default_value = "1s",
        value_parser = interval
    )]
    interval: Duration,
    /// Print one snapshot as text and exit, for scripts and pipes.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    caller: CallerArgs,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match (MIN_INTERVAL..=MAX_INTERVAL).contains(&interval) {
        true => Ok(interval),
        false => Err("must be from 200ms to 60s".to_owned()),
    }
}

/// Shows the cluster until stopped.
pub fn run(args: TopArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let caller = args.caller.caller(&args.urls)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    if args.once {
        let seen = runtime.block_on(snapshot::take(&caller, &args.urls, args.service.as_deref()));
        out.write_all(table::text(&seen).as_bytes())?;
        if seen.rows.is_empty() {
            bail!("no agent answered");
        }
        return Ok(());
    }
    if !std::io::stdout().is_terminal() {
        bail!("standard output is not a terminal: use --once");
    }
    let (sender, snapshots) = mpsc::sync_channel(1);
    let ended = Arc::new(AtomicBool::new(false));
    let watched = Arc::clone(&ended);
    let watcher = thread::Builder::new().name("agents".to_owned());
    watcher
        .spawn(move || {
            if let Err(error) = runtime.block_on(watch(&args, &caller, &sender)) {
                tracing::debug!("{error:#}");
            }
            watched.store(true, Ordering::Relaxed);
        })
        .context("cannot start a thread")?;
    screen::show(&snapshots, &ended)
}

/// Polls the agents once per interval, until a signal arrives or the screen is closed.
async fn watch(
    args: &TopArgs,
    caller: &Caller,
    sender: &mpsc::SyncSender<Snapshot>,
) -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut ticks = tokio::time::interval(args.interval);
    loop {
        let look = async {
            ticks.tick().await;
            snapshot::take(caller, &args.urls, args.service.as_deref()).await
        };
        tokio::select! {
            seen = look => {
                // The previous snapshot has not been drawn yet: drop this one.
                if let Err(mpsc::TrySendError::Disconnected(_)) = sender.try_send(seen) {
                    return Ok(());
                }
            }
            _ = terminated.recv() => return Ok(()),
            _ = hung_up.recv() => return Ok(()),
        }
    }
}
