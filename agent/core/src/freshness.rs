//! Adaptive update periods: under overload, temporal data that are updated more often than they are read are updated
//! only as often as they are read (Chronos, section 2.2: FC-CU).
//!
//! An *item* is a datum whose value changes over time, such as the price of a stock. Its access update ratio (eq. 1) is
//! accesses / updates; below 1 it is *cold*. While the node is full, cold items get the period `min(p / AUR, P_max)`
//! (eq. 2), the coldest first; in each period as many as compensate for the reduction of the bound (step 3 of section
//! 2.1), and for at least a twentieth of the work. Hot items keep theirs. The paper does not say how periods are
//! restored; here, in each period in which the node is no longer full, a share of them is.

use std::collections::BTreeMap;

use crate::{Cost, Decision, MAX_NAME_BYTES, Reason, Seconds, placement::check_name};

/// Maximum items that are watched. Beyond it the coldest are dropped, and are updated at their own periods.
pub const MAX_ITEMS: usize = 100_000;
/// Minimum and maximum update period of an item.
pub const PERIODS: (Seconds, Seconds) = (Seconds(1e-3), Seconds(86_400.0));

/// Time constant of the access counts, in seconds: older accesses count 1/e or less.
const MEMORY: f64 = 10.0;
/// Time that an item is watched before it may count as cold, in seconds.
const WATCHED: f64 = 3.0;
/// Minimum factor of a change of a period.
const MIN_FACTOR: f64 = 1.05;
/// Divisor of `MAX_ITEMS`: number of items dropped at once if there is no room.
const FORGOTTEN_PART: usize = 16;
/// Light periods before the first items are restored: initially, and at most after restoring too early.
const CALM: (u32, u32) = (3, 10);
/// Minimum share of a full node's work that updates make room for per period, even if the bound was not lowered:
/// refused requests are not counted here.
const FULL: f64 = 0.05;
/// Backlog, as a share of the bound, above which the bound counts as filled.
const FILLED: f64 = 0.8;
/// Backlog, as a share of the bound, up to which the load is light if few requests finished.
const FEW: f64 = 0.5;
/// Divisor of the items to restore: number restored in each period.
const BACK_PART: usize = 8;
/// Maximum length of a step, in seconds.
const MAX_PASSED: f64 = 60.0;

/// Settings of the update periods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FreshnessSettings {
    /// `P_max`: maximum adapted period; items with a longer period of their own keep it.
    pub longest: Seconds,
    /// Cost of an update on the node, in items.
    pub update_cost: Cost,
}

/// Load of the node in the last period, as far as updates are concerned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pressure {
    /// The node was full; updates amounting to this share of its work are to be left out.
    Over(f64),
    /// Unknown, or nothing has to change.
    Held,
    /// The node could have taken more work.
    Light,
}

impl Pressure {
    /// Pressure that follows from a controller's decision.
    pub fn of(decision: &Decision) -> Self {
        let lowered = 1.0 - decision.bound.get() / decision.previous.get();
        match decision.reason {
            Reason::UnderSla
            | Reason::OverSla
            | Reason::Rising
            | Reason::Falling
            | Reason::LateSignal
            | Reason::OverBound
            | Reason::Stalled
            | Reason::Mpl => Pressure::Over(lowered.max(FULL)),
            // The load line's reduction depends on the queue, and not on the work of updates.
            Reason::Standing | Reason::Starved | Reason::BlindSource | Reason::SourceLate => {
                Pressure::Over(FULL)
            }
            Reason::Burst if decision.recent_peak.get() > FILLED * decision.bound.get() => {
                Pressure::Over(FULL)
            }
            // The bound cannot fall further.
            Reason::AtMin => Pressure::Over(1.0),
            Reason::Open
            | Reason::Burst
            | Reason::LightLoad
            | Reason::Recovering
            | Reason::Unused
            | Reason::Empty
            | Reason::IdleDrift => Pressure::Light,
            // Few requests finished because few arrived, not because they take long.
            Reason::FewSamples if decision.recent_peak.get() <= FEW * decision.bound.get() => {
                Pressure::Light
            }
            _ => Pressure::Held,
        }
    }
}

/// Reason for which an item is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemError {
    /// The name is not 1 to [`MAX_NAME_BYTES`] visible ASCII characters, as for object sets.
    Name,
    /// The period is not within [`PERIODS`].
    Period,
}

