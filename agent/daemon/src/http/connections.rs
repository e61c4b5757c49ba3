//! A listener with an end to its patience: so many connections, and none that stays silent.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::serve::Listener;
use prometheus::IntCounter;
use tokio::{net::TcpListener, sync::Semaphore};

use crate::connection::Connection;

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
                Ok(place) => {
                    // Or the end of an answer waits until its beginning was acknowledged. Fails where the peer is gone.
                    let _ = stream.set_nodelay(true);
                    return (Connection::new(stream, place, LONGEST_SILENCE), peer);
                }
                Err(_) => self.refused.inc(),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
