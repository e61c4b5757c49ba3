//! Whether object sets should move, and which.

use super::{
    MAX_NAMED, NodeId, ObjectSet, Table,
    assign::{branch_and_bound, cheapest_each, greedy, improve, usable, variance},
    rest_of,
};
use std::collections::BTreeMap;

/// Partial placements that branch and bound may look at in one plan, times nodes.
const MAX_VISITED: usize = 50_000;
/// What moves less is taken, if its variance is at most this much more.
const FEWER_MOVES: f64 = 1.05;
/// A variance is taken for more than chance from so many times what chance makes.
const CHANCE: f64 = 2.0;
/// Or if the standard deviation is at most this part of the threshold.
const GOOD: f64 = 0.5;
/// This part of the variance there was is none.
const EVEN: f64 = 1e-6;
/// A name is worth an entry of its own from this part of a node's mean load on.
const WORTH_NAMING: f64 = 0.01;
/// Those that are worth none keep theirs while as many are free.
const FREE: usize = MAX_NAMED / 4;

/// When a plan is worth carrying out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanSettings {
    /// Nothing moves while the standard deviation of the nodes' loads is at most this part of their mean; the variance
    /// may be more by twice what it would be by chance. Middle-R
    /// compares the variance with a threshold that it does not tell; a part of the mean is one for all loads.
    /// Default 0.2.
    pub threshold: f64,
    /// Nothing moves unless that takes away this part of the variance (Middle-R: "a significant percentage").
    /// Default 0.5.
    pub gain: f64,
}

impl Default for PlanSettings {
    fn default() -> Self {
        PlanSettings {
            threshold: 0.2,
            gain: 0.5,
        }
    }
}

/// The load of a name or a rest.
#[derive(Clone, Debug, PartialEq)]
pub struct SetLoad {
    /// What.
    pub set: ObjectSet,
    /// In any unit that is the same for all; what is no number above 0 is 0.
    pub load: f64,
    /// The variance that the load has by chance, as few requests were counted; 0 where it is certain.
    pub noise: f64,
}

/// Why a plan is as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanReason {
    /// The load is even enough.
    Even,
    /// It is not, but what could be reached is not worth it.
    NoGain,
    /// Sets move.
    Uneven,
    /// There is no node to place them on.
    NoNodes,
}

/// One change of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A set gets another primary.
    Move(ObjectSet, NodeId),
    /// A name that had no entry of its own gets one, with this primary.
    Name(Box<str>, NodeId),
    /// A name loses its entry; its rest's primary is its own again.
    Forget(Box<str>),
}

/// A plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Why.
    pub reason: PlanReason,
    /// Standard deviation over mean of the nodes' loads as they are; 0 without load.
    pub before: f64,
    /// Up to here that counts as even: the threshold, and what chance makes.
    pub even: f64,
    /// As they will be.
    pub after: f64,
    /// What changes.
    pub changes: Vec<Change>,
}

/// Plans.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planner {
    settings: PlanSettings,
}

impl Planner {
    /// With settings.
    pub fn new(settings: PlanSettings) -> Self {
        Planner { settings }
    }

    /// What to change in `table`, given the loads of the names and rests that had any, and the capacity of each node
    /// (in any unit; 0 or less: nothing is placed there). Whoever has a primary without capacity gets another one,
    /// whether the load is even or not.
    pub fn plan(
        &self,
        table: &Table,
        loads: &[SetLoad],
        capacities: &BTreeMap<NodeId, f64>,
    ) -> Planned {
        let ids: Vec<NodeId> = capacities.keys().copied().collect();
        let sizes: Vec<f64> = capacities.values().map(|size| usable(*size)).collect();
        let all: f64 = sizes.iter().sum();
        if all <= 0.0 {
            return planned(PlanReason::NoNodes, [0.0; 3], Vec::new());
        }
        let place = |node: NodeId| ids.binary_search(&node).ok().filter(|i| sizes[*i] > 0.0);
        let units = units(
            table,
            loads,
            sizes.iter().filter(|size| **size > 0.0).count(),
        );
        let of: Vec<f64> = units.iter().map(|unit| unit.load).collect();
        // Who has no primary that lives gets one on top of what the others have.
        let known: Vec<Option<usize>> = units.iter().map(|unit| place(unit.primary)).collect();
        let now = cheapest_each(&of, &sizes, &known);
        let mean = of.iter().sum::<f64>() / all;
        let spread = |variance: f64| {
            let spread = variance.sqrt() / mean;
            if spread.is_finite() { spread } else { 0.0 }
        };
        let before = spread(variance(&of, &sizes, &now));
        let by_chance = units.iter().zip(&now);
        let by_chance: f64 = by_chance
            .map(|(unit, node)| unit.noise / sizes[*node])
            .sum();
        let even = (self.settings.threshold * mean).powi(2) + CHANCE * by_chance / all;
        let (reason, chosen) = if variance(&of, &sizes, &now) <= even {
            (PlanReason::Even, now)
        } else {
            let good = (GOOD * self.settings.threshold * mean).powi(2);
            let found = best(&of, &sizes, &now, good);
            let is_worth = variance(&of, &sizes, &found)
                <= (1.0 - self.settings.gain) * variance(&of, &sizes, &now);
            if is_worth {
                (PlanReason::Uneven, found)
            } else {
                (PlanReason::NoGain, now)
            }
        };
        let after = spread(variance(&of, &sizes, &chosen));
        let changes = units.iter().zip(chosen).filter_map(|(unit, node)| {
            let to = ids[node];
            match (&unit.set, unit.has_entry) {
                (ObjectSet::Named(name), true) if unit.load < unit.worth_keeping => {
                    Some(Change::Forget(name.clone()))
                }
                _ if to == unit.primary => None,
                (ObjectSet::Named(name), false) => Some(Change::Name(name.clone(), to)),
                _ => Some(Change::Move(unit.set.clone(), to)),
            }
        });
        planned(reason, [before, spread(even), after], changes.collect())
    }
}

