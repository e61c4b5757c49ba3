//! Plimsoll itself: one controller per node, one dispatcher per proxy, the ring and the shares between them.

use plimsoll_core::{
    BoundLimits, Cost, Law, NodeController, Objective, Observation, PiForm, PiGains, Rules,
    Seconds, ServiceMode, Settings, Sla,
    dispatch::{Class, DispatchSettings, Dispatcher, Held, NodeShare, Placement, Verdict},
    ring::{RingTable, ring_sizes, ring_weights, worth_moving},
};

use super::{Ask, Ended, Placed, Policy, balance::RoundRobin, sharing::Sharing, updates::Updating};
use crate::scenario::{Scenario, UpdateLoad};

/// Validity of a node's report, in periods.
const LEASE_PERIODS: f64 = 3.0;
const AGE_LIMIT: f64 = 10.0;
const DEAD_BAND: f64 = 0.05;

/// Settings of the controllers.
#[derive(Clone, Copy)]
pub struct Aim {
    pub objective: Objective,
    pub set_point: f64,
    /// Whether the law is the load line and not the papers' PI.
    pub load_line: bool,
    /// Whether the bound is also limited to the multiprogramming level.
    pub mpl: bool,
    /// Whether the gains are self-tuned.
    pub self_tuned: bool,
    /// Whether cold data are updated less often under overload.
    pub updates: bool,
}

impl Aim {
    /// Controllers for all nodes within the scenario's limits; `None` if these are invalid.
    pub fn controllers(self, scenario: &Scenario, law: Law) -> Option<Vec<NodeController>> {
        let tuning = &scenario.tuning;
        let limits = match law {
            Law::LoadLine => BoundLimits::default(),
            _ => BoundLimits {
                min: Cost(tuning.min),
                max: Cost(1e9),
                nominal: Some(Cost(tuning.nominal)),
            },
        };
        let settings = Settings {
            sla: sla(scenario, self.objective, self.set_point),
            limits,
            law,
            mpl: self.mpl,
            mode: ServiceMode::Enforce,
            self_tuned: self.self_tuned,
            rules: Rules::default(),
        };
        scenario
            .each_node()
            .map(|_| NodeController::new(settings).ok())
            .collect()
    }
}

/// SLA of the scenario with this objective and set point.
pub fn sla(scenario: &Scenario, objective: Objective, set_point: f64) -> Sla {
    Sla {
        delay: Seconds(scenario.sla_seconds),
        settling: Seconds(10.0),
        objective,
        set_point,
    }
}

/// Report of an agent.
#[derive(Clone, Copy, Default)]
struct Word {
    at: f64,
    bound: f64,
    /// Capacity for the ring.
    capacity: Option<f64>,
    bound_jobs: f64,
    mean_cost: f64,
    jobs: f64,
    load: f64,
}

/// All agents and dispatchers of a cluster.
pub struct Plimsoll {
    load_line: bool,
    /// Refused and all requests since each agent's last period.
    refused: Vec<(u64, u64)>,
    controllers: Vec<NodeController>,
    /// Update periods by node; empty if they do not adapt.
    updating: Vec<Updating>,
    names: Vec<String>,
    /// Last report of each node and the one before, as reports are delayed.
    words: Vec<[Word; 2]>,
    network: f64,
    lease: f64,
    sla: f64,
    ring: Option<RingTable>,
    moved: u64,
    sharing: Sharing,
    period: f64,
    /// Begin of each dispatcher's period.
    period_began: Vec<f64>,
    dispatchers: Vec<Dispatcher>,
    fallback: RoundRobin,
}

fn share(name: &str, granted: f64, word: &Word, up: bool) -> NodeShare {
    NodeShare {
        name: name.to_owned(),
        address: String::new(),
        granted,
        bound_jobs: if up { word.bound_jobs } else { 0.0 },
        mean_cost: word.mean_cost,
        jobs: word.jobs,
        load: word.load,
    }
}

