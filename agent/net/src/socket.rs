//! A socket to a local or remote server.

use std::io;

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_util::either::Either;

use crate::DatabaseAddress;

/// A TCP or Unix socket.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// A connection to a database, by TCP on the left.
pub type DatabaseSocket = Either<TcpStream, UnixStream>;

/// Connects to a database.
pub async fn connect(address: &DatabaseAddress) -> Result<DatabaseSocket, String> {
    let opened: io::Result<DatabaseSocket> = match address {
        DatabaseAddress::Tcp(address) => TcpStream::connect(address).await.and_then(|stream| {
            stream.set_nodelay(true)?;
            Ok(Either::Left(stream))
        }),
        DatabaseAddress::Unix(path) => UnixStream::connect(path).await.map(Either::Right),
    };
    opened.map_err(|error| format!("cannot connect: {error}"))
}
