//! The lab's summary (`docs/lab-results.md` has the formulas), over several seeds: each figure is their mean,
//! `interval_90` half the width of its 90 % confidence interval by Student's t.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    measure::{Outcome, Second},
    scenario::{Phase, Scenario},
};

/// Seconds after the event from which figures count as settled, as in the lab.
const AFTER_EVENT: f64 = 5.0;

/// Figure with its confidence interval over the seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Half the width of the 90 % interval; `None` for one seed.
    pub half_width: Option<f64>,
}

impl Spread {
    /// Mean and interval of at least one value.
    pub fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let half_width = (values.len() > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            student_90(values.len() - 1) * (squares / (n - 1.0) / n).sqrt()
        });
        Spread { mean, half_width }
    }
}

/// The 95th percentile of Student's t.
fn student_90(degrees: usize) -> f64 {
    const T: [f64; 30] = [
        6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771,
        1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706,
        1.703, 1.701, 1.699, 1.697,
    ];
    T.get(degrees.max(1) - 1).copied().unwrap_or(1.645)
}

/// The names of the figures, as in the lab's summary.json.
pub type Figures = BTreeMap<&'static str, f64>;

/// Summary of one policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicySummary {
    /// Name of the policy.
    pub policy: String,
    /// Always `simulated`, in place of the lab's proxy.
    pub proxy: &'static str,
    /// Means over the seeds.
    #[serde(flatten)]
    pub figures: BTreeMap<&'static str, Option<f64>>,
    /// Half widths of 90 % intervals.
    pub interval_90: BTreeMap<&'static str, f64>,
    /// Whether every seed settled within the SLA.
    pub settled: Option<bool>,
    /// Share of the items that each node answered.
    pub node_shares: BTreeMap<String, f64>,
    /// Figures of each phase of the load, from [`AFTER_EVENT`] seconds after its begin to its end.
    pub phases: Vec<PhaseSummary>,
    /// Figures by second.
    pub series: BTreeMap<&'static str, Vec<Option<f64>>>,
}

/// Figures of one phase.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PhaseSummary {
    /// Begin of the measured time, in seconds.
    pub from_s: f64,
    /// End of the measured time, in seconds.
    pub to_s: f64,
    /// Load as a share of the capacity, for open arrivals.
    pub load: Option<f64>,
    /// Like the figure of that name.
    pub timely_items_per_s: f64,
    /// Mean delay of the answered requests, in seconds.
    pub mean_delay_s: Option<f64>,
}

/// Summary of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Name of the scenario.
    pub scenario: String,
    /// `S_t`.
    pub sla_seconds: f64,
    /// Summaries of the policies.
    pub runs: Vec<PolicySummary>,
    /// First of the consecutive seeds.
    pub seed: u64,
    /// Number of seeds.
    pub seeds: u32,
    /// Clients, 0 for open arrivals.
    pub clients: u32,
    /// Nodes.
    pub nodes: usize,
    /// Proxies.
    pub proxies: u32,
    /// Begin of the measured time, in seconds.
    pub measured_from_s: f64,
    /// End of the measured time, in seconds.
    pub measured_to_s: f64,
    /// Time from which overshoot and settling are counted, in seconds.
    pub event_s: Option<f64>,
}

/// Rounded so that a report does not change with the last digit.
fn rounded(value: f64, digits: i32) -> Option<f64> {
    let scale = 10f64.powi(digits);
    value.is_finite().then(|| (value * scale).round() / scale)
}

