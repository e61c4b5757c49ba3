//! Planning of moves of object sets.

use super::{
    MAX_NAMED, NodeId, ObjectSet, Table,
    assign::{branch_and_bound, cheapest_each, greedy, improve, usable, variance},
    rest_of,
};
use std::collections::BTreeMap;

/// Maximum partial placements, times nodes, that branch and bound examines in one plan.
const MAX_VISITED: usize = 50_000;
/// Maximum ratio of variances at which the placement with fewer moves is preferred.
const FEWER_MOVES: f64 = 1.05;
/// Multiple of the variance by chance up to which a variance is tolerated.
const CHANCE: f64 = 2.0;
/// Standard deviation, as a share of the threshold, up to which the placement with fewer moves is always preferred.
const GOOD: f64 = 0.5;
/// Share of the present variance that is negligible.
const EVEN: f64 = 1e-6;
/// Minimum load of a name, as a share of a node's mean load, for an entry of its own.
const WORTH_NAMING: f64 = 0.01;
/// Free entries below which names with less load lose theirs.
const FREE: usize = MAX_NAMED / 4;

/// Conditions under which object sets move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanSettings {
    /// Standard deviation of the nodes' loads, as a share of their mean, up to which nothing moves; the variance may
    /// exceed it by twice the variance by chance. Middle-R compares the variance with an unspecified threshold; a share
    /// of the mean suits all loads. Default 0.2.
    pub threshold: f64,
    /// Minimum share of the variance that the moves must remove (Middle-R: "a significant percentage"). Default 0.5.
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

/// Load of a name or a rest.
#[derive(Clone, Debug, PartialEq)]
pub struct SetLoad {
    /// The name or rest.
    pub set: ObjectSet,
    /// Load in any common unit; values that are not positive and finite count as 0.
    pub load: f64,
    /// Variance of the load by chance, in that unit squared; 0 if the load is certain.
    pub noise: f64,
}

/// Reason of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanReason {
    /// The load is even enough.
    Even,
    /// The load is uneven, but moves would not improve it enough.
    NoGain,
    /// The load is uneven, and sets move.
    Uneven,
    /// No node has capacity.
    NoNodes,
}

/// Change of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A set gets another primary.
    Move(ObjectSet, NodeId),
    /// A name without an entry of its own gets one, with this primary.
    Name(Box<str>, NodeId),
    /// A name loses its entry, and belongs to its rest again.
    Forget(Box<str>),
}

/// Result of planning.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Reason of the plan.
    pub reason: PlanReason,
    /// Present standard deviation / mean of the nodes' loads; 0 without load.
    pub before: f64,
    /// Standard deviation / mean up to which the load counts as even: the threshold, and the variance by chance.
    pub even: f64,
    /// Standard deviation / mean after the changes.
    pub after: f64,
    /// Changes to carry out.
    pub changes: Vec<Change>,
}

/// Plans the moves of object sets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planner {
    settings: PlanSettings,
}

impl Planner {
    /// Creates a planner.
    pub fn new(settings: PlanSettings) -> Self {
        Planner { settings }
    }

    /// Plans changes of `table` from the loads of names and rests and the capacity of each node, in any unit; nothing
    /// is placed on nodes with 0 or less. Sets whose primary has no capacity always get another one.
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
        // Sets without a live primary are placed on top of the others.
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

/// Entry, or future entry, that is placed as one.
struct Unit {
    set: ObjectSet,
    load: f64,
    noise: f64,
    primary: NodeId,
    has_entry: bool,
    /// Load below which the entry is removed.
    worth_keeping: f64,
}

/// All entries of the table, and the names without one whose load justifies it.
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

/// Best placement found; the one with fewer moves if its variance is nearly as low, or at most `good`.
fn best(loads: &[f64], capacities: &[f64], now: &[usize], good: f64) -> Vec<usize> {
    let mut near = now.to_vec();
    improve(loads, capacities, &mut near);
    let Some(mut anew) = greedy(loads, capacities) else {
        return near;
    };
    improve(loads, capacities, &mut anew);
    let visits = MAX_VISITED / capacities.len().max(1);
    branch_and_bound(loads, capacities, &mut anew, visits);
    // Sets without load have no reason to move.
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
