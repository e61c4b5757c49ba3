//! A socket to a local or remote server.

use std::io;

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};

use crate::DatabaseAddress;

/// A TCP or Unix socket.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// Connects to a database.
pub async fn connect(address: &DatabaseAddress) -> Result<Box<dyn Socket>, String> {
    let opened: io::Result<Box<dyn Socket>> = match address {
        DatabaseAddress::Tcp(address) => TcpStream::connect(address).await.and_then(|stream| {
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Socket>)
        }),
        DatabaseAddress::Unix(path) => UnixStream::connect(path)
            .await
            .map(|stream| Box::new(stream) as Box<dyn Socket>),
    };
    opened.map_err(|error| format!("cannot connect: {error}"))
}
