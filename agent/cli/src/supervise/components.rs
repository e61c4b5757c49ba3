//! Components that run for the agent's whole life, whatever its services.

use std::{path::Path, pin::Pin, sync::Arc, time::Instant};

use anyhow::Context;
use plimsoll_net::bind;
use plimsoll_node::{
    placement::{self, Gate, PlacementContext},
    ring::Exchanges,
};
use plimsoll_outputs::{
    agent_check, control_socket,
    envoy::{self, EnvoyContext},
    http::{self, HttpContext, NodeContext},
    orca::{self, OrcaContext},
};
use tokio::net::{TcpListener, UnixListener};

use super::shared::Shared;
use crate::{config::Config, keep_running::keep_running};

/// Name of the agent-check server's component, which ends before the others.
pub const AGENT_CHECK: &str = "agent_check";

/// A component that runs until stopped; one that ends unexpectedly ends the agent.
pub struct Component {
    pub name: &'static str,
    pub task: Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>,
}

impl Component {
    fn new(
        name: &'static str,
        task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) -> Self {
        Component {
            name,
            task: Box::pin(task),
        }
    }

    /// A component that is restarted after a panic.
    fn restarted<F>(
        name: &'static str,
        shared: &Shared,
        start: impl FnMut() -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let restarts = shared
            .metrics
            .agent
            .task_restarts
            .with_label_values(&[name]);
        Component::new(
            name,
            async move { keep_running(name, &restarts, start).await },
        )
    }
}

/// All sockets, bound before any component starts.
pub struct Listeners {
    http: TcpListener,
    agent_check: TcpListener,
    orca: Option<TcpListener>,
    control: Option<UnixListener>,
}

impl Listeners {
    /// # Errors
    ///
    /// If an address cannot be bound; the error names the file and key.
    pub fn bind(path: &Path, config: &Config) -> anyhow::Result<Self> {
        let bind = |key: &str, address| {
            bind(address)
                .with_context(|| format!("{}: {key}: cannot listen on {address}", path.display()))
        };
        let orca = config.envoy.orca_listen;
        let control = config.control_socket.as_deref();
        Ok(Listeners {
            http: bind("http.listen", config.http_listen)?,
            agent_check: bind("agent_check.listen", config.agent_check.listen)?,
            orca: orca.map(|at| bind("envoy.orca_listen", at)).transpose()?,
            control: control.map(control_socket::bind).transpose()?,
        })
    }
}

/// All components, in starting order.
pub fn components(shared: &Shared, listeners: Listeners) -> Vec<Component> {
    let node = NodeContext {
        state: Arc::clone(&shared.state),
        settings: Arc::clone(&shared.settings),
        overrides: Arc::clone(&shared.overrides),
        learned: Arc::clone(&shared.learned),
        proxies: Arc::clone(&shared.proxies),
        envoy: Arc::clone(&shared.envoy),
        started: Instant::now(),
    };
    let control = listeners
        .control
        .map(|it| control(shared, it, node.clone()));
    let orca = listeners.orca.map(|it| orca(shared, it));
    let always = [
        http(shared, listeners.http, node),
        envoy(shared),
        placement(shared),
        learned(shared),
        agent_check(shared, listeners.agent_check),
    ];
    control.into_iter().chain(orca).chain(always).collect()
}

fn control(shared: &Shared, listener: UnixListener, node: NodeContext) -> Component {
    let served = control_socket::serve(listener, node, shared.stop.clone());
    Component::new("control.socket", served)
}

fn http(shared: &Shared, listener: TcpListener, node: NodeContext) -> Component {
    let (parts, metrics) = (&shared.parts, &shared.metrics);
    let gauges = shared.check_context();
    let exchanges = Exchanges::new(parts.rings.subscribe(), Arc::clone(&shared.rings));
    let gate = Gate::new(parts.placement.subscribe(), Arc::clone(&shared.placement));
    let context = HttpContext {
        registry: shared.registry.clone(),
        before_scrape: Arc::new(move || gauges.show_proxies()),
        node,
        rings: Arc::clone(&shared.rings),
        histories: Arc::clone(&shared.histories),
        config: parts.http.subscribe(),
        exchanges: Arc::new(exchanges),
        refused: metrics.agent.process.http_refused.clone(),
        exchanged: metrics.agent.exchanges.clone(),
        discovered: metrics.envoy.discoveries.clone(),
        gate: Arc::new(gate),
        partitions: Arc::clone(&shared.partitions),
        closed: metrics.agent.process.http_closed.clone(),
    };
    Component::new("http", http::serve(listener, context, shared.stop.clone()))
}

fn envoy(shared: &Shared) -> Component {
    let context = EnvoyContext {
        state: Arc::clone(&shared.state),
        overrides: Arc::clone(&shared.overrides),
        metrics: shared.metrics.envoy.clone(),
        rings: Arc::clone(&shared.rings),
        board: Arc::clone(&shared.envoy),
        config: shared.parts.envoy.subscribe(),
        stop: shared.stop.clone(),
    };
    Component::restarted("envoy", shared, move || envoy::run(context.clone()))
}

fn placement(shared: &Shared) -> Component {
    let context = PlacementContext {
        metrics: shared.metrics.placement.clone(),
        board: Arc::clone(&shared.placement),
        config: shared.parts.placement.subscribe(),
        stop: shared.stop.clone(),
    };
    Component::restarted("placement", shared, move || placement::run(context.clone()))
}

fn orca(shared: &Shared, listener: TcpListener) -> Component {
    let context = OrcaContext {
        state: Arc::clone(&shared.state),
        config: shared.parts.orca.subscribe(),
        streams: shared.metrics.envoy.orca_streams.clone(),
        closed: shared.metrics.agent.process.http_closed.clone(),
    };
    let served = orca::serve(listener, context, shared.stop.clone());
    Component::new("envoy.orca_listen", served)
}

fn learned(shared: &Shared) -> Component {
    let (store, stop) = (Arc::clone(&shared.learned), shared.stop.clone());
    Component::new("learned", async move {
        tokio::select! {
            () = store.keep_saved() => {}
            () = stop.cancelled() => {}
        }
        store.save().await
    })
}

fn agent_check(shared: &Shared, listener: TcpListener) -> Component {
    let served = agent_check::serve(listener, shared.check_context(), shared.drain.clone());
    Component::new(AGENT_CHECK, served)
}
