//! A socket to a database with a limit on the bytes read per exchange.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use plimsoll_net::{DatabaseAddress, Socket, connect};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum bytes read in one exchange, a login or a query. Either takes a few hundred.
const MAX_BYTES: usize = 64 << 10;

/// Bytes that the current exchange may still read.
#[derive(Clone, Debug)]
pub struct Budget(Arc<AtomicUsize>);

impl Budget {
    /// Resets the budget to [`MAX_BYTES`] for another exchange.
    pub fn renew(&self) {
        self.0.store(MAX_BYTES, Ordering::Release);
    }
}

/// A database socket whose reads fail once the budget is used up.
pub struct Stream {
    socket: Box<dyn Socket>,
    budget: Budget,
    /// True for a unix socket.
    pub is_local: bool,
}

/// Connects, with a full budget.
pub async fn open(address: &DatabaseAddress) -> Result<Stream, String> {
    let is_local = matches!(address, DatabaseAddress::Unix(_));
    Ok(Stream::new(Box::new(connect(address).await?), is_local))
}

impl Stream {
    /// Wraps a connected socket, with a full budget. `is_local` is true for a unix socket.
    pub fn new(socket: Box<dyn Socket>, is_local: bool) -> Self {
        Stream {
            socket,
            budget: Budget(Arc::new(AtomicUsize::new(MAX_BYTES))),
            is_local,
        }
    }

    /// Handle to renew the budget of this stream.
    pub fn budget(&self) -> Budget {
        self.budget.clone()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = self.budget.0.load(Ordering::Acquire);
        if left == 0 {
            let problem = format!("an answer of more than {MAX_BYTES} bytes");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, problem)));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        let read = buffer.filled().len() - before;
        self.budget
            .0
            .store(left.saturating_sub(read), Ordering::Release);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
