//! Connections of gRPC clients.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use plimsoll_net::{Connection, Door, Place};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_stream::Stream;
use tonic::transport::server::Connected;

/// A connection in the form that gRPC accepts.
pub struct Client(Connection);

/// Accepted connections as they arrive.
pub fn accept(door: Door) -> impl Stream<Item = io::Result<Client>> {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = door.accept() => accepted,
                () = sender.closed() => return,
            };
            if sender.send(Ok(Client(accepted))).await.is_err() {
                return;
            }
        }
    });
    tokio_stream::wrappers::ReceiverStream::new(receiver)
}

/// Streams of one connection, which keeps its place while any is open.
#[derive(Clone, Debug)]
pub struct Streams {
    place: Place,
    open: Arc<AtomicUsize>,
}

/// An open stream.
#[derive(Debug)]
pub struct OpenStream(Streams);

impl Streams {
    /// Opens another stream.
    pub fn open(&self) -> OpenStream {
        self.open.fetch_add(1, Ordering::AcqRel);
        self.place.waits_for_us();
        OpenStream(self.clone())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.place.waits_for_peer();
        }
    }
}

impl Connected for Client {
    type ConnectInfo = Streams;

    fn connect_info(&self) -> Streams {
        Streams {
            place: self.0.place().clone(),
            open: Arc::default(),
        }
    }
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
