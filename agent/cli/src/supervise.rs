//! Starts everything, hears signals, and lets no task stop unnoticed.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use plimsoll_exposition::Catalogue;
use plimsoll_net::bind;
use plimsoll_node::{
    control_loop::{self, LoopConfig, LoopContext},
    learned::LearnedStore,
    overrides::Overrides,
    placement::{self, Gate, PlacementBoard, PlacementContext},
    ring::{self, Exchanges, RingBoard, RingContext},
    state::{NodeState, SharedState},
};
use plimsoll_outputs::{
    agent_check::{self, AgentCheckContext, AgentCheckMetrics, Proxies, SharedOutputSettings},
    control_socket,
    envoy::{self, EnvoyBoard, EnvoyContext},
    http::{self, HttpContext},
    orca::{self, OrcaContext},
};
use plimsoll_scatter::partition::Partitions;
use plimsoll_signal::sources::ObservationBoard;
use prometheus::Registry;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Semaphore, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::{
    config::{Config, Parts},
    keep_running::keep_running,
    logging::LogLevel,
    metrics::Metrics,
    notify::{self, Watchdog},
    reload,
};

/// How long servers may take to end over their own grace.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Runs the agent until a signal ends it, or a part that cannot be started again fails.
pub async fn run(path: PathBuf, config: Config, log_level: LogLevel) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut agent = Agent::start(path, config, log_level).await?;
    let mut watchdog = Watchdog::new();
    notify::ready();
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => agent.reload(),
            () = watchdog.due() => agent.feed(&watchdog),
            Some(ended) = agent.servers.join_next() => match ended {
                Ok((name, Ok(()))) => bail!("{name} ended by itself"),
                Ok((name, Err(error))) => return Err(error.context(name)),
                Err(error) => bail!("a server ended: {error}"),
            },
            Some(ended) = agent.loops.join_next() => {
                let service = ended.context("a control loop ended")??;
                agent.loop_ended(&service)?;
            }
            Some(ended) = agent.ring_tasks.join_next() => ended.context("a ring task ended")??,
        }
    }
    agent.end().await
}