fn quantile(sorted: &[f32], part: f64) -> f64 {
    let at = part * (sorted.len().max(1) - 1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    match (sorted.get(low), sorted.get(high)) {
        (Some(a), Some(b)) => f64::from(*a) + (f64::from(*b) - f64::from(*a)) * (at - at.floor()),
        _ => f64::NAN,
    }
}

fn mean_delay(second: &Second) -> f64 {
    second.delays / second.answers as f64
}

/// Figures of one run; NaN for missing ones.
pub fn figures(scenario: &Scenario, outcome: &Outcome) -> Figures {
    let from = scenario.measured_from.ceil() as usize;
    let measured = &outcome.seconds[from..];
    let n = measured.len() as f64;
    let total = |of: fn(&Second) -> f64, seconds: &[Second]| seconds.iter().map(of).sum::<f64>();
    let ideal = |second: &Second| second.offered.min(second.capacity);
    let mut delays = outcome.delays.clone();
    delays.sort_unstable_by(f32::total_cmp);
    let sent = outcome.sent.max(1) as f64;
    let settled_from = scenario.event.unwrap_or(scenario.measured_from) + AFTER_EVENT;
    let late = outcome
        .seconds
        .get(settled_from.ceil() as usize..)
        .unwrap_or(&[]);
    let mut found = Figures::from([
        ("total_items_per_s", total(|s| s.total, measured) / n),
        ("timely_items_per_s", total(|s| s.timely, measured) / n),
        ("offered_items_per_s", total(|s| s.offered, measured) / n),
        ("ideal_items_per_s", total(ideal, measured) / n),
        (
            "mean_delay_s",
            delays.iter().map(|d| f64::from(*d)).sum::<f64>() / delays.len() as f64,
        ),
        ("p50_delay_s", quantile(&delays, 0.5)),
        ("p95_delay_s", quantile(&delays, 0.95)),
        ("p99_delay_s", quantile(&delays, 0.99)),
        ("refused_fraction", outcome.refused as f64 / sent),
        ("error_fraction", outcome.errors as f64 / sent),
        (
            "cache_hit_ratio",
            outcome.cache.0 as f64 / outcome.cache.1 as f64,
        ),
        (
            "timely_of_ideal",
            total(|s| s.timely, measured) / total(ideal, measured),
        ),
        (
            "timely_of_ideal_after_event",
            total(|s| s.timely, late) / total(ideal, late),
        ),
        ("requests", outcome.sent as f64),
        (
            "slots_moved_per_s",
            outcome.slots_moved as f64 / outcome.seconds.len() as f64,
        ),
        ("overshoot_s", f64::NAN),
        ("settling_s", f64::NAN),
    ]);
    if scenario.updates.is_some() {
        let longest = measured.iter().map(|s| s.longest).fold(0.0, f64::max);
        found.insert("updates_per_s", total(|s| s.updates, measured) / n);
        found.insert("age_at_access_s", total(|s| s.age, measured) / n);
        found.insert("longest_period_s", longest);
    }
    if let Some(event) = scenario.event {
        let after = &outcome.seconds[event as usize..];
        let above = after
            .iter()
            .rposition(|second| mean_delay(second) > scenario.sla_seconds);
        let worst = after
            .iter()
            .map(mean_delay)
            .filter(|delay| delay.is_finite())
            .fold(f64::NAN, f64::max);
        found.insert("overshoot_s", worst);
        found.insert("settling_s", above.map_or(0.0, |last| (last + 1) as f64));
    }
    found
}

fn has_settled(scenario: &Scenario, outcome: &Outcome) -> Option<bool> {
    let after = &outcome.seconds[scenario.event? as usize..];
    let answered = |second: &&Second| second.answers > 0;
    Some(
        after
            .iter()
            .rev()
            .find(answered)
            .is_some_and(|last| mean_delay(last) <= scenario.sla_seconds),
    )
}

/// Summarises one policy's runs, one per seed and at least one.
fn policy(scenario: &Scenario, runs: &[&Outcome]) -> PolicySummary {
    let each: Vec<Figures> = runs.iter().map(|run| figures(scenario, run)).collect();
    let mut means = BTreeMap::new();
    let mut widths = BTreeMap::new();
    for name in each[0].keys() {
        let values: Vec<f64> = each.iter().map(|of_run| of_run[name]).collect();
        let spread = Spread::of(&values);
        let digits = if name.ends_with("items_per_s") { 1 } else { 4 };
        means.insert(*name, rounded(spread.mean, digits));
        if let Some(width) = spread.half_width.and_then(|width| rounded(width, digits)) {
            widths.insert(*name, width);
        }
    }
    let series = |of: &dyn Fn(&Second) -> f64| -> Vec<Option<f64>> {
        let second =
            |i| runs.iter().map(|run| of(&run.seconds[i])).sum::<f64>() / runs.len() as f64;
        (0..runs[0].seconds.len())
            .map(|i| rounded(second(i), 3))
            .collect()
    };
    let items: Vec<f64> = (0..runs[0].node_items.len())
        .map(|node| runs.iter().map(|run| run.node_items[node]).sum())
        .collect();
    let all: f64 = items.iter().sum::<f64>().max(1e-9);
    let share = |(node, items): (usize, &f64)| {
        (
            format!("node{}", node + 1),
            rounded(items / all, 4).unwrap_or(0.0),
        )
    };
    let settled: Vec<bool> = runs
        .iter()
        .filter_map(|run| has_settled(scenario, run))
        .collect();
    let mut of_seconds = BTreeMap::from([
        ("timely_items_per_s", series(&|s| s.timely)),
        ("ideal_items_per_s", series(&|s| s.offered.min(s.capacity))),
        ("offered_items_per_s", series(&|s| s.offered)),
        ("mean_delay_s", series(&mean_delay)),
        ("refused_per_s", series(&|s| s.refused as f64)),
        ("bounds_items", series(&|s| s.bounds)),
    ]);
    if scenario.updates.is_some() {
        of_seconds.insert("age_at_access_s", series(&|s| s.age));
        of_seconds.insert("longest_period_s", series(&|s| s.longest));
    }
    PolicySummary {
        policy: runs[0].policy.clone(),
        proxy: "simulated",
        figures: means,
        interval_90: widths,
        settled: (!settled.is_empty()).then(|| settled.iter().all(|settled| *settled)),
        phases: phases(scenario, runs),
        node_shares: items.iter().enumerate().map(share).collect(),
        series: of_seconds,
    }
}

fn phases(scenario: &Scenario, runs: &[&Outcome]) -> Vec<PhaseSummary> {
    let phases = &scenario.clients.phases;
    let ends = phases[1..]
        .iter()
        .map(|phase| phase.from)
        .chain([scenario.seconds]);
    let of = |(phase, end): (&Phase, f64)| {
        let from = (phase.from + AFTER_EVENT).min(end);
        let seconds = |run: &&Outcome| run.seconds[from.ceil() as usize..end as usize].to_vec();
        let all: Vec<Second> = runs.iter().flat_map(seconds).collect();
        let timely = all.iter().map(|second| second.timely).sum::<f64>() / all.len() as f64;
        let answers: u64 = all.iter().map(|second| second.answers).sum();
        PhaseSummary {
            from_s: from,
            to_s: end,
            load: phase.load,
            timely_items_per_s: rounded(timely, 1).unwrap_or(0.0),
            mean_delay_s: rounded(
                all.iter().map(|second| second.delays).sum::<f64>() / answers as f64,
                4,
            ),
        }
    };
    phases.iter().zip(ends).map(of).collect()
}

/// Summarises all runs of a scenario, in the order of its policies.
pub fn summarise(
    scenario: &Scenario,
    first_seed: u64,
    seeds: u32,
    outcomes: &[Outcome],
) -> Summary {
    let mut names: Vec<&str> = Vec::new();
    for outcome in outcomes {
        if !names.contains(&outcome.policy.as_str()) {
            names.push(&outcome.policy);
        }
    }
    let of = |name: &&str| {
        let runs: Vec<&Outcome> = outcomes
            .iter()
            .filter(|outcome| outcome.policy == **name)
            .collect();
        policy(scenario, &runs)
    };
    Summary {
        scenario: scenario.name.clone(),
        sla_seconds: scenario.sla_seconds,
        runs: names.iter().map(of).collect(),
        seed: first_seed,
        seeds,
        clients: scenario.clients.count,
        nodes: scenario.each_node().count(),
        proxies: scenario.proxies,
        measured_from_s: scenario.measured_from,
        measured_to_s: scenario.seconds,
        event_s: scenario.event,
    }
}