impl Plimsoll {
    /// `None` if the scenario's numbers are invalid for a controller.
    pub fn new(scenario: &Scenario, by_hash: bool, aim: Aim) -> Option<Self> {
        let tuning = &scenario.tuning;
        let law = if aim.load_line {
            Law::LoadLine
        } else {
            Law::Pi {
                gains: PiGains::default(),
                form: PiForm::Velocity,
            }
        };
        let nodes = scenario.each_node().count();
        let proxies = scenario.proxies as usize;
        let dispatch = DispatchSettings {
            placement: if by_hash {
                Placement::FcHash
            } else {
                Placement::FcProp
            },
            age_limit: AGE_LIMIT.max(LEASE_PERIODS * scenario.period),
            lease: LEASE_PERIODS * scenario.period,
            spill: tuning.spill,
            least_cost: 1.0,
            news: plimsoll_core::schedule::NewsSettings::default(),
        };
        let names: Vec<String> = (1..=nodes).map(|node| format!("node{node}")).collect();
        let mut dispatchers = vec![Dispatcher::new(dispatch); proxies];
        // In the scenario's order, so that places equal node numbers.
        let nothing: Vec<NodeShare> = names
            .iter()
            .map(|name| share(name, 0.0, &Word::default(), false))
            .collect();
        for dispatcher in &mut dispatchers {
            dispatcher.on_shares(0.0, proxies, &nothing);
        }
        let ring = if by_hash {
            Some(RingTable::empty(tuning.slots).ok()?)
        } else {
            None
        };
        Some(Plimsoll {
            controllers: aim.controllers(scenario, law)?,
            updating: (0..if aim.updates { nodes } else { 0 })
                .filter_map(|_| Updating::new(scenario))
                .collect(),
            names,
            refused: vec![(0, 0); nodes],
            load_line: aim.load_line,
            words: vec![[Word::default(); 2]; nodes],
            network: scenario.network_seconds,
            lease: LEASE_PERIODS * scenario.period,
            sla: scenario.sla_seconds,
            ring,
            moved: 0,
            sharing: Sharing::new(nodes, proxies),
            period: scenario.period,
            period_began: vec![0.0; proxies],
            dispatchers,
            fallback: RoundRobin::new(scenario),
        })
    }

    /// Latest report of a node that has arrived, if the node is live.
    fn word(&self, node: usize, now: f64) -> Option<Word> {
        let known = |word: &&Word| word.bound > 0.0 && word.at + 2.0 * self.network <= now;
        let word = self.words[node].iter().find(known)?;
        (now - word.at <= self.lease).then_some(*word)
    }

    /// Weights for the ring: capacities, or the papers' bounds.
    fn weights(&self, now: f64) -> Vec<f64> {
        let words: Vec<Option<Word>> = (0..self.words.len())
            .map(|node| self.word(node, now))
            .collect();
        let bound = |word: &Option<Word>| word.map_or(0.0, |word| word.bound);
        if !self.load_line {
            return words.iter().map(bound).collect();
        }
        let capacities: Vec<Option<f64>> =
            words.iter().map(|word| word.as_ref()?.capacity).collect();
        let weights = ring_weights(&capacities);
        let live = |(word, weight): (&Option<Word>, f64)| if word.is_some() { weight } else { 0.0 };
        words.iter().zip(weights).map(live).collect()
    }

    fn turn_ring(&mut self, now: f64) {
        let bounds = self.weights(now);
        let Some(ring) = &mut self.ring else { return };
        let Ok(wanted) = ring_sizes(&bounds, ring.slots()) else {
            return;
        };
        if !worth_moving(&ring.sizes(), &wanted, DEAD_BAND) {
            return;
        }
        if let Ok(delta) = ring.change_to(&wanted) {
            let before = ring.owners().to_vec();
            if ring.apply(&delta, wanted.len()).is_ok() {
                self.moved += before
                    .iter()
                    .zip(ring.owners())
                    .filter(|(old, new)| old != new)
                    .count() as u64;
            }
        }
    }
}