struct Agent {
    path: PathBuf,
    config: Config,
    log_level: LogLevel,
    settings: SharedOutputSettings,
    state: SharedState,
    overrides: Arc<Overrides>,
    learned: Arc<LearnedStore>,
    metrics: Metrics,
    check_metrics: AgentCheckMetrics,
    partitions: Arc<Partitions>,
    rings: Arc<RingBoard>,
    observations: Arc<ObservationBoard>,
    /// What ring tasks run by.
    parts: Parts,
    /// Services with a ring task; cancelled, it leaves its ring.
    ringed: BTreeMap<String, CancellationToken>,
    ring_tasks: JoinSet<anyhow::Result<()>>,
    /// By service name, until the loop has ended.
    running: BTreeMap<String, (watch::Sender<LoopConfig>, CancellationToken)>,
    loops: JoinSet<anyhow::Result<String>>,
    servers: JoinSet<(&'static str, anyhow::Result<()>)>,
    /// Tells the proxies of the end.
    drain: CancellationToken,
    /// Ends what operators look at.
    stop: CancellationToken,
}

impl Agent {
    async fn start(path: PathBuf, config: Config, log_level: LogLevel) -> anyhow::Result<Self> {
        let cannot =
            |key: &str, address| format!("{}: {key}: cannot listen on {address}", path.display());
        let http_listener =
            bind(config.http_listen).with_context(|| cannot("http.listen", config.http_listen))?;
        let check_listener = bind(config.agent_check_listen)
            .with_context(|| cannot("agent_check.listen", config.agent_check_listen))?;
        let orca_listener = match config.envoy.orca_listen {
            Some(address) => {
                Some(bind(address).with_context(|| cannot("envoy.orca_listen", address))?)
            }
            None => None,
        };
        let control = config
            .control_socket
            .as_deref()
            .map(control_socket::bind)
            .transpose()?;
        reload::check_log_listeners(&path, &config, None)?;

        let registry = Registry::new();
        let mut catalogue = Catalogue::new(&registry);
        let metrics = Metrics::new(&mut catalogue)?;
        let check_metrics = AgentCheckMetrics::new(&mut catalogue)?;
        let settings: SharedOutputSettings =
            Arc::new(ArcSwap::from_pointee(config.output_settings()));
        let state: SharedState = Arc::new(ArcSwap::from_pointee(NodeState::default()));
        let overrides = Arc::new(Overrides::load(config.state_directory.as_deref())?);
        let learned = Arc::new(LearnedStore::load(config.state_directory.as_deref()));
        let proxies = Arc::new(Proxies::default());
        let rings = Arc::new(RingBoard::default());
        let parts = Parts::new(&config);
        let exchanges = Exchanges::new(parts.rings.subscribe(), Arc::clone(&rings));
        let placement_board = Arc::new(PlacementBoard::default());
        let gate = Gate::new(parts.placement.subscribe(), Arc::clone(&placement_board));
        let envoy_board = Arc::new(EnvoyBoard::default());
        let partitions = Arc::new(Partitions::new(metrics.partitions.clone())?);
        partitions.reconfigure(&config.partitions);
        let (drain, stop) = (CancellationToken::new(), CancellationToken::new());

        let check_context = AgentCheckContext {
            state: Arc::clone(&state),
            settings: Arc::clone(&settings),
            overrides: Arc::clone(&overrides),
            proxies: Arc::clone(&proxies),
            metrics: check_metrics.clone(),
        };
        let gauges = check_context.clone();
        let http_context = HttpContext {
            registry,
            before_scrape: Arc::new(move || gauges.show_proxies()),
            state: Arc::clone(&state),
            settings: Arc::clone(&settings),
            overrides: Arc::clone(&overrides),
            proxies,
            rings: Arc::clone(&rings),
            config: parts.http.subscribe(),
            exchanges: Arc::new(exchanges),
            ring_permits: Arc::new(Semaphore::new(http::MAX_WAITING)),
            envoy: Arc::clone(&envoy_board),
            discovered: metrics.envoy.discoveries.clone(),
            partitions: Arc::clone(&partitions),
            learned: Arc::clone(&learned),
            exchange_permits: Arc::new(Semaphore::new(http::MAX_EXCHANGES)),
            exchanged: metrics.agent.exchanges.clone(),
            placement: Arc::new(gate),
            placement_permits: Arc::new(Semaphore::new(http::MAX_MESSAGES)),
            bodies: Arc::default(),
            closed: metrics.agent.process.http_closed.clone(),
            started: Instant::now(),
        };
        let mut servers = JoinSet::new();
        if let Some(listener) = control {
            let served = control_socket::serve(listener, http_context.clone(), stop.clone());
            servers.spawn(async move { ("control.socket", served.await) });
        }
        let served = http::serve(http_listener, http_context, stop.clone());
        servers.spawn(async move { ("http", served.await) });
        let envoy_context = EnvoyContext {
            state: Arc::clone(&state),
            overrides: Arc::clone(&overrides),
            metrics: metrics.envoy.clone(),
            rings: Arc::clone(&rings),
            board: envoy_board,
            config: parts.envoy.subscribe(),
            stop: stop.clone(),
        };
        let restarts = metrics.agent.task_restarts.with_label_values(&["envoy"]);
        servers.spawn(async move {
            let start = || envoy::run(envoy_context.clone());
            ("envoy", keep_running("envoy", &restarts, start).await)
        });
        let placement_context = PlacementContext {
            metrics: metrics.placement.clone(),
            board: placement_board,
            config: parts.placement.subscribe(),
            stop: stop.clone(),
        };
        let restarts = metrics
            .agent
            .task_restarts
            .with_label_values(&["placement"]);
        servers.spawn(async move {
            let start = || placement::run(placement_context.clone());
            (
                "placement",
                keep_running("placement", &restarts, start).await,
            )
        });
        if let Some(listener) = orca_listener {
            let context = OrcaContext {
                state: Arc::clone(&state),
                config: parts.orca.subscribe(),
                streams: metrics.envoy.orca_streams.clone(),
                closed: metrics.agent.process.http_closed.clone(),
            };
            let served = orca::serve(listener, context, stop.clone());
            servers.spawn(async move { ("envoy.orca_listen", served.await) });
        }
        let (keeper, ended) = (Arc::clone(&learned), stop.clone());
        servers.spawn(async move {
            tokio::select! {
                () = keeper.keep_saved() => {}
                () = ended.cancelled() => {}
            }
            ("learned", keeper.save().await)
        });
        let served = agent_check::serve(check_listener, check_context, drain.clone());
        servers.spawn(async move { ("agent_check", served.await) });

        let mut agent = Agent {
            path,
            log_level,
            settings,
            state,
            overrides,
            learned,
            metrics,
            check_metrics,
            partitions,
            rings,
            observations: Arc::default(),
            parts,
            ringed: BTreeMap::new(),
            ring_tasks: JoinSet::new(),
            running: BTreeMap::new(),
            loops: JoinSet::new(),
            servers,
            drain,
            stop,
            config,
        };
        agent.match_loops();
        agent.match_rings();
        info!(
            version = env!("CARGO_PKG_VERSION"),
            agent_check = %agent.config.agent_check_listen,
            http = %agent.config.http_listen,
            services = agent.config.services.len(),
            "started"
        );
        Ok(agent)
    }

