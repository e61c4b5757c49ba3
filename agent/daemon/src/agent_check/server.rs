//! Accepts, reads the identity, answers, closes.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Notify,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    AgentCheckContext, OnShutdown, OutputSettings, ProxyId,
    answer::{self, Admin, Facts},
    connections::{Connections, Place},
    line::{self, Received},
    metrics::Rejected,
};

/// An answer fits any send buffer; longer than this only a broken client can take.
const WRITE_LIMIT: Duration = Duration::from_secs(1);
/// How long a client that sent nothing in time may take to close or to send its line after all.
const LINGER: Duration = Duration::from_millis(100);
/// Pause after a failed accept, mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// One log line per this time and cause.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Connections the kernel may hold for the next accept. A full queue costs a proxy a second, the
/// time until it tries again.
const BACKLOG: u32 = 4096;

/// Binds the port with a long queue.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

struct Server {
    context: AgentCheckContext,
    connections: Arc<Connections>,
    draining: AtomicBool,
    told: Notify,
    logged: Mutex<Vec<(Rejected, Instant)>>,
}

/// Answers until `shutdown`, then drains as configured. Dropping the future instead closes the port
/// without a drain, as when the address changes on a reload.
pub async fn serve(
    listener: TcpListener,
    context: AgentCheckContext,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    if context.settings.load().on_shutdown == OnShutdown::Drain
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
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) if is_client_gone(&error) => continue,
            Err(error) => {
                warn!(%error, "cannot accept agent checks");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let most = server.context.settings.load().max_connections;
        let (place, crowded) = server.connections.enter(most);
        if crowded {
            server.reject(Rejected::ConnectionLimit, peer, "");
        }
        let number = place.number();
        let task = tokio::spawn(Arc::clone(server).connection(stream, peer, place));
        server.connections.closes_with(number, task.abort_handle());
        server.connections.at_most(most.max(1)).await;
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

/// An answer on its way, and what its arrival changes.
struct Reply {
    line: String,
    to: Option<(ProxyId, Admin)>,
}

impl Server {
    async fn connection(self: Arc<Self>, mut stream: TcpStream, peer: SocketAddr, _place: Place) {
        if let Err(error) = self.check(&mut stream, peer).await
            && !is_client_gone(&error)
        {
            if error.kind() == io::ErrorKind::TimedOut {
                self.reject(Rejected::Timeout, peer, "");
            }
            debug!(%peer, %error, "agent check broke off");
        }
    }

    async fn check(&self, stream: &mut TcpStream, peer: SocketAddr) -> io::Result<()> {
        let settings = self.context.settings.load_full();
        let received = line::receive(stream, settings.identity_wait).await?;
        let silent = received == Received::Nothing;
        let reply = match received {
            Received::TooLong => {
                self.reject(Rejected::LineTooLong, peer, "");
                return Ok(());
            }
            Received::Garbled => {
                self.reject(Rejected::BadLine, peer, "");
                Reply {
                    line: answer::NO_CHANGE.into(),
                    to: None,
                }
            }
            Received::Nothing => self.reply(&settings, None, None, peer),
            Received::Line { identity, proxy } => {
                self.reply(&settings, Some(identity), proxy, peer)
            }
        };
        timeout(WRITE_LIMIT, stream.write_all(reply.line.as_bytes())).await??;
        if let Some((id, admin)) = reply.to {
            self.note_told(&id, admin, &reply.line);
        }
        if silent {
            // A line that comes late must be read before the close, or the close becomes a reset.
            stream.shutdown().await?;
            let mut rest = [0_u8; 512];
            let _ = timeout(LINGER, stream.read(&mut rest)).await;
        }
        Ok(())
    }

    fn reply(
        &self,
        settings: &OutputSettings,
        identity: Option<String>,
        proxy: Option<String>,
        peer: SocketAddr,
    ) -> Reply {
        let no_change = Reply {
            line: answer::NO_CHANGE.into(),
            to: None,
        };
        let Some(service) = settings.resolve(identity.as_deref()) else {
            self.reject(
                Rejected::UnknownIdentity,
                peer,
                identity.as_deref().unwrap_or("none sent"),
            );
            return no_change;
        };
        let node = self.context.state.load();
        let Some(state) = node.services.get(&service.name) else {
            return no_change;
        };
        let address: IpAddr = peer.ip().to_canonical();
        let id = ProxyId {
            service: service.name.clone(),
            identity: identity.unwrap_or_else(|| service.name.clone()),
            proxy: proxy.unwrap_or_else(|| address.to_string()),
        };
        let polled = self
            .context
            .proxies
            .poll(&id, address, Instant::now(), settings.proxy_lease);
        let Some(share) = polled else {
            self.reject(Rejected::ProxyLimit, peer, &id.proxy);
            return no_change;
        };
        let set = self.context.overrides.of(&service.name);
        let admin = if set.drain || self.draining.load(Ordering::Acquire) {
            self.context.overrides.owe_ready(&id);
            Admin::Drain
        } else if self.context.overrides.owes_ready(&id) {
            Admin::Ready
        } else {
            Admin::Keep
        };
        let (line, kind) = answer::compose(&Facts {
            state,
            set,
            send: service.send,
            share,
            admin,
        });
        self.context
            .metrics
            .checks
            .with_label_values(&[service.name.as_str(), kind.as_str()])
            .inc();
        Reply {
            line,
            to: Some((id, admin)),
        }
    }

    fn note_told(&self, id: &ProxyId, admin: Admin, line: &str) {
        self.context.proxies.told(id, line, admin == Admin::Drain);
        match admin {
            Admin::Ready => self.context.overrides.told_ready(id),
            Admin::Drain if self.draining.load(Ordering::Acquire) => self.told.notify_one(),
            Admin::Drain | Admin::Keep => {}
        }
    }

    async fn wind_down(&self, shutdown: &CancellationToken) {
        shutdown.cancelled().await;
        let settings = self.context.settings.load_full();
        if settings.on_shutdown == OnShutdown::Drain && self.context.overrides.is_persistent() {
            self.owe_everyone(&settings).await;
            self.draining.store(true, Ordering::Release);
            let drained = timeout(settings.shutdown_grace, async {
                while !self
                    .context
                    .proxies
                    .all_told_drain(Instant::now(), settings.proxy_lease)
                {
                    // The limit lets a lease end while nobody polls.
                    let _ = timeout(Duration::from_millis(100), self.told.notified()).await;
                }
            });
            match drained.await {
                Ok(()) => info!("every proxy that polls was told to drain"),
                Err(_) => warn!("shutdown_grace is over before every proxy was told to drain"),
            }
        }
        // Answers under way are a matter of milliseconds.
        let _ = timeout(LINGER, self.connections.at_most(0)).await;
    }

    /// On disk before any proxy is told, so that no crash leaves one drained for ever.
    async fn owe_everyone(&self, settings: &OutputSettings) {
        for service in settings.services() {
            for id in self
                .context
                .proxies
                .ids(&service.name, Instant::now(), settings.proxy_lease)
            {
                self.context.overrides.owe_ready(&id);
            }
        }
        if let Err(error) = self.context.overrides.save().await {
            warn!("drains may not be undone after the next start: {error:#}");
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
