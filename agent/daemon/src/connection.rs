//! A connection that keeps a place while it is there, and ends when its peer is silent.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
};
use tokio_io_timeout::TimeoutStream;

/// See above.
pub struct Connection {
    stream: Pin<Box<TimeoutStream<TcpStream>>>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    /// Ends where its peer neither says nor takes anything for `silence`.
    pub fn new(stream: TcpStream, place: OwnedSemaphorePermit, silence: Duration) -> Self {
        let mut stream = TimeoutStream::new(stream);
        stream.set_read_timeout(Some(silence));
        stream.set_write_timeout(Some(silence));
        Connection {
            stream: Box::pin(stream),
            _place: place,
        }
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
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
