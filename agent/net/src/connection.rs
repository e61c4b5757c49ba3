//! Connections to a port, closed on timeouts, or evicted if there are too many.

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use ipnet::IpNet;
use prometheus::IntCounterVec;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpSocket, TcpStream},
    time::{Instant, Sleep},
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tracing::warn;

use crate::{Entered, Place, Places};

/// Pause after a failed accept: most likely the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Reasons for closing connections, as in the metric.
pub const CLOSED: [&str; 5] = ["crowded", "full", "not_allowed", "late", "tls"];

/// Listen backlog. A full queue costs a client a second, the time until it tries again.
const BACKLOG: u32 = 4096;

/// Binds the port with a long listen backlog.
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

/// Whether an address is in one of the networks; without a list, every address is allowed.
pub fn is_allowed(networks: Option<&[IpNet]>, address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.is_none_or(|networks| networks.iter().any(|it| it.contains(&address)))
}

/// Listener with admission rules and timeouts for its connections.
pub struct Door {
    /// The port.
    pub listener: TcpListener,
    /// Limits the number of connections.
    pub places: Arc<Places>,
    /// Whether this address may connect.
    pub allows: Box<dyn Fn(IpAddr) -> bool + Send + Sync>,
    /// Counts closed connections by reason.
    pub closed: IntCounterVec,
    /// Idle timeout: closes a connection whose peer neither sends nor reads anything for so long.
    pub silence: Duration,
    /// Closes a connection if the head of a request is not complete after so long.
    pub head: Option<Duration>,
}

impl Door {
    /// Accepts the next admitted connection.
    pub async fn accept(&self) -> Connection {
        loop {
            self.places.settled().await;
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) if is_peer_gone(&error) => continue,
                Err(error) => {
                    warn!(%error, "cannot accept connections");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let count = |reason| self.closed.with_label_values(&[reason]).inc();
            if !(self.allows)(peer.ip()) {
                count("not_allowed");
                continue;
            }
            let place = match self.places.enter(peer.ip()) {
                Entered::Free(place) => place,
                Entered::InPlaceOf(place) => {
                    count("crowded");
                    place
                }
                Entered::Full => {
                    count("full");
                    continue;
                }
            };
            // Otherwise the end of a response waits for the acknowledgement of its begin. Fails if the peer is gone.
            let _ = stream.set_nodelay(true);
            return Connection::new(stream, peer, place, self);
        }
    }
}

fn is_peer_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// An accepted connection.
pub struct Connection {
    stream: Pin<Box<TimeoutStream<TcpStream>>>,
    peer: SocketAddr,
    place: Place,
    gives_way: Pin<Box<WaitForCancellationFutureOwned>>,
    head: Option<Head>,
    closed: IntCounterVec,
}

/// The timeout for the head being received.
struct Head {
    limit: Duration,
    due: Pin<Box<Sleep>>,
    /// The head that `due` is for, as counted by `heads`.
    due_for: u64,
    heads: Heads,
}

/// Counts received heads plus sent answers: even between requests, odd during one.
#[derive(Clone, Debug, Default)]
pub struct Heads(Arc<AtomicU64>);

impl Heads {
    /// A head was received, or its answer was sent.
    pub fn next(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Head {
    /// Starts the timeout at once: a new connection is expected to send a request.
    fn new(limit: Duration) -> Self {
        Head {
            limit,
            due: Box::pin(tokio::time::sleep(limit)),
            due_for: 0,
            heads: Heads::default(),
        }
    }

    fn heard(&mut self) {
        let now = self.heads.get();
        if now.is_multiple_of(2) && self.due_for != now {
            self.due_for = now;
            self.due.as_mut().reset(Instant::now() + self.limit);
        }
    }

    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        self.due_for == self.heads.get() && self.due.as_mut().poll(context).is_ready()
    }
}

impl Connection {
    fn new(stream: TcpStream, peer: SocketAddr, place: Place, door: &Door) -> Self {
        let mut stream = TimeoutStream::new(stream);
        stream.set_read_timeout(Some(door.silence));
        stream.set_write_timeout(Some(door.silence));
        Connection {
            stream: Box::pin(stream),
            peer,
            gives_way: Box::pin(place.gives_way().clone().cancelled_owned()),
            place,
            head: door.head.map(Head::new),
            closed: door.closed.clone(),
        }
    }

    /// Address of the peer.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Place of the connection, which tracks whose turn it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The counter of heads and answers.
    pub fn heads(&self) -> Heads {
        let head = self.head.as_ref();
        head.map(|head| head.heads.clone()).unwrap_or_default()
    }

    /// It is the peer's turn if it is slow to read an answer, or was sent all of it. What is written before the first
    /// request is of a TLS handshake, which proves nothing.
    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let is_its_turn = |head: &Head| {
            let heads = head.heads.get();
            heads > 0 && (written.is_pending() || heads.is_multiple_of(2))
        };
        if self.head.as_ref().is_some_and(is_its_turn) {
            self.place.waits_for_peer();
        }
        written
    }

    fn poll_stay(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.gives_way.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_stay(context)?;
        let before = buffer.filled().len();
        let read = self.stream.as_mut().poll_read(context, buffer);
        let this = &mut *self;
        if let Some(head) = &mut this.head {
            if read.is_ready() && buffer.filled().len() > before {
                head.heard();
            }
            if head.is_late(context) {
                this.closed.with_label_values(&["late"]).inc();
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        ready!(read)?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_stay(context)?;
        let written = self.stream.as_mut().poll_write(context, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_stay(context)?;
        let written = self.stream.as_mut().poll_write_vectored(context, parts);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(context)
    }
}
