//! What a replicated database's node may be asked: writes as the primary, reads while what it shows is not
//! older than was promised.
//!
//! Ages are upper bounds, so that not knowing is never taken for being fresh. See docs/failover.md.

use serde::{Deserialize, Serialize};

use crate::Seconds;

/// Looks in a row that must find half the limit or less before a stale standby is fresh again.
const FRESH_LOOKS: u32 = 3;
/// See [`FRESH_LOOKS`].
const FRESH_SHARE: f64 = 0.5;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Takes writes.
    Primary,
    /// Follows the primary.
    Standby,
}

impl Role {
    /// Both of them.
    pub const ALL: [Role; 2] = [Role::Primary, Role::Standby];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Primary => "primary",
            Role::Standby => "standby",
        }
    }
}

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoleSettings {
    /// The most that reads may be behind the primary.
    pub max_lag: Seconds,
    /// The same where the primary has left a standby that was fresh.
    pub without_primary: Seconds,
    /// How long an answer goes on after it was true: the time between two looks.
    pub notice: Seconds,
    /// How long a primary that does not answer is still taken for one.
    pub hold: Seconds,
}

/// What a node says of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Look {
    /// It is the primary.
    Primary,
    /// It is a standby.
    Standby {
        /// Whether it gets what the primary writes.
        is_fed: bool,
        /// Age of the primary's last word, where all that came before it is shown.
        level_age: Option<Seconds>,
        /// Age of the newest transaction that is shown.
        shown_age: Option<Seconds>,
    },
}

/// What follows from a look, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Standing {
    /// What the node said.
    pub role: Role,
    /// The most that it is behind, as of the look; `None` where nothing tells.
    pub lag: Option<Seconds>,
    /// The limit that holds for it now.
    pub limit: Seconds,
    /// Whether it is at the primary's end of the wire, or feeds on it.
    pub is_fed: bool,
    /// It may be asked to write for so long after the look.
    #[serde(skip)]
    writes_for: Seconds,
    /// It may be asked to read for so long after the look.
    #[serde(skip)]
    reads_for: Seconds,
}

impl Standing {
    /// Whether it takes writes, so long after the look.
    pub fn takes_writes(&self, age: Seconds) -> bool {
        age < self.writes_for
    }

    /// Whether it may answer reads, so long after the look.
    pub fn takes_reads(&self, age: Seconds) -> bool {
        age < self.reads_for
    }
}

/// Judges one node by its looks.
#[derive(Clone, Debug)]
pub struct RoleJudge {
    settings: RoleSettings,
    /// When what is shown was last all there was.
    level_at: Option<Seconds>,
    is_fresh: bool,
    /// Looks in a row that would do.
    good: u32,
    has_looked: bool,
}

impl RoleJudge {
    /// Nothing is known.
    pub fn new(settings: RoleSettings) -> Self {
        RoleJudge {
            settings,
            level_at: None,
            is_fresh: false,
            good: 0,
            has_looked: false,
        }
    }

    /// Takes a look at this moment of a clock that never goes back.
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
        // What it has is all there is, until it follows another.
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
        // Clocks differ a little: the primary's word may seem to come from later.
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
        // Before the next look, and for what proxies take to hear of it.
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
        // At the start there is nothing to flap from.
        self.is_fresh = self.good >= FRESH_LOOKS || (is_good && !self.has_looked);
    }
}
