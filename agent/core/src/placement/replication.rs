//! What a Redis that may be replaced by its replica lets a keeper promise.

use std::time::Duration;

/// On top of its lease, before a dispatcher that holds is taken for gone.
const MARGIN: Duration = Duration::from_secs(1);
/// Redis counts a replica's lag in whole seconds, and looks at it once a second.
const LAG_GRAIN: Duration = Duration::from_secs(2);

/// How a Redis server and its replicas are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replication {
    /// A replica may be, or has been, put in this server's place.
    pub is_replaceable: bool,
    /// Replicas that are connected.
    pub replicas: u64,
    /// Below so many replicas that keep up it takes no writes: `min-replicas-to-write`.
    pub min_replicas: u64,
    /// A replica keeps up that was heard so many seconds ago: `min-replicas-max-lag`; 0: all do.
    pub max_lag: u64,
}

/// Why a dispatcher that is cut off together with a server that was replaced would not hear of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHold {
    /// It goes on to take writes without its replicas, or with a minority of them.
    Replicas {
        /// `min-replicas-to-write`.
        have: u64,
        /// At least.
        need: u64,
        /// Connected.
        replicas: u64,
    },
    /// It goes on to take writes for too long.
    Lag {
        /// `min-replicas-max-lag`, s.
        have: u64,
        /// The dispatchers' lease.
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
    /// For how long after its lease a dispatcher that holds may go on to let requests in, counted from when the server
    /// was replaced: for so long the former one may have taken its reports.
    ///
    /// The server and those that it waits for must be more than half of all, as are those that put another one in its
    /// place: so it knows that it is cut off.
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
    fn who_may_be_cut_off_with_a_former_server_gets_longer_and_is_promised_nothing_where_it_goes_on()
     {
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
