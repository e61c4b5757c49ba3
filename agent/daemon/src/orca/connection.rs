//! Connections of gRPC clients.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpListener, sync::Semaphore};
use tokio_stream::Stream;
use tonic::transport::server::Connected;
use tracing::warn;

use crate::connection::Connection;

/// Wait after a failed accept: most likely there are no files left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections as they come, at most so many at a time; one that says nothing for `silence` ends.
pub fn accept(
    listener: TcpListener,
    most: usize,
    silence: Duration,
) -> impl Stream<Item = io::Result<Connection>> {
    let permits = Arc::new(Semaphore::new(most));
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = sender.closed() => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!("envoy.orca_listen: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let connection = Connection::new(stream, permit, silence);
            if sender.send(Ok(connection)).await.is_err() {
                return;
            }
        }
    });
    tokio_stream::wrappers::ReceiverStream::new(receiver)
}

impl Connected for Connection {
    type ConnectInfo = Option<SocketAddr>;

    fn connect_info(&self) -> Option<SocketAddr> {
        self.socket().peer_addr().ok()
    }
}
