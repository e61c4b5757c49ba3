//! Established TCP connections to a local port, from the kernel by netlink, or from `/proc/net/tcp` and `tcp6`.

use std::{
    io::{self, BufRead},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::{JobCount, sock_diag::SockDiag};
use crate::sources::SourceError;

/// Linux' number for ESTABLISHED.
const ESTABLISHED: &str = "01";

/// After a look there is a rest of so many times what it took, so that looks take a tenth of a core at most; but
/// none that is longer than this.
const REST: u32 = 9;
const LONGEST_REST: Duration = Duration::from_secs(1);

type Seen = Arc<Mutex<Result<JobCount, String>>>;

/// A task that looks several times a period, so that the peak is known.
#[derive(Debug)]
pub struct Sockets {
    seen: Seen,
    watcher: JoinHandle<()>,
}

impl Sockets {
    /// Starts looking.
    pub fn watch(port: u16, every: Duration) -> Self {
        let seen: Seen = Arc::new(Mutex::new(Ok(JobCount::default())));
        let into = Arc::clone(&seen);
        let watcher = tokio::spawn(async move {
            let mut look = Look::default();
            loop {
                // A long table takes milliseconds to read.
                let looked = tokio::task::spawn_blocking(move || {
                    let began = Instant::now();
                    let count = look.established(port);
                    (look, count, began.elapsed())
                });
                let count;
                let took;
                (look, count, took) = match looked.await {
                    Ok(looked) => looked,
                    Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
                    // The runtime is at its end.
                    Err(_) => return,
                };
                note(&into, count);
                let rest = (REST * took).min(LONGEST_REST);
                tokio::time::sleep(rest.max(every.saturating_sub(took))).await;
            }
        });
        Sockets { seen, watcher }
    }

    /// What was seen since the last call.
    pub async fn take(&mut self) -> Result<JobCount, SourceError> {
        if self.watcher.is_finished() {
            // Its panic becomes the loop's, which is restarted and counted.
            if let Err(ended) = (&mut self.watcher).await
                && ended.is_panic()
            {
                std::panic::resume_unwind(ended.into_panic());
            }
            return Err(SourceError::new("jobs", "the look at sockets ended"));
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *seen {
            Ok(count) => {
                let taken = *count;
                count.peak = None;
                Ok(taken)
            }
            Err(error) => Err(SourceError::new("jobs", error.clone())),
        }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

fn note(into: &Mutex<Result<JobCount, String>>, count: io::Result<f64>) {
    let mut seen = into.lock().unwrap_or_else(PoisonError::into_inner);
    let before = seen.as_ref().ok().and_then(|before| before.peak);
    let counted = count.map(|now| JobCount {
        now: Some(now),
        peak: Some(before.map_or(now, |peak| peak.max(now))),
    });
    *seen = counted.map_err(|error| error.to_string());
}

/// Where to look.
#[derive(Debug, Default)]
struct Look {
    diag: Option<SockDiag>,
    /// Why it is not netlink.
    told: Option<String>,
}

impl Look {
    fn established(&mut self, port: u16) -> io::Result<f64> {
        match self.by_netlink(port) {
            Ok(count) => {
                if self.told.take().is_some() {
                    info!("sockets are counted by netlink again");
                }
                Ok(f64::from(count))
            }
            Err(error) => {
                let error = error.to_string();
                if self.told.as_ref() != Some(&error) {
                    warn!(
                        "sockets cannot be counted by netlink, /proc/net/tcp is read, which costs more: {error}"
                    );
                    self.told = Some(error);
                }
                by_tables(port).map(f64::from)
            }
        }
    }

    fn by_netlink(&mut self, port: u16) -> io::Result<u32> {
        // One that failed is not used again.
        let mut diag = match self.diag.take() {
            Some(diag) => diag,
            None => SockDiag::open()?,
        };
        let count = diag.established(port)?;
        self.diag = Some(diag);
        Ok(count)
    }
}

fn by_tables(port: u16) -> io::Result<u32> {
    let mut count = 0;
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let of_table = |error| io::Error::other(format!("{table}: {error}"));
        match std::fs::File::open(table) {
            Ok(file) => count += in_table(io::BufReader::new(file), port).map_err(of_table)?,
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound && table.ends_with('6') => {}
            Err(error) => return Err(of_table(error)),
        }
    }
    Ok(count)
}

fn in_table(table: impl BufRead, port: u16) -> io::Result<u32> {
    let wanted = format!("{port:04X}");
    let mut count = 0;
    for line in table.lines().skip(1) {
        let line = line?;
        let mut words = line.split_ascii_whitespace().skip(1);
        let local = words.next().and_then(|address| address.rsplit(':').next());
        if local == Some(wanted.as_str()) && words.nth(1) == Some(ESTABLISHED) {
            count += 1;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

    use super::*;

    fn by_both(port: u16) -> [u32; 2] {
        let mut look = Look::default();
        // The second question goes over the same socket.
        let counts = [(); 2].map(|()| look.by_netlink(port).unwrap());
        assert_eq!(counts[0], counts[1]);
        [counts[1], by_tables(port).unwrap()]
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
        // More than the kernel tells at a time.
        let kept = pairs(&listener, v4, 400);
        assert_eq!(by_both(port), [400, 400]);
        drop(kept);
        assert_eq!(by_both(port), [0, 0]);
    }

    #[test]
    fn netlink_and_the_tables_count_ipv6_and_ipv4_in_it() {
        let Ok(listener) = TcpListener::bind("[::]:0") else {
            // A kernel without IPv6.
            return;
        };
        let port = listener.local_addr().unwrap().port();
        let mut kept = pairs(&listener, "::1".parse().unwrap(), 2);
        kept.extend(pairs(&listener, [127, 0, 0, 1].into(), 3));
        assert_eq!(by_both(port), [5, 5]);
    }
}