impl Policy for Plimsoll {
    fn place(&mut self, ask: &Ask<'_>, mut random: &mut dyn FnMut() -> u32) -> Placed {
        let dispatcher = &mut self.dispatchers[ask.proxy];
        let verdict = dispatcher.admit(
            ask.now,
            Some(ask.hash),
            ask.items,
            Class::HIGHEST,
            &mut random,
        );
        for (refused, asked) in &mut self.refused {
            *refused += u64::from(matches!(verdict, Verdict::Full));
            *asked += 1;
        }
        match verdict {
            Verdict::Placed(held) => Placed::Node {
                node: held.place(),
                held: Some(held),
            },
            Verdict::Full => Placed::Refused,
            Verdict::Unknown => Placed::on(self.fallback.next(ask.proxy, ask.up)),
        }
    }

    fn ended(&mut self, ended: &Ended, held: Option<Held>) {
        let dispatcher = &mut self.dispatchers[ended.proxy];
        if let Some(held) = held {
            dispatcher.release(held);
            match ended.status {
                Some(status) => dispatcher.answered(ended.node, ended.delay, status, ended.items),
                None => dispatcher.unanswered(ended.node, ended.now),
            }
        }
    }

    fn observed(&mut self, now: f64, node: usize, seen: &Observation) {
        let mut seen = seen.clone();
        let (refused, asked) = std::mem::take(&mut self.refused[node]);
        seen.refused_share = (asked > 0).then(|| refused as f64 / asked as f64);
        let seen = &seen;
        let decision = self.controllers[node].step(Some(seen));
        if let Some(updating) = self.updating.get_mut(node) {
            updating.observed(seen, &decision);
        }
        let measured = decision.measured_delay.map_or(0.0, Seconds::get);
        let word = Word {
            at: now,
            bound: decision.bound.get(),
            capacity: decision.capacity.map(Cost::get),
            bound_jobs: decision.bound_jobs,
            mean_cost: decision.mean_cost.get(),
            jobs: seen.jobs.unwrap_or(0.0),
            load: measured / self.sla,
        };
        self.words[node] = [word, self.words[node][0]];
        self.turn_ring(now);
    }

    fn exchange(&mut self, now: f64, proxy: usize, up: &[bool]) -> bool {
        let dispatcher = &mut self.dispatchers[proxy];
        dispatcher.on_time(now);
        // An early exchange belongs to the same period.
        if now - self.period_began[proxy] > 0.5 * self.period {
            self.period_began[proxy] = now;
            dispatcher.end_period();
        }
        let mut reports = dispatcher.report().into_iter().peekable();
        let mut shares = Vec::with_capacity(up.len());
        for (node, up) in up.iter().enumerate() {
            let name = &self.names[node];
            let report = reports.next_if(|report| report.name == *name);
            let Some(word) = self.word(node, now) else {
                continue;
            };
            let (demand, held) = report.map_or((0.0, 0.0), |report| (report.demand, report.held));
            let granted = self.sharing.grant(node, proxy, demand, held, word.bound);
            shares.push(share(name, granted, &word, *up));
        }
        if shares.is_empty() {
            return true;
        }
        let dispatchers = self.dispatchers.len();
        let dispatcher = &mut self.dispatchers[proxy];
        let early = dispatcher.on_shares(now, dispatchers, &shares);
        if let Some(ring) = &self.ring
            && dispatcher.ring_version() != Some(ring.version())
        {
            dispatcher.on_ring(ring.clone(), self.names.clone());
        }
        early && dispatchers > 1
    }

    fn updates(&self, node: usize) -> Option<UpdateLoad> {
        Some(self.updating.get(node)?.load())
    }

    fn bounds(&self) -> f64 {
        self.words.iter().map(|[word, _]| word.bound).sum()
    }

    fn slots_moved(&self) -> u64 {
        self.moved
    }
}
