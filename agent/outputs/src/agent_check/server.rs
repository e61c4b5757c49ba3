//! Accepts a connection, reads the identity, answers, closes.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use plimsoll_net::is_allowed;
use plimsoll_node::overrides::ProxyId;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    AgentCheckContext, OnShutdown, OutputSettings,
    answer::{self, Admin, Facts, Kind},
    connections::Connections,
    line::{self, LineBuffer, Received},
    metrics::Rejected,
    proxies::Limits,
};

/// An answer fits any send buffer, so only a broken client exceeds this.
const WRITE_LIMIT: Duration = Duration::from_secs(1);
/// Time for a client that sent nothing in time to close, or to send its line after all.
const LINGER: Duration = Duration::from_millis(100);
/// Pause after a failed accept, usually because no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Minimum interval between log lines of the same cause.
const LOG_EVERY: Duration = Duration::from_secs(60);

struct Server {
    context: AgentCheckContext,
    connections: Arc<Connections>,
    draining: AtomicBool,
    told: Notify,
    logged: Mutex<Vec<(Rejected, Instant)>>,
}

/// Answers until `shutdown`, then drains as configured. Dropping the future closes the port without a drain, as when
/// the address changes on a reload.
pub async fn serve(
    listener: TcpListener,
    context: AgentCheckContext,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    if context.settings.load().agent_check.on_shutdown == OnShutdown::Drain
        && !context.overrides.is_persistent()
    {
        warn!(
            "agent.state_directory is not set, so agent_check.on_shutdown = \"drain\" acts as \"hold\": \
             a drain that is forgotten could not be undone after a restart"
        );
    }
    let server = Arc::new(Server {
        context,
        connections: Arc::default(),
        draining: AtomicBool::new(false),
        told: Notify::new(),
        logged: Mutex::default(),
    });
    let overrides = Arc::clone(&server.context.overrides);
    tokio::select! {
        () = accept(&listener, &server) => {}
        () = overrides.keep_saved() => {}
        () = server.wind_down(&shutdown) => {}
    }
    overrides.save().await
}

async fn accept(listener: &TcpListener, server: &Arc<Server>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => server.take(stream, peer).await,
            Err(error) if is_client_gone(&error) => {}
            Err(error) => {
                warn!(%error, "cannot accept agent checks");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        // A flood must not starve the worker's other tasks.
        tokio::task::consume_budget().await;
    }
}

/// HAProxy resets the connection as soon as it has its line.
fn is_client_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected
    )
}

/// Kind of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    /// Waits for the answer.
    Proxy,
    /// Closes before the answer: gets an answer but no share.
    Probe,
}

/// A pending answer, and the changes to make once it is delivered.
struct Reply {
    line: String,
    to: Option<(ProxyId, Kind)>,
}

impl Reply {
    fn no_change() -> Self {
        Reply {
            line: answer::NO_CHANGE.into(),
            to: None,
        }
    }
}

impl Server {
    /// Most proxies have sent their line by the time of the accept; they are answered at once, without a task or a
    /// timer.
    async fn take(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        let settings = self.context.settings.load();
        if !is_allowed(settings.agent_check.allow.as_deref(), peer.ip()) {
            return self.reject(Rejected::NotAllowed, peer, "");
        }
        let most = settings.agent_check.max_connections.max(1);
        drop(settings);
        let mut buffer = LineBuffer::default();
        // Tokio's stream would refuse to read before the runtime has seen it readable.
        let stream = match stream.into_std() {
            Ok(stream) => stream,
            Err(error) => return self.broke_off(peer, &error),
        };
        match self.at_once(&stream, peer, &mut buffer) {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => return self.broke_off(peer, &error),
        }
        let (place, crowded) = self.connections.enter(most);
        if crowded {
            self.reject(Rejected::ConnectionLimit, peer, "");
        }
        let number = place.number();
        let server = Arc::clone(self);
        let task = tokio::spawn(async move {
            if let Err(error) = server.later(stream, peer, buffer).await {
                server.broke_off(peer, &error);
            }
            drop(place);
        });
        self.connections.closes_with(number, task.abort_handle());
        self.connections.at_most(most).await;
    }

    /// Returns whether the line had arrived and was answered.
    fn at_once(
        &self,
        mut stream: &std::net::TcpStream,
        peer: SocketAddr,
        buffer: &mut LineBuffer,
    ) -> io::Result<bool> {
        let read = match stream.read(buffer.space()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            read => read?,
        };
        let Some(received) = buffer.took(read) else {
            return Ok(false);
        };
        if let Some(reply) = self.reply(received, peer) {
            stream.write_all(reply.line.as_bytes())?;
            self.note_told(&reply);
        }
        Ok(true)
    }

    async fn later(
        &self,
        stream: std::net::TcpStream,
        peer: SocketAddr,
        mut buffer: LineBuffer,
    ) -> io::Result<()> {
        let mut stream = TcpStream::from_std(stream)?;
        let wait = self.context.settings.load().agent_check.identity_wait;
        let received = line::receive(&mut stream, &mut buffer, wait).await?;
        let silent = received == Received::Nothing;
        let Some(reply) = self.reply(received, peer) else {
            return Ok(());
        };
        timeout(WRITE_LIMIT, stream.write_all(reply.line.as_bytes())).await??;
        self.note_told(&reply);
        if silent {
            // Read a late line before closing, which would otherwise reset the connection.
            stream.shutdown().await?;
            let mut rest = [0_u8; 512];
            let _ = timeout(LINGER, stream.read(&mut rest)).await;
        }
        Ok(())
    }

    fn broke_off(&self, peer: SocketAddr, error: &io::Error) {
        if error.kind() == io::ErrorKind::TimedOut {
            self.reject(Rejected::Timeout, peer, "");
        }
        debug!(%peer, %error, "agent check aborted");
    }

