//! Connections of a service, counted by the kernel: established TCP connections to a local port, or connections
//! waiting to be accepted. By netlink, else from `/proc/net/tcp` and `tcp6`.

pub(super) mod settings;

use std::{
    io::{self, BufRead},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::{JobCount, sock_diag::SockDiag};
use crate::{jobs::ListenSocket, source_error::SourceError};

/// TCP states in `/proc/net/tcp`, in hexadecimal.
const ESTABLISHED: &str = "01";
const LISTEN: &str = "0A";

/// A sample is followed by a pause of this multiple of its duration, so that sampling takes at most 0.3 % of a
/// core; the pause is at most [`MAX_REST`].
const REST: u32 = 332;
const MAX_REST: Duration = Duration::from_secs(1);

/// Connections to count.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    /// Established connections to this port, including those waiting to be accepted.
    Established(u16),
    /// Only connections waiting to be accepted.
    ListenBacklog(ListenSocket),
}

/// Number of the agent's own scrapes that may be in the listen queue: those since the last answered one.
pub type OwnScrapes = Arc<AtomicU32>;

#[derive(Debug, Default)]
struct Seen {
    now: Option<f64>,
    peak: f64,
    sum: f64,
    looks: u32,
    error: Option<String>,
}

/// A task that samples the count several times a period, for its mean and peak. Aborted on drop.
#[derive(Debug)]
pub struct Sockets {
    seen: Arc<Mutex<Seen>>,
    watcher: AbortOnDropHandle<()>,
}

impl Sockets {
    /// Spawns the task. It samples at intervals of at least `every` and subtracts `own` from each count.
    pub fn watch(wanted: Wanted, every: Duration, own: OwnScrapes) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let into = Arc::clone(&seen);
        let watcher = tokio::spawn(async move {
            let mut look = Look::default();
            let wanted = Arc::new(wanted);
            loop {
                let wanted = Arc::clone(&wanted);
                let before = own.load(Ordering::Relaxed);
                // Reading a long table takes milliseconds.
                let looked = tokio::task::spawn_blocking(move || {
                    let began = Instant::now();
                    let count = look.count(&wanted);
                    (look, count, began.elapsed())
                });
                let count;
                let took;
                (look, count, took) = match looked.await {
                    Ok(looked) => looked,
                    Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
                    // The runtime is shutting down.
                    Err(_) => return,
                };
                // A scrape may have been answered since the table was read.
                let scrapes = f64::from(before.max(own.load(Ordering::Relaxed)));
                note(&into, count.map(|count| (count - scrapes).max(0.0)));
                let rest = (REST * took).min(MAX_REST);
                tokio::time::sleep(rest.max(every.saturating_sub(took))).await;
            }
        });
        Sockets {
            seen,
            watcher: AbortOnDropHandle::new(watcher),
        }
    }

    /// Latest count; `None` before the first one and after an error.
    pub fn newest(&self) -> Option<f64> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.now.filter(|_| seen.error.is_none())
    }

    /// Counts since the previous call. Errors: kind `jobs`.
    pub async fn take(&mut self) -> Result<JobCount, SourceError> {
        if self.watcher.is_finished() {
            // Propagate the panic to the control loop, which is restarted and counted.
            if let Err(ended) = (&mut self.watcher).await
                && ended.is_panic()
            {
                std::panic::resume_unwind(ended.into_panic());
            }
            return Err(SourceError::new("jobs", "the socket sampling task ended"));
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &seen.error {
            return Err(SourceError::new("jobs", error));
        }
        let count = JobCount {
            now: seen.now,
            peak: (seen.looks > 0).then_some(seen.peak),
            mean: match seen.looks {
                // Samples may be further apart than calls.
                0 => seen.now,
                looks => Some(seen.sum / f64::from(looks)),
            },
        };
        *seen = Seen {
            now: seen.now,
            ..Seen::default()
        };
        Ok(count)
    }
}

fn note(into: &Mutex<Seen>, count: io::Result<f64>) {
    let mut seen = into.lock().unwrap_or_else(PoisonError::into_inner);
    match count {
        Ok(now) => {
            seen.error = None;
            seen.now = Some(now);
            seen.peak = seen.peak.max(now);
            seen.sum += now;
            seen.looks += 1;
        }
        Err(error) => {
            *seen = Seen {
                error: Some(error.to_string()),
                ..Seen::default()
            };
        }
    }
}

/// Counts by netlink, with `/proc/net/tcp` as the fallback.
#[derive(Debug, Default)]
struct Look {
    diag: Option<SockDiag>,
    /// The netlink error logged last; `None` while netlink works.
    told: Option<String>,
}

