//! A listener with an end to its patience: so many connections, and none that stays silent.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::serve::Listener;
use prometheus::IntCounter;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_io_timeout::TimeoutStream;

/// Open connections. With those of the agent checks and of logs they stay under the 1024 files that a
/// process may have open where nothing else is set.
const MOST_CONNECTIONS: usize = 512;
/// More than the longest wait for a ring.
const LONGEST_SILENCE: Duration = Duration::from_secs(75);

/// Takes connections, and closes those that are too many at once.
pub struct Connections {
    listener: TcpListener,
    places: Arc<Semaphore>,
    refused: IntCounter,
}

impl Connections {
    /// Counts what it refuses.
    pub fn new(listener: TcpListener, refused: IntCounter) -> Self {
        Connections {
            listener,
            places: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
            refused,
        }
    }
}

impl Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let (stream, peer) = Listener::accept(&mut self.listener).await;
            match Arc::clone(&self.places).try_acquire_owned() {
                Ok(place) => return (Connection::new(stream, place), peer),
                Err(_) => self.refused.inc(),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A stream whose peer must say or take something now and then; it keeps a place until dropped.
pub struct Connection {
    stream: Pin<Box<TimeoutStream<TcpStream>>>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    fn new(stream: TcpStream, place: OwnedSemaphorePermit) -> Self {
        let mut stream = TimeoutStream::new(stream);
        stream.set_read_timeout(Some(LONGEST_SILENCE));
        stream.set_write_timeout(Some(LONGEST_SILENCE));
        Connection {
            stream: Box::pin(stream),
            _place: place,
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write_vectored(context, parts)
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
