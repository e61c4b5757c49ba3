//! Adaptive update periods: under overload, temporal data that are updated more often than they are read are updated
//! as often as they are read (Chronos, section 2.2: FC-CU).
//!
//! An *item* is a datum with a value in time, as the price of a stock. Its access update ratio (eq. 1) is accesses
//! over updates; below 1 it is *cold*. While the node is full, cold items get the period `min(p / AUR, P_max)` (eq. 2), the coldest
//! first, in each period as many as make up for what was taken from the bound (step 3 of section 2.1), and for a
//! twentieth of the work at least. Hot items keep theirs. The paper does not say how periods come back; here a part of them does in each
//! period in which the node is no longer full.

use std::collections::BTreeMap;

use crate::{Cost, Decision, MAX_NAME_BYTES, Reason, Seconds, placement::check_name};

/// Items that are watched, at most. Of more the coldest are forgotten: they are updated at their own periods.
pub const MAX_ITEMS: usize = 100_000;
/// Shortest and longest period an item may have.
pub const PERIODS: (Seconds, Seconds) = (Seconds(1e-3), Seconds(86_400.0));

/// Accesses of so long ago count 1/e of those of now.
const MEMORY: f64 = 10.0;
/// An item is watched for so long before it is called cold.
const WATCHED: f64 = 3.0;
/// A period is made longer by at least this factor, or left.
const MIN_FACTOR: f64 = 1.05;
/// Of what forgets when there is no room, this part goes at once.
const FORGOTTEN_PART: usize = 16;
/// Periods without overload before the first items come back, and the most after those that came too early.
const CALM: (u32, u32) = (3, 10);
/// Of a full node's work, what updates make room for in a period even where the bound was not lowered: the requests
/// that it keeps out are not seen here.
const FULL: f64 = 0.05;
/// A backlog above this part of the bound fills it.
const FILLED: f64 = 0.8;
/// Where few requests finished, a backlog under this part of the bound is light.
const FEW: f64 = 0.5;
/// Of the items that are to come back, this part does in each period.
const BACK_PART: usize = 8;
/// Time that is said to have passed is no longer than this.
const MAX_PASSED: f64 = 60.0;

/// What an operator sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FreshnessSettings {
    /// `P_max`: no item is updated less often than this by what is decided here.
    pub longest: Seconds,
    /// What an update costs the node.
    pub update_cost: Cost,
}

/// How full the node was, as far as updates are concerned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pressure {
    /// It was full; updates are to give way that make up this part of its work.
    Over(f64),
    /// Nothing is known, or nothing has to change.
    Held,
    /// It could have taken more.
    Light,
}

impl Pressure {
    /// Of a step of the controller.
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
            // How far the load line goes down says what queue there was, and not what updates take.
            Reason::Standing | Reason::Starved | Reason::BlindSource | Reason::SourceLate => {
                Pressure::Over(FULL)
            }
            Reason::Burst if decision.recent_peak.get() > FILLED * decision.bound.get() => {
                Pressure::Over(FULL)
            }
            // It cannot be lowered any more.
            Reason::AtMin => Pressure::Over(1.0),
            Reason::Open
            | Reason::Burst
            | Reason::LightLoad
            | Reason::Recovering
            | Reason::Unused
            | Reason::Empty
            | Reason::IdleDrift => Pressure::Light,
            // Few, because few came, and not because they take long.
            Reason::FewSamples if decision.recent_peak.get() <= FEW * decision.bound.get() => {
                Pressure::Light
            }
            _ => Pressure::Held,
        }
    }
}

/// Why an item is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemError {
    /// Items are named as object sets are: 1 to [`MAX_NAME_BYTES`] visible ASCII characters.
    Name,
    /// Periods are within [`PERIODS`].
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
    /// Its own period, and the one it has.
    own: f64,
    period: f64,
    /// Since the last step.
    accesses: f64,
    /// Decayed sums: accesses, and the time in which they were.
    counted: f64,
    watched: f64,
}

impl Item {
    /// Accesses a second.
    fn rate(&self) -> f64 {
        if self.watched > 0.0 {
            self.counted / self.watched
        } else {
            0.0
        }
    }

    /// Eq. 2, where `p / AUR` is the time between two accesses.
    fn wanted(&self, longest: f64) -> f64 {
        (1.0 / self.rate()).min(longest).max(self.own)
    }
}

/// The update periods of one node's items.
#[derive(Clone, Debug)]
pub struct UpdatePeriods {
    settings: FreshnessSettings,
    items: BTreeMap<Box<str>, Item>,
    /// A name came that there was no room for.
    crowded: bool,
    forgotten: u64,
    relaxed: usize,
    calm: u32,
    patience: u32,
    /// Items that come back in each period, while they do.
    back: Option<usize>,
    version: u64,
}

impl UpdatePeriods {
    /// Without items.
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

    /// An item that is updated every `period` while nothing is wrong. One that is known gets the new period as its
    /// own; there may be no room for another one, which then keeps its own for now.
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

    /// An item was read so often. Names that have not been declared are nobody's.
    pub fn accessed(&mut self, name: &str, times: f64) {
        if let Some(item) = self.items.get_mut(name)
            && times.is_finite()
            && times > 0.0
        {
            item.accesses += times;
        }
    }

    /// Items that are no longer there go.
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

    /// A period is over, in which the node did `work` a second. Returns whether a period has changed.
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
                    // It was too early.
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

    /// The period of an item; none where it is not known, and so has its own.
    pub fn period(&self, name: &str) -> Option<Seconds> {
        self.items.get(name).map(|item| Seconds(item.period))
    }

    /// The items that have longer periods than their own, by name.
    pub fn relaxed(&self) -> impl Iterator<Item = (&str, Seconds)> {
        self.items
            .iter()
            .filter(|(_, item)| item.period > item.own)
            .map(|(name, item)| (&**name, Seconds(item.period)))
    }

    /// How many these are.
    pub fn relaxed_count(&self) -> usize {
        self.relaxed
    }

    /// The longest period that an item has; none without items.
    pub fn longest_period(&self) -> Option<Seconds> {
        let periods = self.items.values().map(|item| item.period);
        periods.reduce(f64::max).map(Seconds)
    }

    /// Items that are watched.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How often an item was forgotten for lack of room.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Grows with every change of a period.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Updates a second by all items, and those there would be at their own periods.
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
                // Read more often again: it is needed fresher, whatever the load.
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

    /// Leaves out updates that cost `work` a second.
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

    /// Gives a part of the items their own periods again, those read most first.
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
