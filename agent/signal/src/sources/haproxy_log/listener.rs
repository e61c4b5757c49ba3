//! Sockets that receive HAProxy's log lines.

use std::{
    io,
    net::SocketAddr,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_net::bind;
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream, UdpSocket, UnixDatagram},
    task::JoinSet,
};

use super::{
    Lines, LogListen,
    connections::{Connections, Place},
    line::MAX_LINE,
};
use crate::source_error::SourceError;

/// Maximum number of open connections; beyond it the idlest is closed.
const MAX_CONNECTIONS: usize = 64;
/// Minimum interval between log lines about closed connections.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// Pause after an error that would otherwise recur at once.
const PAUSE: Duration = Duration::from_millis(50);

/// Time for which datagrams are left to accumulate, since waking up for each costs more than reading it. The buffer
/// that Linux allows by default holds 332 lines of 250 bytes, enough for 33,000 requests/s.
const GATHER: Duration = Duration::from_millis(10);
/// Requested size of the receive buffer, for bursts.
const BUFFER_BYTES: usize = 1 << 20;
/// Maximum number of datagrams read before yielding to other tasks.
const MAX_AT_ONCE: usize = 1024;

/// A bound listening socket.
#[derive(Debug)]
pub enum Listener {
    /// One line per datagram.
    Udp(UdpSocket),
    /// Lines terminated by a newline.
    Tcp(TcpListener),
    /// One line per datagram.
    Unix(UnixSocket),
}

/// A datagram socket whose path is removed before it is closed: a successor finds either a live socket or none.
#[derive(Debug)]
pub struct UnixSocket {
    _unlink: Unlink,
    socket: UnixDatagram,
}

/// Removes the socket's path on drop.
#[derive(Debug)]
pub struct Unlink(PathBuf);

impl Drop for Unlink {
    fn drop(&mut self) {
        // The path may be gone already.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Binds the socket. Requires a Tokio runtime. Errors: kind `bind`.
    pub fn bind(listen: &LogListen) -> Result<Self, SourceError> {
        let bound = match listen {
            LogListen::Udp(address) => bind_udp(address).map(Listener::Udp),
            LogListen::Tcp(address) => bind(*address).map(Listener::Tcp),
            LogListen::Unix(path) => bind_unix(path).map(Listener::Unix),
        };
        bound.map_err(|error| {
            SourceError::new(
                "bind",
                format!("source.listen: cannot listen on {listen}: {error}"),
            )
        })
    }

    /// Feeds received lines to `lines` until dropped.
    pub async fn run(self, lines: Lines) {
        // One byte more than the maximum, to detect an oversized datagram.
        let mut buffer = vec![0; MAX_LINE + 1];
        match self {
            Listener::Udp(socket) => loop {
                datagram(socket.recv(&mut buffer).await, &buffer, &lines).await;
                for _ in 0..MAX_AT_ONCE {
                    let Ok(length) = socket.try_recv(&mut buffer) else {
                        break;
                    };
                    datagram(Ok(length), &buffer, &lines).await;
                }
                tokio::time::sleep(GATHER).await;
            },
            Listener::Unix(unix) => loop {
                datagram(unix.socket.recv(&mut buffer).await, &buffer, &lines).await;
            },
            Listener::Tcp(listener) => accept(listener, lines).await,
        }
    }
}

fn bind_udp(address: &SocketAddr) -> io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::bind(address)?;
    // Linux silently limits this to net.core.rmem_max.
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

fn bind_unix(path: &Path) -> io::Result<UnixSocket> {
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the path exists and is not a socket",
            ));
        }
        // A killed run leaves its socket behind; a live one still has a reader.
        let probe = std::os::unix::net::UnixDatagram::unbound()?;
        match probe.connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
            Ok(()) => return Err(io::ErrorKind::AddrInUse.into()),
        }
        std::fs::remove_file(path)?;
    }
    let bound = UnixSocket {
        socket: UnixDatagram::bind(path)?,
        _unlink: Unlink(path.to_owned()),
    };
    // Like /dev/log: HAProxy runs as another user.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(bound)
}

async fn datagram(received: io::Result<usize>, buffer: &[u8], lines: &Lines) {
    match received {
        Ok(length) if length > MAX_LINE => lines.oversized(),
        Ok(length) => {
            lines.take(&buffer[..length]);
        }
        Err(error) => {
            tracing::warn!(%error, "cannot receive log lines");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn accept(listener: TcpListener, lines: Lines) {
    let connections = Arc::new(Connections::default());
    let mut readers = JoinSet::new();
    let mut numbers = 0_u64..;
    let mut logged: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            Some(ended) = readers.join_next() => {
                // Propagate the panic to the listener's task, and from there to the control loop.
                if let Err(error) = ended
                    && error.is_panic()
                {
                    std::panic::resume_unwind(error.into_panic());
                }
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(number) = numbers.next() else { return };
                let (place, crowded) = connections.enter(number, MAX_CONNECTIONS);
                if crowded {
                    lines.closed_one();
                    if logged.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
                        logged = Some(Instant::now());
                        tracing::warn!(%peer, "more than {MAX_CONNECTIONS} log connections: idle ones are closed; further ones are only counted for a minute");
                    }
                }
                let lines = lines.clone();
                let reader = readers.spawn(async move { read_lines(stream, &lines, &place).await });
                connections.closes_with(number, reader);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept log connections");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Reads lines terminated by a newline. A line longer than [`MAX_LINE`] is skipped and counted once.
async fn read_lines(mut stream: TcpStream, lines: &Lines, place: &Place) {
    // Room for the longest line and its newline.
    let mut buffer = vec![0; MAX_LINE + 1];
    let mut filled = 0;
    let mut skipping = false;
    loop {
        let read = match stream.read(&mut buffer[filled..]).await {
            Ok(0) | Err(_) => return,
            Ok(read) => read,
        };
        filled += read;
        let mut start = 0;
        let mut proved = false;
        while let Some(length) = buffer[start..filled].iter().position(|byte| *byte == b'\n') {
            if !std::mem::take(&mut skipping) {
                proved |= lines.take(&buffer[start..start + length]);
            }
            start += length + 1;
        }
        place.heard(proved);
        buffer.copy_within(start..filled, 0);
        filled -= start;
        if filled == buffer.len() {
            if !std::mem::replace(&mut skipping, true) {
                lines.oversized();
            }
            filled = 0;
        }
    }
}
