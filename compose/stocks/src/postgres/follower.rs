//! The slave's side: whether its standby shows all that the master has acknowledged.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::pulse::Pulse;
use super::session::{Failure, Session, Settings};
use crate::metrics::Metrics;

pub struct Follower {
    session: Session<()>,
    name: String,
    timeout: Duration,
    metrics: Arc<Metrics>,
    pulse: Arc<Pulse>,
    beat: Option<i64>,
    /// When the last new heartbeat was seen, and since when they came without a gap.
    heard: Instant,
    unbroken: Instant,
}

impl Follower {
    pub fn new(
        settings: Arc<Settings>,
        name: String,
        timeout: Duration,
        metrics: Arc<Metrics>,
        pulse: Arc<Pulse>,
    ) -> Result<Self> {
        let now = Instant::now();
        Ok(Self {
            session: Session::new(settings)?,
            name,
            timeout,
            metrics,
            pulse,
            beat: None,
            heard: now,
            unbroken: now,
        })
    }

    /// Runs until the process ends.
    pub fn run(mut self) {
        loop {
            let state = match self.look() {
                Ok(is_waited_for) => self.judge(is_waited_for),
                Err(_) => Err("the database does not answer"),
            };
            self.pulse.set(state);
            std::thread::sleep(self.timeout / 8);
        }
    }

    /// A silence of half the timeout ends the service: the master gives the standby up after the
    /// whole. After one, heartbeats must have come for as long again: those that a standby finds
    /// in its socket when it wakes are old, and may be from before it was given up.
    fn judge(&self, is_waited_for: bool) -> Result<Instant, &'static str> {
        if self.heard.elapsed() > self.timeout / 2 {
            Err("the primary is silent")
        } else if !is_waited_for {
            Err("the primary does not wait for this standby")
        } else if self.unbroken.elapsed() < self.timeout / 2 {
            Err("the standby has caught up only just now")
        } else {
            Ok(self.heard)
        }
    }

    fn look(&mut self) -> Result<bool, Failure> {
        let name = &self.name;
        let (beat, is_waited_for, sequence): (i64, bool, i64) =
            self.session.run(1, Duration::ZERO, async |open| {
                let row = open
                    .client
                    .query_one(
                        "SELECT beat, $1 = ANY (standbys), (SELECT coalesce(max(id), 0) FROM orders)
                         FROM replication_state",
                        &[name],
                    )
                    .await?;
                Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
            })?;
        let now = Instant::now();
        self.metrics.sequence.set(sequence);
        if self.beat != Some(beat) {
            let is_gap = now.duration_since(self.heard) > self.timeout / 2;
            if is_gap || self.beat.is_none() {
                self.unbroken = now;
            }
            self.beat = Some(beat);
            self.heard = now;
        }
        if !is_waited_for {
            self.unbroken = now;
        }
        Ok(is_waited_for)
    }
}