    /// The answer; `None` for a client that is not a proxy.
    fn reply(&self, received: Received, peer: SocketAddr) -> Option<Reply> {
        match received {
            Received::TooLong => {
                self.reject(Rejected::LineTooLong, peer, "");
                None
            }
            Received::Garbled => {
                self.reject(Rejected::BadLine, peer, "");
                Some(Reply::no_change())
            }
            Received::Closed => Some(self.answer(None, None, peer, Client::Probe)),
            Received::Nothing => Some(self.answer(None, None, peer, Client::Proxy)),
            Received::Line { identity, proxy } => {
                Some(self.answer(Some(identity), proxy, peer, Client::Proxy))
            }
        }
    }

    fn answer(
        &self,
        identity: Option<String>,
        proxy: Option<String>,
        peer: SocketAddr,
        client: Client,
    ) -> Reply {
        let settings = self.context.settings.load();
        let Some(service) = settings.resolve(identity.as_deref()) else {
            self.reject(
                Rejected::UnknownIdentity,
                peer,
                identity.as_deref().unwrap_or("none sent"),
            );
            return Reply::no_change();
        };
        let node = self.context.state.load();
        let Some(state) = node.services.get(&service.name) else {
            return Reply::no_change();
        };
        let address: IpAddr = peer.ip().to_canonical();
        let named = identity.is_some();
        let id = ProxyId {
            service: service.name.clone(),
            identity: identity.unwrap_or_else(|| service.name.clone()),
            proxy: proxy.unwrap_or_else(|| address.to_string()),
        };
        let limits = Limits {
            lease: settings.agent_check.proxy_lease,
            per_address: settings.agent_check.max_proxies_per_address,
        };
        let (proxies, now) = (&self.context.proxies, Instant::now());
        let share = match client {
            Client::Proxy => proxies.poll(&id, named, address, now, limits),
            Client::Probe => Some(proxies.look(&id, now, limits.lease)),
        };
        let Some(share) = share else {
            self.reject(Rejected::ProxyLimit, peer, &id.proxy);
            return Reply::no_change();
        };
        let set = self.context.overrides.of(&service.name);
        let observes = service.mode.observes();
        let stops = self.draining.load(Ordering::Acquire) && !observes;
        let admin = match client {
            _ if set.drain || stops => Admin::Drain,
            Client::Proxy if self.context.overrides.owes_ready(&id) => Admin::Ready,
            _ => Admin::Keep,
        };
        if admin == Admin::Drain && client == Client::Proxy && !observes {
            self.context.overrides.owe_ready(&id);
        }
        let facts = Facts {
            state,
            set,
            send: service.send,
            share,
            admin,
        };
        let (line, kind) = match observes {
            true => answer::compose_observing(&facts),
            false => answer::compose(&facts),
        };
        self.context
            .metrics
            .checks
            .with_label_values(&[service.name.as_str(), kind.as_str()])
            .inc();
        Reply {
            line,
            to: (client == Client::Proxy).then_some((id, kind)),
        }
    }

    fn note_told(&self, reply: &Reply) {
        let Some((id, kind)) = &reply.to else { return };
        self.context
            .proxies
            .told(id, &reply.line, *kind == Kind::Drain);
        match kind {
            Kind::Ready => self.context.overrides.told_ready(id),
            Kind::Drain if self.draining.load(Ordering::Acquire) => self.told.notify_one(),
            Kind::Drain | Kind::Up | Kind::Down | Kind::Observe => {}
        }
    }

    async fn wind_down(&self, shutdown: &CancellationToken) {
        shutdown.cancelled().await;
        let settings = self.context.settings.load_full();
        let agent_check = &settings.agent_check;
        if agent_check.on_shutdown == OnShutdown::Drain && self.context.overrides.is_persistent() {
            self.owe_everyone(&settings).await;
            self.draining.store(true, Ordering::Release);
            let drained = timeout(agent_check.shutdown_grace, async {
                while !self.context.proxies.all_told_drain(
                    Instant::now(),
                    agent_check.proxy_lease,
                    |service| settings.enforces(service),
                ) {
                    // The timeout lets leases expire while no proxy polls.
                    let _ = timeout(Duration::from_millis(100), self.told.notified()).await;
                }
            });
            match drained.await {
                Ok(()) => info!("every proxy that polls was told to drain"),
                Err(_) => warn!("shutdown_grace expired before every proxy was told to drain"),
            }
        }
        // Pending answers take a few milliseconds.
        let _ = timeout(LINGER, self.connections.at_most(0)).await;
    }

    /// Saved to disk before any proxy is drained, so that no crash leaves a proxy drained forever.
    async fn owe_everyone(&self, settings: &OutputSettings) {
        let services = settings.services().iter();
        for service in services.filter(|service| !service.mode.observes()) {
            for id in self.context.proxies.ids(
                &service.name,
                Instant::now(),
                settings.agent_check.proxy_lease,
            ) {
                self.context.overrides.owe_ready(&id);
            }
        }
        if let Err(error) = self.context.overrides.save().await {
            warn!("drains may not end after the next start: {error:#}");
        }
    }

    fn reject(&self, reason: Rejected, peer: SocketAddr, detail: &str) {
        self.context
            .metrics
            .rejected
            .with_label_values(&[reason.as_str()])
            .inc();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match logged.iter_mut().find(|(of, _)| *of == reason) {
            Some((_, at)) if now.saturating_duration_since(*at) < LOG_EVERY => return,
            Some((_, at)) => *at = now,
            None => logged.push((reason, now)),
        }
        drop(logged);
        warn!(%peer, reason = reason.as_str(), detail, "agent check rejected; further ones are only counted for a minute");
    }
}
