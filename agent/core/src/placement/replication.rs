//! Guarantees of a keeper whose Redis may be replaced by a replica.

use std::time::Duration;

/// Time beyond its lease before a dispatcher that holds is considered gone.
const MARGIN: Duration = Duration::from_secs(1);
/// Resolution of a replica's lag: Redis counts it in whole seconds, and checks it once a second.
const LAG_GRAIN: Duration = Duration::from_secs(2);

/// Replication state of a Redis server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replication {
    /// Whether a replica may replace, or has replaced, this server.
    pub is_replaceable: bool,
    /// Connected replicas.
    pub replicas: u64,
    /// `min-replicas-to-write`: minimum replicas that keep up, without which the server takes no writes.
    pub min_replicas: u64,
    /// `min-replicas-max-lag`: maximum lag of a replica that keeps up, in seconds; 0 for no limit.
    pub max_lag: u64,
}

/// Reason for which a replaced server would not stop accepting the reports of dispatchers cut off with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHold {
    /// The server continues to take writes without its replicas, or with a minority of them.
    Replicas {
        /// `min-replicas-to-write`.
        have: u64,
        /// Minimum value.
        need: u64,
        /// Connected replicas.
        replicas: u64,
    },
    /// The server continues to take writes for too long.
    Lag {
        /// `min-replicas-max-lag`, s.
        have: u64,
        /// Lease of the dispatchers.
        lease: Duration,
    },
}

impl std::fmt::Display for NoHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "placement.when_lost = \"hold\" needs a Redis that takes no writes once a replica is put in its place: "
        )?;
        match self {
            NoHold::Replicas {
                have,
                need,
                replicas,
            } => write!(
                f,
                "min-replicas-to-write is {have}, must be at least {need} ({replicas} replicas are connected)"
            ),
            NoHold::Lag { have, lease } => write!(
                f,
                "min-replicas-max-lag is {have} s, must be at least 1 s and below placement.lease, {} s",
                lease.as_secs_f64()
            ),
        }
    }
}

impl std::error::Error for NoHold {}

impl Replication {
    /// Maximum time beyond its lease that a dispatcher that holds may admit requests after the server was replaced: the
    /// former server may have accepted its reports for so long.
    ///
    /// The server and the replicas that it waits for must be a majority, as must those that replace it; so the server
    /// stops taking writes when it is cut off.
    pub fn hold_margin(&self, lease: Duration) -> Result<Duration, NoHold> {
        if !self.is_replaceable {
            return Ok(MARGIN);
        }
        let need = self.replicas.div_ceil(2).max(1);
        if self.min_replicas < need {
            return Err(NoHold::Replicas {
                have: self.min_replicas,
                need,
                replicas: self.replicas,
            });
        }
        let lag = Duration::from_secs(self.max_lag);
        if self.max_lag == 0 || lag >= lease {
            return Err(NoHold::Lag {
                have: self.max_lag,
                lease,
            });
        }
        Ok(MARGIN + lag + LAG_GRAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_margin_covers_replica_lag_and_requires_a_majority() {
        let lease = Duration::from_secs(10);
        let alone = Replication {
            is_replaceable: false,
            replicas: 0,
            min_replicas: 0,
            max_lag: 10,
        };
        assert_eq!(alone.hold_margin(lease), Ok(Duration::from_secs(1)));
        let of = |replicas, min_replicas, max_lag| {
            let replication = Replication {
                is_replaceable: true,
                replicas,
                min_replicas,
                max_lag,
            };
            replication.hold_margin(lease)
        };
        assert_eq!(of(1, 1, 3), Ok(Duration::from_secs(6)));
        assert_eq!(of(2, 1, 3), Ok(Duration::from_secs(6)));
        for (replicas, min_replicas, need) in [(0, 0, 1), (1, 0, 1), (3, 1, 2), (4, 1, 2)] {
            let have = min_replicas;
            let refused = Err(NoHold::Replicas {
                have,
                need,
                replicas,
            });
            assert_eq!(of(replicas, have, 3), refused);
        }
        for have in [0, 10] {
            assert_eq!(of(1, 1, have), Err(NoHold::Lag { have, lease }));
        }
    }
}