impl std::fmt::Display for ItemError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ItemError::Name => write!(
                f,
                "the name of an item must be 1 to {MAX_NAME_BYTES} visible ASCII characters"
            ),
            ItemError::Period => write!(
                f,
                "the update period of an item must be within {} s and {} s",
                PERIODS.0.get(),
                PERIODS.1.get()
            ),
        }
    }
}

impl std::error::Error for ItemError {}

#[derive(Clone, Copy, Debug)]
struct Item {
    /// Declared period, in seconds; `period` is the one in force.
    own: f64,
    period: f64,
    /// Accesses since the last step.
    accesses: f64,
    /// Decayed sum of the accesses; `watched` is that of the time, in seconds.
    counted: f64,
    watched: f64,
}

impl Item {
    /// Access rate, per second.
    fn rate(&self) -> f64 {
        if self.watched > 0.0 {
            self.counted / self.watched
        } else {
            0.0
        }
    }

    /// Period by eq. 2, in seconds; `p / AUR` is the mean time between two accesses.
    fn wanted(&self, longest: f64) -> f64 {
        (1.0 / self.rate()).min(longest).max(self.own)
    }
}

/// Update periods of one node's items.
#[derive(Clone, Debug)]
pub struct UpdatePeriods {
    settings: FreshnessSettings,
    items: BTreeMap<Box<str>, Item>,
    /// Whether an item was declared without room for it since the last step.
    crowded: bool,
    forgotten: u64,
    relaxed: usize,
    calm: u32,
    patience: u32,
    /// Number of items restored in each period, while restoring.
    back: Option<usize>,
    version: u64,
}

impl UpdatePeriods {
    /// Creates an empty set of items.
    pub fn new(settings: FreshnessSettings) -> Self {
        UpdatePeriods {
            settings,
            items: BTreeMap::new(),
            crowded: false,
            forgotten: 0,
            relaxed: 0,
            calm: 0,
            patience: CALM.0,
            back: None,
            version: 0,
        }
    }

    /// Declares an item that is normally updated every `period`; a known item's declared period changes to it. If there
    /// is no room for another item, it is not watched for now and keeps its own period.
    pub fn declare(&mut self, name: &str, period: Seconds) -> Result<(), ItemError> {
        check_name(name).map_err(|_| ItemError::Name)?;
        let own = period.get();
        if !(PERIODS.0.get()..=PERIODS.1.get()).contains(&own) {
            return Err(ItemError::Period);
        }
        if let Some(item) = self.items.get_mut(name) {
            if item.own != own {
                self.relaxed -= usize::from(item.period > item.own);
                item.own = own;
                item.period = item.period.max(own);
                self.relaxed += usize::from(item.period > item.own);
                self.version += 1;
            }
            return Ok(());
        }
        if self.items.len() >= MAX_ITEMS {
            self.crowded = true;
            return Ok(());
        }
        let item = Item {
            own,
            period: own,
            accesses: 0.0,
            counted: 0.0,
            watched: 0.0,
        };
        self.items.insert(name.into(), item);
        Ok(())
    }

    /// Counts accesses of an item. Undeclared names are ignored.
    pub fn accessed(&mut self, name: &str, times: f64) {
        if let Some(item) = self.items.get_mut(name)
            && times.is_finite()
            && times > 0.0
        {
            item.accesses += times;
        }
    }

    /// Removes the items for which `stays` returns false.
    pub fn retain(&mut self, stays: impl Fn(&str) -> bool) {
        let (relaxed, version) = (&mut self.relaxed, &mut self.version);
        self.items.retain(|name, item| {
            let kept = stays(name);
            if !kept && item.period > item.own {
                *relaxed -= 1;
                *version += 1;
            }
            kept
        });
    }

    /// Ends a period of `passed` in which the node did `work` per second. Returns whether an update period has changed.
    pub fn step(&mut self, passed: Seconds, pressure: Pressure, work: Cost) -> bool {
        let passed = passed.get();
        if !(passed.is_finite() && passed > 0.0) {
            return false;
        }
        let version = self.version;
        self.count(passed.min(MAX_PASSED));
        self.forget();
        match pressure {
            Pressure::Over(part) => {
                if self.back.take().is_some() {
                    // Items were restored too early.
                    self.patience = (2 * self.patience).min(CALM.1);
                }
                self.calm = 0;
                self.relax(part * work.get());
            }
            Pressure::Held => {}
            Pressure::Light => {
                self.calm = self.calm.saturating_add(1);
                if self.calm >= self.patience {
                    self.restore();
                }
            }
        }
        self.version != version
    }

