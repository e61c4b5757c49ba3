//! An HTTP/1.1 server that clients cannot block with requests that never arrive.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes, HttpBody},
    http::Request,
};
use hyper::{
    body::{Frame, Incoming, SizeHint},
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::TokioIo,
    server::graceful::{GracefulShutdown, Watcher},
    service::TowerToHyperService,
};
use prometheus::IntCounterVec;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{Connection, Door, Heads, Place, Places, ServerTls};

/// Maximum of open connections. With agent checks and logs it stays under 1024, the default limit of open files
/// for a process.
const MAX_CONNECTIONS: usize = 512;
/// Idle timeout; longer than the longest wait for a ring.
const MAX_SILENCE: Duration = Duration::from_secs(75);
/// Maximum size of the request line and all headers.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Timeout for a head, from the start of the connection or of the head.
const MAX_HEAD_TIME: Duration = Duration::from_secs(5);

/// Limits on a server's connections, of the configuration in force.
pub struct Rules {
    /// Whether this address may connect.
    pub allows: Box<dyn Fn(IpAddr) -> bool + Send + Sync>,
    /// Its TLS; without, it speaks HTTP in clear text.
    pub tls: Box<dyn Fn() -> Option<ServerTls> + Send + Sync>,
    /// Counts closed connections by reason.
    pub closed: IntCounterVec,
}

/// Serves until `stop`, then completes the requests in progress.
pub async fn serve(listener: TcpListener, router: Router, rules: Rules, stop: CancellationToken) {
    let Rules {
        allows,
        tls,
        closed,
    } = rules;
    let door = Door {
        listener,
        places: Places::new(MAX_CONNECTIONS),
        allows,
        closed: closed.clone(),
        silence: MAX_SILENCE,
        head: Some(MAX_HEAD_TIME),
    };
    let service = TowerToHyperService::new(router);
    let graceful = GracefulShutdown::new();
    // Aborts the connections if `serve` itself is dropped.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            connection = door.accept() => {
                let (tls, closed) = (tls(), closed.clone());
                let (service, watcher) = (service.clone(), graceful.watcher());
                connections.spawn(async move {
                    let turn = Turn::of(&connection);
                    let peer = connection.peer();
                    let ended = match tls {
                        None => answer(connection, turn, service, watcher).await,
                        Some(tls) => match tls.acceptor().accept(connection).await {
                            Ok(stream) => answer(stream, turn, service, watcher).await,
                            Err(error) => Err(refused(error, &closed)),
                        },
                    };
                    if let Err(error) = ended {
                        debug!(%peer, "HTTP connection broke off: {error}");
                    }
                });
                // A flood must not keep this worker from its other tasks.
                tokio::task::consume_budget().await;
            }
        }
    }
    drop(door);
    graceful.shutdown().await;
}

/// Counts a failed handshake, unless the connection just ended, was late or gave way.
fn refused(error: io::Error, closed: &IntCounterVec) -> String {
    if error.kind() == io::ErrorKind::InvalidData {
        closed.with_label_values(&["tls"]).inc();
    }
    format!("TLS: {error}")
}

/// Answers requests until the connection ends.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    turn: Turn,
    service: TowerToHyperService<Router>,
    watcher: Watcher,
) -> Result<(), String> {
    let service = service_fn(move |request: Request<Incoming>| {
        let (turn, service) = (turn.clone(), service.clone());
        async move {
            turn.heads.next();
            let request = turn.request(request);
            let response = service.call(request).await?;
            Ok::<_, std::convert::Infallible>(response.map(|body| turn.answer(body)))
        }
    });
    let served = http1::Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    watcher
        .watch(served)
        .await
        .map_err(|error| error.to_string())
}

/// Tracks whether the peer or the server has to act next.
#[derive(Clone)]
struct Turn {
    place: Place,
    heads: Heads,
}

impl Turn {
    fn of(connection: &Connection) -> Self {
        Turn {
            place: connection.place().clone(),
            heads: connection.heads(),
        }
    }

    /// Our turn, except while we wait for the body.
    fn request(&self, request: Request<Incoming>) -> Request<Body> {
        self.place.waits_for_us();
        let place = self.place.clone();
        request.map(|body| {
            Body::new(Asked {
                body,
                place,
                is_awaited: false,
            })
        })
    }

    /// Our turn until the answer is written, which the connection detects.
    fn answer(self, body: Body) -> Body {
        self.place.waits_for_us();
        Body::new(Answered { body, turn: self })
    }
}

/// The body of a request.
struct Asked {
    body: Incoming,
    place: Place,
    is_awaited: bool,
}

impl HttpBody for Asked {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.place.waits_for_us();
        } else if frame.is_pending() && !self.is_awaited {
            // Only once: a peer that trickles must not become less idle.
            self.is_awaited = true;
            self.place.waits_for_peer();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer.
struct Answered {
    body: Body,
    turn: Turn,
}

impl HttpBody for Answered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_pending() {
            self.turn.place.waits_for_us();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.turn.heads.next();
    }
}
