//! Established TCP connections to a local port, from `/proc/net/tcp` and `tcp6`.

use std::{
    io::{self, BufRead},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::task::JoinHandle;

use super::JobCount;
use crate::sources::SourceError;

/// Linux' number for ESTABLISHED.
const ESTABLISHED: &str = "01";

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
            let mut ticks = tokio::time::interval(every);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                // A long table takes milliseconds to read.
                let count = match tokio::task::spawn_blocking(move || established(port)).await {
                    Ok(count) => count,
                    Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
                    // The runtime is at its end.
                    Err(_) => return,
                };
                let mut seen = into.lock().unwrap_or_else(PoisonError::into_inner);
                *seen = match (count, &*seen) {
                    (Ok(now), Ok(before)) => {
                        let peak = before.peak.map_or(now, |peak| peak.max(now));
                        Ok(JobCount {
                            now: Some(now),
                            peak: Some(peak),
                        })
                    }
                    (Ok(now), Err(_)) => Ok(JobCount {
                        now: Some(now),
                        peak: Some(now),
                    }),
                    (Err(error), _) => Err(error.to_string()),
                };
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
            return Err(SourceError::new("jobs", "the look at /proc/net/tcp ended"));
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *seen {
            Ok(count) => {
                let taken = *count;
                count.peak = None;
                Ok(taken)
            }
            Err(error) => Err(SourceError::new("jobs", format!("/proc/net/tcp: {error}"))),
        }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

fn established(port: u16) -> io::Result<f64> {
    let mut count = 0;
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match std::fs::File::open(table) {
            Ok(file) => count += in_table(io::BufReader::new(file), port)?,
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound && table.ends_with('6') => {}
            Err(error) => return Err(error),
        }
    }
    Ok(f64::from(count))
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
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn counts_real_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(
            established(address.port()).unwrap(),
            0.0,
            "listening is not a job"
        );
        let clients: Vec<_> = (0..3)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let accepted: Vec<_> = (0..3).map(|_| listener.accept().unwrap()).collect();
        assert_eq!(established(address.port()).unwrap(), 3.0);
        drop((clients, accepted));
    }
}
