//! Role of this node's database, primary or standby, and whether it takes writes and reads.

mod metrics;
mod settings;

use std::time::Instant;

use plimsoll_core::{
    Seconds,
    role::{Look, RoleJudge, Standing},
};
use plimsoll_net::HttpUrl;
use serde::Serialize;
use tracing::{info, warn};

use crate::{jobs::Database, source_error::SourceError};

pub use metrics::RoleMetrics;
pub use settings::{RoleConfig, RoleSection, role};

/// Maximum response to `lock_url`. Patroni's is smaller.
const MAX_BYTES: usize = 64 << 10;

/// Role of the database as published to the outputs.
#[derive(Clone, Debug, Serialize)]
pub struct RoleState {
    /// Result of the last successful check; `None` before the first.
    pub standing: Option<Standing>,
    /// True if it took writes when this was published. Outdated afterwards: see [`RoleState::may_write`].
    pub takes_writes: bool,
    /// True if it took reads when this was published. Outdated afterwards: see [`RoleState::may_read`].
    pub takes_reads: bool,
    /// Short reason why it takes less than its role allows.
    pub detail: Option<String>,
    /// Start of the last successful check.
    #[serde(skip)]
    looked: Instant,
}

impl RoleState {
    /// True if it takes writes at `now`, given the age of the last check.
    pub fn may_write(&self, now: Instant) -> bool {
        let age = Seconds::from(now.saturating_duration_since(self.looked));
        self.standing.is_some_and(|it| it.takes_writes(age))
    }

    /// True if it takes reads at `now`, given the age of the last check.
    pub fn may_read(&self, now: Instant) -> bool {
        let age = Seconds::from(now.saturating_duration_since(self.looked));
        self.standing.is_some_and(|it| it.takes_reads(age))
    }
}

/// Checks the role once a period.
#[derive(Debug)]
pub struct RoleWatch {
    service: String,
    config: RoleConfig,
    database: Database,
    judge: RoleJudge,
    began: Instant,
    looked: Instant,
    standing: Option<Standing>,
    error: Option<String>,
    /// Why the database is treated as a standby although it is a primary.
    lock_error: Option<String>,
}

impl RoleWatch {
    /// State before the first check: neither reads nor writes.
    pub fn new(service: &str, config: RoleConfig) -> Self {
        let now = Instant::now();
        RoleWatch {
            service: service.to_owned(),
            database: Database::new(config.database.clone()),
            judge: RoleJudge::new(config.settings),
            config,
            began: now,
            looked: now,
            standing: None,
            error: None,
            lock_error: None,
        }
    }

    /// True if it was created with this configuration.
    pub fn is_for(&self, config: &RoleConfig) -> bool {
        self.config == *config
    }

    /// Checks the role once. On failure the result of the last successful check stays in force until it expires.
    pub async fn look(&mut self) -> Result<(), SourceError> {
        // The age of a result counts from the start of the check, the earliest time at which it was true.
        let now = Instant::now();
        let look = match self.database.role().await {
            Ok(look) => look,
            Err(error) => {
                self.failed(&error);
                return Err(error);
            }
        };
        if self.error.take().is_some() {
            info!(service = %self.service, "the role is known again");
        }
        let look = self.locked(look).await;
        let at = Seconds::from(now.saturating_duration_since(self.began));
        let standing = self.judge.look(look, at);
        let was = self.standing.replace(standing);
        self.looked = now;
        if was.is_none_or(|was| was.role != standing.role) {
            info!(service = %self.service, role = standing.role.as_str(), "the database has a new role");
        }
        Ok(())
    }

    /// Treats a primary that does not hold the leader's lock as a standby without a replication stream.
    async fn locked(&mut self, look: Look) -> Look {
        let (Look::Primary, Some(url)) = (look, &self.config.lock) else {
            self.lock_error = None;
            return look;
        };
        let problem = match plimsoll_net::get(url, self.config.timeout, MAX_BYTES).await {
            Ok((200, _)) => None,
            Ok((status, _)) => Some(without_lock(url, &format!("status {status}"))),
            Err(error) => Some(without_lock(url, &error.message)),
        };
        if problem.is_some() && self.lock_error != problem {
            let problem = problem.as_deref().unwrap_or_default();
            warn!(service = %self.service, "no writes: {problem}");
        }
        self.lock_error = problem;
        match self.lock_error {
            None => look,
            Some(_) => Look::Standby {
                is_fed: false,
                level_age: None,
                shown_age: None,
            },
        }
    }

    fn failed(&mut self, error: &SourceError) {
        let message = error.to_string();
        // Log once per cause, not once per period.
        if self.error.as_ref() != Some(&message) {
            warn!(service = %self.service, kind = error.kind, "the role is unavailable, the last known one holds until it expires: {message}");
        }
        self.error = Some(message);
    }

    /// Role and permissions as of `now`.
    pub fn state(&self, now: Instant) -> RoleState {
        let mut state = RoleState {
            standing: self.standing,
            takes_writes: false,
            takes_reads: false,
            detail: None,
            looked: self.looked,
        };
        state.takes_writes = state.may_write(now);
        state.takes_reads = state.may_read(now);
        state.detail = self.detail(&state, now);
        state
    }

    fn detail(&self, state: &RoleState, now: Instant) -> Option<String> {
        let behind = || {
            let standing = self.standing?;
            let age = now.saturating_duration_since(self.looked);
            let limit = standing.limit.get();
            let lag = standing.lag.map(|lag| lag.get() + age.as_secs_f64());
            Some(match lag {
                Some(lag) => format!("standby, lag {lag:.1}s of {limit}s"),
                None => format!("standby, lag unknown of {limit}s"),
            })
        };
        let why = self.lock_error.clone().or_else(|| self.error.clone());
        let why = why.or_else(|| (!state.takes_reads).then(behind).flatten());
        why.or_else(|| (self.standing.is_none()).then(|| "role unknown".to_owned()))
    }
}

fn without_lock(url: &HttpUrl, problem: &str) -> String {
    format!("primary without the lock, {url}: {problem}")
}