    /// Starts, changes and ends loops until they are those of the configuration.
    fn match_loops(&mut self) {
        for (name, (_, stop)) in &self.running {
            if !self.config.services.iter().any(|s| s.name == *name) {
                stop.cancel();
            }
        }
        for service in &self.config.services {
            let config = LoopConfig {
                period: self.config.period,
                jitter: self.config.jitter,
                service: service.clone(),
            };
            if let Some((sender, stop)) = self.running.get(&service.name) {
                // One that is being stopped is started anew when it has ended.
                if !stop.is_cancelled() {
                    sender.send_if_modified(|old| {
                        let changed = *old != config;
                        *old = config;
                        changed
                    });
                }
                continue;
            }
            let (sender, receiver) = watch::channel(config);
            let stop = CancellationToken::new();
            let context = LoopContext {
                state: Arc::clone(&self.state),
                overrides: Arc::clone(&self.overrides),
                metrics: self.metrics.loops.clone(),
                observations: Arc::clone(&self.observations),
                partitions: Arc::clone(&self.partitions),
                config: receiver,
                kept: Arc::new(Mutex::new(None)),
                learned: Arc::clone(&self.learned),
                stop: stop.clone(),
            };
            let restarts = self
                .metrics
                .agent
                .task_restarts
                .with_label_values(&["control_loop"]);
            let name = service.name.clone();
            self.loops.spawn(async move {
                let task = format!("control loop of {name}");
                keep_running(&task, &restarts, || control_loop::run(context.clone())).await?;
                Ok(name)
            });
            self.running.insert(service.name.clone(), (sender, stop));
        }
    }

    /// Takes a service out of sight only now, since its loop may have published to the last.
    fn loop_ended(&mut self, service: &str) -> anyhow::Result<()> {
        match self.running.remove(service) {
            Some((_, stop)) if stop.is_cancelled() => {}
            _ => bail!("control loop of {service} ended by itself"),
        }
        self.state.rcu(|all| {
            let mut services = all.services.clone();
            services.remove(service);
            NodeState { services }
        });
        self.metrics.forget(service);
        self.check_metrics.forget(service);
        self.match_loops();
        Ok(())
    }

    /// Starts and ends ring tasks until they are those of the configuration.
    fn match_rings(&mut self) {
        self.parts.send(&self.config);
        let wanted = |name: &str| {
            let mut services = self.config.services.iter();
            services.any(|service| service.name == name && service.ring.is_some())
        };
        self.ringed.retain(|name, stop| {
            let stays = wanted(name);
            if !stays {
                stop.cancel();
                self.rings.forget(name);
                self.observations.forget(name);
            }
            stays
        });
        for service in self
            .config
            .services
            .iter()
            .filter(|service| service.ring.is_some())
        {
            if self.ringed.contains_key(&service.name) {
                continue;
            }
            let stop = CancellationToken::new();
            let context = RingContext {
                state: Arc::clone(&self.state),
                overrides: Arc::clone(&self.overrides),
                metrics: self.metrics.ring.clone(),
                board: Arc::clone(&self.rings),
                observations: Arc::clone(&self.observations),
                config: self.parts.rings.subscribe(),
                stop: stop.clone(),
            };
            let restarts = self
                .metrics
                .agent
                .task_restarts
                .with_label_values(&["ring"]);
            let name = service.name.clone();
            self.ring_tasks.spawn(async move {
                let task = format!("ring of {name}");
                keep_running(&task, &restarts, || {
                    ring::run(name.clone(), context.clone())
                })
                .await
            });
            self.ringed.insert(service.name.clone(), stop);
        }
    }

    /// Unless a loop is stuck: then systemd starts the agent again.
    fn feed(&self, watchdog: &Watchdog) {
        let stuck = http::stuck(&self.state.load(), &self.settings.load());
        match stuck.is_empty() {
            true => watchdog.feed(),
            false => error!("the watchdog is not fed: {}", stuck.join(", ")),
        }
    }

    fn reload(&mut self) {
        notify::reloading();
        let is_applied = match reload::read(&self.path, &self.config) {
            Ok(config) => {
                self.log_level.set(config.log_level);
                self.settings.store(Arc::new(config.output_settings()));
                self.config = config;
                self.partitions.reconfigure(&self.config.partitions);
                self.match_loops();
                self.match_rings();
                info!(file = %self.path.display(), "configuration reloaded");
                true
            }
            Err(problem) => {
                error!("reload refused, the old configuration stays: {problem:#}");
                false
            }
        };
        self.metrics.agent.process.reloaded(is_applied);
        notify::ready();
    }

    async fn end(mut self) -> anyhow::Result<()> {
        info!("stopping");
        notify::stopping();
        self.drain.cancel();
        for (_, stop) in std::mem::take(&mut self.ringed) {
            stop.cancel();
        }
        let limit = self.config.shutdown_grace + END_LIMIT;
        let ended = tokio::time::timeout(limit, async {
            while let Some(ended) = self.servers.join_next().await {
                let (name, result) = ended?;
                result.context(name)?;
                if name == "agent_check" {
                    self.stop.cancel();
                }
            }
            while let Some(ended) = self.ring_tasks.join_next().await {
                ended??;
            }
            anyhow::Ok(())
        });
        ended.await.context("servers did not end in time")??;
        if let Some(socket) = &self.config.control_socket {
            // A leftover is replaced at the next start.
            let _ = std::fs::remove_file(socket);
        }
        Ok(())
    }
}
