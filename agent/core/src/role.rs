//! Role of a replicated database's node: the primary takes writes, and any node takes reads while its data are not
//! older than promised.
//!
//! Ages are upper bounds, so that an unknown age never counts as fresh. See docs/failover.md.

use serde::{Deserialize, Serialize};

use crate::Seconds;

/// Consecutive looks with a low lag before a stale standby counts as fresh again.
const FRESH_LOOKS: u32 = 3;
/// Maximum lag in these looks, as a share of the limit.
const FRESH_SHARE: f64 = 0.5;

/// Role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Takes writes.
    Primary,
    /// Replicates the primary.
    Standby,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 2] = [Role::Primary, Role::Standby];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Primary => "primary",
            Role::Standby => "standby",
        }
    }
}

/// Limits on the age of data that a node may serve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoleSettings {
    /// Maximum lag of reads behind the primary.
    pub max_lag: Seconds,
    /// Maximum lag of a standby that was fresh when its primary disappeared.
    pub without_primary: Seconds,
    /// Time for which proxies may act on an outdated answer: until the next look has reached them.
    pub notice: Seconds,
    /// Time for which a primary that does not respond still counts as the primary.
    pub hold: Seconds,
}

/// State that a node reports in one look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Look {
    /// The node is the primary.
    Primary,
    /// The node is a standby.
    Standby {
        /// Whether it is connected to the primary's stream of writes.
        is_fed: bool,
        /// Age of the primary's last message, if the standby has replayed everything before it.
        level_age: Option<Seconds>,
        /// Age of the newest replayed transaction.
        shown_age: Option<Seconds>,
    },
}

/// Result of a look, and its validity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Standing {
    /// Reported role.
    pub role: Role,
    /// Maximum lag behind the primary at the time of the look; `None` if unknown.
    pub lag: Option<Seconds>,
    /// Lag limit that applies to it now.
    pub limit: Seconds,
    /// Whether it is the primary, or connected to the primary's stream.
    pub is_fed: bool,
    /// Time after the look for which it takes writes.
    #[serde(skip)]
    writes_for: Seconds,
    /// Time after the look for which it takes reads.
    #[serde(skip)]
    reads_for: Seconds,
}

impl Standing {
    /// Whether it takes writes at this time after the look.
    pub fn takes_writes(&self, age: Seconds) -> bool {
        age < self.writes_for
    }

    /// Whether it takes reads at this time after the look.
    pub fn takes_reads(&self, age: Seconds) -> bool {
        age < self.reads_for
    }
}

/// Decides on one node's role from its looks.
#[derive(Clone, Debug)]
pub struct RoleJudge {
    settings: RoleSettings,
    /// Last time at which the node had all of the primary's writes.
    level_at: Option<Seconds>,
    is_fresh: bool,
    /// Consecutive looks with a low lag.
    good: u32,
    has_looked: bool,
}

impl RoleJudge {
    /// Creates a judge without any look.
    pub fn new(settings: RoleSettings) -> Self {
        RoleJudge {
            settings,
            level_at: None,
            is_fresh: false,
            good: 0,
            has_looked: false,
        }
    }

    /// Processes a look at the time `now` of a monotonic clock.
    pub fn look(&mut self, look: Look, now: Seconds) -> Standing {
        let standing = match look {
            Look::Primary => self.primary(now),
            Look::Standby {
                is_fed,
                level_age,
                shown_age,
            } => self.standby(is_fed, level_age, shown_age, now),
        };
        self.has_looked = true;
        standing
    }

    fn primary(&mut self, now: Seconds) -> Standing {
        // A primary has all writes, until it follows another one.
        self.level_at = Some(now);
        self.is_fresh = true;
        Standing {
            role: Role::Primary,
            lag: Some(Seconds(0.0)),
            limit: self.settings.max_lag,
            is_fed: true,
            writes_for: self.settings.hold,
            reads_for: self.settings.hold,
        }
    }

    fn standby(
        &mut self,
        is_fed: bool,
        level_age: Option<Seconds>,
        shown_age: Option<Seconds>,
        now: Seconds,
    ) -> Standing {
        let sound = |age: Option<Seconds>| age.filter(|age| age.get().is_finite());
        // Clocks differ a little, so the primary's message may seem to come from the future.
        let sound = |age| sound(age).map(|age| Seconds(age.get().max(0.0)));
        if let Some(age) = sound(level_age).filter(|_| is_fed) {
            let at = Seconds(now.get() - age.get());
            let is_later = self.level_at.is_none_or(|known| known < at);
            self.level_at = is_later.then_some(at).or(self.level_at);
        }
        let since_level = self
            .level_at
            .map(|at| Seconds((now.get() - at.get()).max(0.0)));
        let lag = match (since_level, sound(shown_age)) {
            (Some(level), Some(shown)) => Some(if level < shown { level } else { shown }),
            (known, None) | (None, known) => known,
        };
        let settings = &self.settings;
        let limit = if !is_fed && self.is_fresh && settings.max_lag < settings.without_primary {
            settings.without_primary
        } else {
            settings.max_lag
        };
        // Less the time until the next look has reached the proxies.
        let left = lag.map_or(0.0, |lag| limit.get() - settings.notice.get() - lag.get());
        self.note_fresh(is_fed, lag, left > 0.0);
        Standing {
            role: Role::Standby,
            lag,
            limit,
            is_fed,
            writes_for: Seconds(0.0),
            reads_for: Seconds(if self.is_fresh { left } else { 0.0 }),
        }
    }

    fn note_fresh(&mut self, is_fed: bool, lag: Option<Seconds>, within: bool) {
        if self.is_fresh {
            self.is_fresh = within;
            self.good = 0;
            return;
        }
        let wanted = FRESH_SHARE * self.settings.max_lag.get();
        let is_good = is_fed && within && lag.is_some_and(|lag| lag.get() <= wanted);
        self.good = if is_good { self.good + 1 } else { 0 };
        // The first look cannot be flapping.
        self.is_fresh = self.good >= FRESH_LOOKS || (is_good && !self.has_looked);
    }
}