impl Look {
    fn count(&mut self, wanted: &Wanted) -> io::Result<f64> {
        let counted = match self.by_netlink(wanted) {
            Ok(counted) => {
                if self.told.take().is_some() {
                    info!("sockets are counted by netlink again");
                }
                counted
            }
            Err(error) => {
                let error = error.to_string();
                if self.told.as_ref() != Some(&error) {
                    warn!(
                        "sockets cannot be counted by netlink, /proc/net/tcp is read, which costs more: {error}"
                    );
                    self.told = Some(error);
                }
                by_tables(wanted)?
            }
        };
        let missing = || match wanted {
            Wanted::ListenBacklog(ListenSocket::Unix(path)) => {
                io::Error::other(format!("nobody listens on {} here", path.display()))
            }
            Wanted::ListenBacklog(ListenSocket::Ports(ports)) => {
                let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
                io::Error::other(format!(
                    "nobody listens on port {} here",
                    ports.join(" or ")
                ))
            }
            Wanted::Established(_) => io::Error::other("no connections"),
        };
        counted.map(f64::from).ok_or_else(missing)
    }

    fn by_netlink(&mut self, wanted: &Wanted) -> io::Result<Option<u32>> {
        // A socket that failed is not used again.
        let mut diag = match self.diag.take() {
            Some(diag) => diag,
            None => SockDiag::open()?,
        };
        let count = match wanted {
            Wanted::Established(port) => diag.established(*port).map(Some)?,
            Wanted::ListenBacklog(ListenSocket::Unix(path)) => diag.unix_listen_backlog(path)?,
            Wanted::ListenBacklog(ListenSocket::Ports(ports)) => {
                first(ports, |port| diag.listen_backlog(port))?
            }
        };
        self.diag = Some(diag);
        Ok(count)
    }
}