fn planned(reason: PlanReason, [before, even, after]: [f64; 3], changes: Vec<Change>) -> Planned {
    Planned {
        reason,
        before,
        even,
        after,
        changes,
    }
}

/// What is placed as one.
struct Unit {
    set: ObjectSet,
    load: f64,
    noise: f64,
    primary: NodeId,
    has_entry: bool,
    /// Entries with less load are given up.
    worth_keeping: f64,
}

/// Every entry of the table, and the names without one that are worth one.
fn units(table: &Table, loads: &[SetLoad], nodes: usize) -> Vec<Unit> {
    let mut known: BTreeMap<&ObjectSet, (f64, f64)> = BTreeMap::new();
    for SetLoad { set, load, noise } in loads {
        let (sum, noises) = known.entry(set).or_default();
        *sum += usable(*load);
        *noises += usable(*noise);
    }
    let mean = known.values().map(|(load, _)| load).sum::<f64>() / nodes as f64;
    let room = MAX_NAMED.saturating_sub(table.named());
    let worth_keeping = if room < FREE {
        WORTH_NAMING * mean
    } else {
        0.0
    };
    let mut units: Vec<Unit> = table
        .entries()
        .map(|(set, state)| {
            let (load, noise) = known.get(&set).copied().unwrap_or_default();
            Unit {
                load,
                noise,
                primary: state.primary(),
                has_entry: true,
                worth_keeping,
                set,
            }
        })
        .collect();
    let mut hot: Vec<(&str, (f64, f64))> = known
        .iter()
        .filter_map(|(set, load)| match set {
            ObjectSet::Named(name) if !table.is_named(name) => Some((&**name, *load)),
            _ => None,
        })
        .collect();
    hot.sort_by(|a, b| b.1.0.total_cmp(&a.1.0).then(a.0.cmp(b.0)));
    for (i, (name, (load, noise))) in hot.into_iter().enumerate() {
        let Some(rest) = table.rest(rest_of(name)) else {
            continue;
        };
        if i < room && load >= WORTH_NAMING * mean {
            units.push(Unit {
                set: ObjectSet::Named(name.into()),
                load,
                noise,
                primary: rest.primary(),
                has_entry: false,
                worth_keeping: 0.0,
            });
        } else if let Some(unit) = units.get_mut(usize::from(rest_of(name))) {
            // The table's entries begin with the rests.
            unit.load += load;
            unit.noise += noise;
        }
    }
    units
}

/// The least variance that was found; but fewer moves, where they come to nearly as little, or to no more than `good`.
fn best(loads: &[f64], capacities: &[f64], now: &[usize], good: f64) -> Vec<usize> {
    let mut near = now.to_vec();
    improve(loads, capacities, &mut near);
    let Some(mut anew) = greedy(loads, capacities) else {
        return near;
    };
    improve(loads, capacities, &mut anew);
    let visits = MAX_VISITED / capacities.len().max(1);
    branch_and_bound(loads, capacities, &mut anew, visits);
    // What has no load has no reason to move.
    for (set, node) in anew.iter_mut().enumerate() {
        if usable(loads[set]) == 0.0 {
            *node = now[set];
        }
    }
    let of = |primaries: &[usize]| variance(loads, capacities, primaries);
    if of(&near) <= (FEWER_MOVES * of(&anew) + EVEN * of(now)).max(good) {
        near
    } else {
        anew
    }
}
