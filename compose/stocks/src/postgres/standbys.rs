//! The master's side of synchronous replication: which standbys commits wait for.
//!
//! PostgreSQL waits for the standbys of `synchronous_standby_names` for as long as it takes, so a
//! dead one would stop every commit. `ANY 1 (…)` would not, but then a reader of any other standby
//! may miss what was acknowledged. So commits wait for *all* standbys that keep up, and this takes
//! a standby that does not off the list. It writes a heartbeat with the list into the database: a
//! standby sees in its own copy whether it is waited for, and stops to serve when it hears none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tracing::{info, warn};

use super::pulse::Pulse;
use super::session::{Failure, Open, Session, Settings};
use crate::metrics::Metrics;

pub struct Keeper {
    session: Session<()>,
    timeout: Duration,
    metrics: Arc<Metrics>,
    pulse: Arc<Pulse>,
    /// Last time at which each standby that commits wait for kept up; `None` before the first look.
    members: Option<BTreeMap<String, Instant>>,
    /// Position of the last heartbeat in the write-ahead log.
    beaten: String,
}

/// A standby as the primary sees it.
struct Seen {
    name: String,
    /// Whether it has applied the last heartbeat.
    is_level: bool,
    /// Whether commits already wait for it.
    in_force: bool,
}

impl Keeper {
    pub fn new(
        settings: Arc<Settings>,
        timeout: Duration,
        metrics: Arc<Metrics>,
        pulse: Arc<Pulse>,
    ) -> Result<Self> {
        Ok(Self {
            session: Session::new(settings)?,
            timeout,
            metrics,
            pulse,
            members: None,
            beaten: "0/0".to_owned(),
        })
    }

    /// Runs until the process ends.
    pub fn run(mut self) {
        let mut said = String::new();
        loop {
            match self.beat() {
                Ok(()) => {
                    self.pulse.set(Ok(Instant::now()));
                    said.clear();
                }
                Err(failure) => {
                    self.pulse.set(Err("the database does not answer"));
                    // The session has already logged a lost connection.
                    if let Failure::Refused(error) = failure {
                        let text = format!("{:#}", anyhow::Error::from(error));
                        if text != said {
                            warn!("cannot keep the standbys: {text}");
                            said = text;
                        }
                    }
                }
            }
            std::thread::sleep(self.timeout / 8);
        }
    }

    fn beat(&mut self) -> Result<(), Failure> {
        let beaten = self.beaten.clone();
        let now = Instant::now();
        let (listed, list, seen) = self
            .session
            .run(2, Duration::ZERO, async |open| look(open, &beaten).await)?;
        // Standbys that a former master waited for get their timeout too.
        let members = self
            .members
            .get_or_insert_with(|| listed.into_iter().map(|name| (name, now)).collect());
        for standby in seen.iter().filter(|standby| standby.is_level) {
            if members.insert(standby.name.clone(), now).is_none() {
                info!(standby = standby.name, "commits wait for it");
            }
        }
        let (timeout, metrics) = (self.timeout, &self.metrics);
        members.retain(|name, level| {
            let stays = now.duration_since(*level) <= timeout;
            if !stays {
                warn!(standby = name, "dropped: it does not keep up");
                metrics.slaves_dropped.inc();
            }
            stays
        });
        let wanted = names(members.keys());
        let told: Vec<String> = seen
            .into_iter()
            .filter(|standby| standby.in_force && members.contains_key(&standby.name))
            .map(|standby| standby.name)
            .collect();
        self.metrics.slaves.set(told.len() as i64);
        self.beaten = self.session.run(3, Duration::ZERO, async |open| {
            if wanted != list {
                let quoted = wanted.replace('\'', "''");
                let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{quoted}'");
                // ALTER SYSTEM must not run in a transaction, as two statements in one message would.
                open.client.batch_execute(&set).await?;
                open.client.batch_execute("SELECT pg_reload_conf()").await?;
            }
            let beat = "UPDATE replication_state SET beat = beat + 1, standbys = $1
                        RETURNING pg_current_wal_insert_lsn()::text";
            open.client.query_one(beat, &[&told]).await?.try_get(0)
        })?;
        Ok(())
    }
}

/// The standbys of the last heartbeat, the list in force, and how the standbys do.
async fn look(
    open: &mut Open<()>,
    beaten: &str,
) -> Result<(Vec<String>, String, Vec<Seen>), tokio_postgres::Error> {
    let told =
        "SELECT standbys, current_setting('synchronous_standby_names') FROM replication_state";
    let standbys = "SELECT application_name, coalesce(replay_lsn >= $1::text::pg_lsn, false),
                        sync_state IN ('sync', 'quorum')
                    FROM pg_stat_replication WHERE state = 'streaming' ORDER BY application_name";
    let told = open.client.query_one(told, &[]).await?;
    let found = open.client.query(standbys, &[&beaten]).await?;
    let seen: Result<Vec<Seen>, tokio_postgres::Error> = found
        .iter()
        .map(|row| {
            Ok(Seen {
                name: row.try_get(0)?,
                is_level: row.try_get(1)?,
                in_force: row.try_get(2)?,
            })
        })
        .collect();
    Ok((told.try_get(0)?, told.try_get(1)?, seen?))
}

/// Value of `synchronous_standby_names` for all members.
fn names<'a>(members: impl ExactSizeIterator<Item = &'a String>) -> String {
    let count = members.len();
    if count == 0 {
        return String::new();
    }
    let quoted: Vec<String> = members
        .map(|name| format!("\"{}\"", name.replace('"', "\"\"")))
        .collect();
    format!("FIRST {count} ({})", quoted.join(", "))
}