/// Count of the first port that has a listener.
fn first(
    ports: &[u16],
    mut count: impl FnMut(u16) -> io::Result<Option<u32>>,
) -> io::Result<Option<u32>> {
    for port in ports {
        if let Some(found) = count(*port)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn by_tables(wanted: &Wanted) -> io::Result<Option<u32>> {
    match wanted {
        Wanted::Established(port) => {
            let mut count = 0;
            each_in_tables(*port, ESTABLISHED, |_queued| count += 1)?;
            Ok(Some(count))
        }
        Wanted::ListenBacklog(ListenSocket::Ports(ports)) => first(ports, |port| {
            let mut sum = None;
            each_in_tables(port, LISTEN, |queued| {
                sum = Some(sum.unwrap_or(0_u32).saturating_add(queued));
            })?;
            Ok(sum)
        }),
        Wanted::ListenBacklog(ListenSocket::Unix(path)) => Err(io::Error::other(format!(
            "connections waiting on {} can be counted by netlink only",
            path.display()
        ))),
    }
}

fn each_in_tables(port: u16, state: &str, mut each: impl FnMut(u32)) -> io::Result<()> {
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let of_table = |error| io::Error::other(format!("{table}: {error}"));
        match std::fs::File::open(table) {
            Ok(file) => {
                in_table(io::BufReader::new(file), port, state, &mut each).map_err(of_table)?;
            }
            // The kernel has no IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound && table.ends_with('6') => {}
            Err(error) => return Err(of_table(error)),
        }
    }
    Ok(())
}

/// Calls `each` with the receive queue of every matching socket: for a listener, its waiting connections.
fn in_table(
    table: impl BufRead,
    port: u16,
    state: &str,
    each: &mut impl FnMut(u32),
) -> io::Result<()> {
    let wanted = format!("{port:04X}");
    for line in table.lines().skip(1) {
        let line = line?;
        let mut words = line.split_ascii_whitespace().skip(1);
        let local = words.next().and_then(|address| address.rsplit(':').next());
        let its_state = words.nth(1);
        // Listeners come first; the rest of the table may be long.
        if state == LISTEN && its_state != Some(LISTEN) {
            return Ok(());
        }
        if local == Some(wanted.as_str()) && its_state == Some(state) {
            let queues = words.next().and_then(|queues| queues.split_once(':'));
            let queued = queues.and_then(|(_, rx)| u32::from_str_radix(rx, 16).ok());
            each(queued.unwrap_or(0));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{
        net::{IpAddr, SocketAddr, TcpListener, TcpStream},
        os::unix::net::{UnixListener, UnixStream},
    };

    use super::*;

    fn by_both(port: u16) -> [u32; 2] {
        both(&Wanted::Established(port)).map(Option::unwrap)
    }

    fn waiting(port: u16) -> [Option<u32>; 2] {
        both(&Wanted::ListenBacklog(ListenSocket::Ports(vec![port])))
    }

    fn both(wanted: &Wanted) -> [Option<u32>; 2] {
        let mut look = Look::default();
        // The second request uses the same socket.
        let counts = [(); 2].map(|()| look.by_netlink(wanted).unwrap());
        assert_eq!(counts[0], counts[1]);
        [counts[1], by_tables(wanted).unwrap()]
    }

    fn pairs(listener: &TcpListener, to: IpAddr, count: usize) -> Vec<(TcpStream, TcpStream)> {
        let address = SocketAddr::new(to, listener.local_addr().unwrap().port());
        let pair = |_| {
            let client = TcpStream::connect(address).unwrap();
            (client, listener.accept().unwrap().0)
        };
        (0..count).map(pair).collect()
    }

    #[test]
    fn netlink_and_the_tables_count_the_connections_of_a_port_alone() {
        let v4 = IpAddr::from([127, 0, 0, 1]);
        let other = TcpListener::bind((v4, 0)).unwrap();
        let _others = pairs(&other, v4, 2);
        let listener = TcpListener::bind((v4, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(by_both(port), [0, 0], "listening is not a job");
        // More than one datagram of the kernel holds.
        let kept = pairs(&listener, v4, 400);
        // Connections of other tests shift the lines of the tables while they are read.
        assert!((0..20).any(|_| by_both(port) == [400, 400]));
        drop(kept);
        assert_eq!(by_both(port), [0, 0]);
    }

    #[test]
    fn netlink_and_the_tables_count_ipv6_and_ipv4_in_it() {
        let Ok(listener) = TcpListener::bind("[::]:0") else {
            // The kernel has no IPv6.
            return;
        };
        let port = listener.local_addr().unwrap().port();
        let mut kept = pairs(&listener, "::1".parse().unwrap(), 2);
        kept.extend(pairs(&listener, [127, 0, 0, 1].into(), 3));
        assert_eq!(by_both(port), [5, 5]);
    }

    fn connect(to: IpAddr, port: u16, count: usize) -> Vec<TcpStream> {
        let connect = |_| TcpStream::connect((to, port)).unwrap();
        (0..count).map(connect).collect()
    }

    #[test]
    fn those_that_wait_to_be_accepted_are_counted_alone() {
        let v4 = IpAddr::from([127, 0, 0, 1]);
        let listener = TcpListener::bind((v4, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(waiting(port), [Some(0); 2]);
        let accepted = pairs(&listener, v4, 40);
        let clients = connect(v4, port, 7);
        assert_eq!(waiting(port), [Some(7); 2]);
        // Closed connections stay in the queue until the service accepts them.
        drop(clients);
        assert_eq!(waiting(port), [Some(7); 2]);
        (0..7).for_each(|_| drop(listener.accept().unwrap()));
        assert_eq!(waiting(port), [Some(0); 2]);
        drop(listener);
        assert_eq!(
            waiting(port),
            [None; 2],
            "connections alone are no listener"
        );
        drop(accepted);
    }

    #[test]
    fn several_listeners_of_a_port_are_added_up() {
        let v4 = IpAddr::from([127, 0, 0, 1]);
        let first = reusing(SocketAddr::new(v4, 0));
        let port = first.local_addr().unwrap().port();
        let _others: Vec<_> = (0..3).map(|_| reusing(SocketAddr::new(v4, port))).collect();
        let _clients = connect(v4, port, 12);
        assert_eq!(waiting(port), [Some(12); 2]);
        if let Ok(_v6) = TcpListener::bind(("::1", port)) {
            let _clients = connect("::1".parse().unwrap(), port, 5);
            assert_eq!(waiting(port), [Some(17); 2]);
        }
    }

    fn reusing(address: SocketAddr) -> TcpListener {
        use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_reuseport(&socket, true).unwrap();
        bind(&socket, &address).unwrap();
        listen(&socket, 64).unwrap();
        TcpListener::from(socket)
    }

    #[test]
    fn those_that_wait_on_a_unix_socket_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fpm.sock");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        let by_netlink = |path: &std::path::Path| {
            let wanted = Wanted::ListenBacklog(ListenSocket::Unix(path.to_owned()));
            Look::default().by_netlink(&wanted).unwrap()
        };
        assert_eq!(by_netlink(&path), None);
        let listener = UnixListener::bind(&path).unwrap();
        let _other = UnixListener::bind(directory.path().join("other.sock")).unwrap();
        let connect = |_| UnixStream::connect(&path).unwrap();
        let _clients: Vec<_> = (0..6).map(connect).collect();
        let _accepted = listener.accept().unwrap();
        assert_eq!(by_netlink(&path), Some(5));
        assert_eq!(by_netlink(&link.join("fpm.sock")), Some(5));
    }

    #[test]
    fn the_first_port_that_has_a_listener_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let of = |ports: &[u16]| both(&Wanted::ListenBacklog(ListenSocket::Ports(ports.to_vec())));
        // Port 0 never has a listener.
        assert_eq!(of(&[0, port]), [Some(0); 2]);
        assert_eq!(of(&[0]), [None; 2]);
    }
}
