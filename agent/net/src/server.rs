//! An HTTP/1.1 server that nobody can fill with requests that never come.

use std::{
    net::IpAddr,
    pin::{Pin, pin},
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
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use prometheus::IntCounterVec;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{Connection, Door, Heads, Place, Places};

/// Open connections. With those of the agent checks and of logs they stay under the 1024 files that a
/// process may have open where nothing else is set.
const MAX_CONNECTIONS: usize = 512;
/// More than the longest wait for a ring.
const MAX_SILENCE: Duration = Duration::from_secs(75);
/// The request line and all headers.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// For a head, from the connection's begin or its own.
const MAX_HEAD_TIME: Duration = Duration::from_secs(5);

/// Serves until `stop`, and what is under way then to its end.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    allows: impl Fn(IpAddr) -> bool + Send + Sync + 'static,
    closed: IntCounterVec,
    stop: CancellationToken,
) {
    let door = Door {
        listener,
        places: Places::new(MAX_CONNECTIONS),
        allows: Box::new(allows),
        closed,
        silence: MAX_SILENCE,
        head: Some(MAX_HEAD_TIME),
    };
    let service = TowerToHyperService::new(router);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            connection = door.accept() => {
                connections.spawn(answer(connection, service.clone(), stop.clone()));
                // A flood must not keep this worker from its other tasks.
                tokio::task::consume_budget().await;
            }
        }
    }
    drop(door);
    while connections.join_next().await.is_some() {}
}

async fn answer(
    connection: Connection,
    service: TowerToHyperService<Router>,
    stop: CancellationToken,
) {
    let (peer, turn) = (connection.peer(), Turn::of(&connection));
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
        .serve_connection(TokioIo::new(connection), service);
    let mut served = pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        debug!(%peer, %error, "HTTP connection broke off");
    }
}

/// Whose turn it is.
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

    /// The peer's until the body is there, then ours.
    fn request(&self, request: Request<Incoming>) -> Request<Body> {
        if request.body().is_end_stream() {
            self.place.waits_for_us();
        } else {
            self.place.waits_for_peer();
        }
        let place = self.place.clone();
        request.map(|body| Body::new(Asked { body, place }))
    }

    /// Ours while there is nothing to take.
    fn answer(self, body: Body) -> Body {
        self.place.waits_for_peer();
        Body::new(Answered { body, turn: self })
    }
}

/// The body of a request.
struct Asked {
    body: Incoming,
    place: Place,
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
        match frame.is_pending() {
            true => self.turn.place.waits_for_us(),
            false => self.turn.place.waits_for_peer(),
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
        self.turn.place.waits_for_peer();
        self.turn.heads.next();
    }
}
