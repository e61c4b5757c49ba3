//! What this node's database is among its replicas, and what it may be asked therefore.

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
pub use settings::{REFERENCE, RoleConfig, RoleSection, role};

/// What Patroni answers at most, and more.
const MAX_BYTES: usize = 64 << 10;

/// What the outputs tell.
#[derive(Clone, Debug, Serialize)]
pub struct RoleState {
    /// By the last look that was answered.
    pub standing: Option<Standing>,
    /// Whether it was to take writes, and reads, when this was published.
    pub takes_writes: bool,
    /// See `takes_writes`.
    pub takes_reads: bool,
    /// Why it does not take what its role allows, in a few words.
    pub detail: Option<String>,
    /// When it was looked at.
    #[serde(skip)]
    looked: Instant,
}

impl RoleState {
    /// Whether it takes writes at this moment.
    pub fn may_write(&self, now: Instant) -> bool {
        let age = Seconds::from(now.saturating_duration_since(self.looked));
        self.standing.is_some_and(|it| it.takes_writes(age))
    }

    /// The same for reads.
    pub fn may_read(&self, now: Instant) -> bool {
        let age = Seconds::from(now.saturating_duration_since(self.looked));
        self.standing.is_some_and(|it| it.takes_reads(age))
    }
}

/// Looks once a period.
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
    /// Why a primary is not taken for one.
    lock_error: Option<String>,
}

impl RoleWatch {
    /// Nothing is known yet.
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

    /// Whether it was made for this.
    pub fn is_for(&self, config: &RoleConfig) -> bool {
        self.config == *config
    }

    /// One look; without an answer the last one stands, and gets older.
    pub async fn look(&mut self) -> Result<(), SourceError> {
        // What is true at the end of a look was true at its start, or the look tells of a later change.
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
            info!(service = %self.service, role = standing.role.as_str(), "another role");
        }
        Ok(())
    }

    /// A primary without the lock is a standby that nobody feeds.
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
        // Once a cause, not once a period.
        if self.error.as_ref() != Some(&message) {
            warn!(service = %self.service, kind = error.kind, "the role is not known, the last one stands for a while: {message}");
        }
        self.error = Some(message);
    }

    /// What is to be told now.
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