    /// Period of an item in force; `None` for an unknown item, which has its own.
    pub fn period(&self, name: &str) -> Option<Seconds> {
        self.items.get(name).map(|item| Seconds(item.period))
    }

    /// Items with lengthened periods, by name.
    pub fn relaxed(&self) -> impl Iterator<Item = (&str, Seconds)> {
        self.items
            .iter()
            .filter(|(_, item)| item.period > item.own)
            .map(|(name, item)| (&**name, Seconds(item.period)))
    }

    /// Number of items with lengthened periods.
    pub fn relaxed_count(&self) -> usize {
        self.relaxed
    }

    /// Longest period in force; `None` without items.
    pub fn longest_period(&self) -> Option<Seconds> {
        let periods = self.items.values().map(|item| item.period);
        periods.reduce(f64::max).map(Seconds)
    }

    /// Number of watched items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether no item is watched.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Cumulative number of items dropped for lack of room.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Version, which increases with every change of a period.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Updates/s of all items: at the periods in force, and at their own periods.
    pub fn updates_per_second(&self) -> (f64, f64) {
        let items = self.items.values();
        items.fold((0.0, 0.0), |(now, own), item| {
            (now + 1.0 / item.period, own + 1.0 / item.own)
        })
    }

    fn count(&mut self, passed: f64) {
        let kept = (-passed / MEMORY).exp();
        let longest = self.settings.longest.get();
        for item in self.items.values_mut() {
            item.counted = kept * item.counted + std::mem::take(&mut item.accesses);
            item.watched = kept * item.watched + passed;
            if item.period > item.own {
                // It is read more often again, so it must be fresher, whatever the load.
                let wanted = item.wanted(longest);
                if wanted < item.period / MIN_FACTOR {
                    item.period = wanted;
                    self.relaxed -= usize::from(wanted <= item.own);
                    self.version += 1;
                }
            }
        }
    }

    fn forget(&mut self) {
        if !std::mem::take(&mut self.crowded) {
            return;
        }
        let mut by_rate: Vec<(f64, Box<str>)> = self
            .items
            .iter()
            .map(|(name, item)| (item.rate(), name.clone()))
            .collect();
        by_rate.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        by_rate.truncate(MAX_ITEMS / FORGOTTEN_PART);
        for (_, name) in by_rate {
            if let Some(item) = self.items.remove(&name) {
                self.forgotten += 1;
                if item.period > item.own {
                    self.relaxed -= 1;
                    self.version += 1;
                }
            }
        }
    }

    /// Lengthens periods until updates costing `work` per second are saved.
    fn relax(&mut self, work: f64) {
        let longest = self.settings.longest.get();
        let mut cold: Vec<(f64, &mut Item)> = self
            .items
            .values_mut()
            .filter(|item| item.watched >= WATCHED)
            .filter(|item| item.wanted(longest) > MIN_FACTOR * item.period)
            .map(|item| (item.rate() * item.period, item))
            .collect();
        cold.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut saved = 0.0;
        for (_, item) in cold {
            if saved >= work {
                break;
            }
            let wanted = item.wanted(longest);
            saved += self.settings.update_cost.get() * (1.0 / item.period - 1.0 / wanted);
            self.relaxed += usize::from(item.period <= item.own);
            item.period = wanted;
            self.version += 1;
        }
    }

    /// Restores the own periods of a share of the items, those read most first.
    fn restore(&mut self) {
        if self.relaxed == 0 {
            self.back = None;
            self.patience = CALM.0;
            return;
        }
        let at_once = *self
            .back
            .get_or_insert(self.relaxed.div_ceil(BACK_PART).max(1));
        let mut relaxed: Vec<&mut Item> = self
            .items
            .values_mut()
            .filter(|item| item.period > item.own)
            .collect();
        relaxed.sort_by(|a, b| b.rate().total_cmp(&a.rate()));
        for item in relaxed.into_iter().take(at_once) {
            item.period = item.own;
            self.relaxed -= 1;
            self.version += 1;
        }
    }
}
