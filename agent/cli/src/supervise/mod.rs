//! Starts the components, handles signals, and lets no task stop unnoticed.

mod components;
mod services;
mod shared;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use plimsoll_outputs::http;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tracing::{error, info};

use self::{
    components::{AGENT_CHECK, Listeners, components},
    services::{Loops, Rings},
    shared::Shared,
};
use crate::{
    config::Config,
    logging::LogLevel,
    notify::{self, Watchdog},
    reload,
};

/// Time that components get to stop, in addition to their own grace periods.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Runs the agent until a signal ends it, or until a component that cannot be restarted fails.
pub async fn run(path: PathBuf, config: Config, log_level: LogLevel) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut agent = Agent::start(path, config, log_level)?;
    let mut watchdog = Watchdog::new();
    notify::ready();
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => agent.reload(),
            () = watchdog.due() => agent.feed(&watchdog),
            Some(ended) = agent.components.join_next() => match ended {
                Ok((name, Ok(()))) => bail!("{name} ended unexpectedly"),
                Ok((name, Err(error))) => return Err(error.context(name)),
                Err(error) => bail!("a component ended: {error}"),
            },
            Some(ended) = agent.loops.ended(&agent.shared) => {
                ended?;
                agent.loops.reconcile(&agent.shared, &agent.config);
            }
            Some(ended) = agent.rings.ended() => ended?,
        }
    }
    agent.end().await
}

struct Agent {
    path: PathBuf,
    config: Config,
    log_level: LogLevel,
    shared: Shared,
    components: JoinSet<(&'static str, anyhow::Result<()>)>,
    loops: Loops,
    rings: Rings,
}

impl Agent {
    fn start(path: PathBuf, config: Config, log_level: LogLevel) -> anyhow::Result<Self> {
        let listeners = Listeners::bind(&path, &config)?;
        reload::check_log_listeners(&path, &config, None)?;
        let mut agent = Agent {
            shared: Shared::new(&config)?,
            path,
            config,
            log_level,
            components: JoinSet::new(),
            loops: Loops::default(),
            rings: Rings::default(),
        };
        for component in components(&agent.shared, listeners) {
            let name = component.name;
            agent
                .components
                .spawn(async move { (name, component.task.await) });
        }
        agent.reconcile();
        info!(
            version = env!("CARGO_PKG_VERSION"),
            agent_check = %agent.config.agent_check.listen,
            http = %agent.config.http_listen,
            services = agent.config.services.len(),
            "started"
        );
        Ok(agent)
    }

    fn reconcile(&mut self) {
        self.loops.reconcile(&self.shared, &self.config);
        self.rings.reconcile(&self.shared, &self.config);
    }

    /// Skipped while a loop is stuck, so that systemd restarts the agent.
    fn feed(&self, watchdog: &Watchdog) {
        let stuck = http::stuck(&self.shared.state.load(), &self.shared.settings.load());
        match stuck.is_empty() {
            true => watchdog.feed(),
            false => error!("watchdog not fed, stuck: {}", stuck.join(", ")),
        }
    }

    fn reload(&mut self) {
        notify::reloading();
        let is_applied = match reload::read(&self.path, &self.config) {
            Ok(config) => {
                self.log_level.set(config.log_level);
                self.config = config;
                self.shared.reconfigure(&self.config);
                self.reconcile();
                info!(file = %self.path.display(), "configuration reloaded");
                true
            }
            Err(problem) => {
                error!("reload refused, the old configuration stays: {problem:#}");
                false
            }
        };
        self.shared.metrics.agent.process.reloaded(is_applied);
        notify::ready();
    }

    /// Tells the proxies first, and stops the operators' endpoints once they know.
    async fn end(mut self) -> anyhow::Result<()> {
        info!("stopping");
        notify::stopping();
        self.shared.drain.cancel();
        self.rings.stop();
        let limit = self.config.agent_check.shutdown_grace + END_LIMIT;
        let ended = tokio::time::timeout(limit, async {
            while let Some(ended) = self.components.join_next().await {
                let (name, result) = ended?;
                result.context(name)?;
                if name == AGENT_CHECK {
                    self.shared.stop.cancel();
                }
            }
            while let Some(ended) = self.rings.ended().await {
                ended?;
            }
            anyhow::Ok(())
        });
        ended.await.context("servers did not end in time")??;
        if let Some(socket) = &self.config.control_socket {
            // A stale socket is replaced at the next start.
            let _ = std::fs::remove_file(socket);
        }
        Ok(())
    }
}
