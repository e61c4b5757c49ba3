//! Connections of gRPC clients.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio_stream::Stream;
use tonic::transport::server::Connected;

use crate::{
    connection::{Connection, Door},
    places::Place,
};

/// Those that may stay, as they come.
pub fn accept(door: Door) -> impl Stream<Item = io::Result<Connection>> {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = door.accept() => accepted,
                () = sender.closed() => return,
            };
            if sender.send(Ok(accepted)).await.is_err() {
                return;
            }
        }
    });
    tokio_stream::wrappers::ReceiverStream::new(receiver)
}

/// The streams of one connection. It has a place for good while there are any.
#[derive(Clone, Debug)]
pub struct Streams {
    place: Place,
    open: Arc<AtomicUsize>,
}

/// One of them.
#[derive(Debug)]
pub struct OpenStream(Streams);

impl Streams {
    /// Another one.
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

impl Connected for Connection {
    type ConnectInfo = Streams;

    fn connect_info(&self) -> Streams {
        Streams {
            place: self.place().clone(),
            open: Arc::default(),
        }
    }
}
