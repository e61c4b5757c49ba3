//! `vectors/dispatch.json`: decisions of a dispatcher, step by step; Lua's must decide the same.
//!
//! `PLIMSOLL_WRITE_VECTORS=1 cargo test -p plimsoll-core --test dispatch_vectors` writes it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod vectors;

use plimsoll_core::{
    dispatch::{Class, DispatchSettings, Dispatcher, Held, NodeShare, Placement, Verdict},
    ring::{RingTable, ring_sizes},
    schedule::{NewsSettings, Policy, UpdateAlgorithm},
};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use vectors::compare;

const NODES: [&str; 5] = ["node1", "node2", "node3", "node4", "node5"];
const POLICIES: [(&str, Placement); 8] = [
    ("fc_hash", Placement::FcHash),
    ("fc_prop", Placement::FcProp),
    ("round_robin", Placement::Scheduled(Policy::RoundRobin)),
    (
        "weighted_round_robin",
        Placement::Scheduled(Policy::WeightedRoundRobin),
    ),
    (
        "weighted_random",
        Placement::Scheduled(Policy::WeightedRandom),
    ),
    (
        "basic_li",
        Placement::Scheduled(Policy::BasicLi { arrivals: 100.0 }),
    ),
    ("job_informed", Placement::Scheduled(Policy::JobInformed)),
    (
        "load_informed",
        Placement::Scheduled(Policy::LoadInformed {
            max_nodes: 3,
            interval: 0.1,
            artificial: 0.05,
        }),
    ),
];

/// Random generator of both languages: Numerical Recipes' linear congruential one.
fn next(state: &mut u32) -> u32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    *state
}

struct Run {
    random: SmallRng,
    dispatcher: Dispatcher,
    state: u32,
    now: f64,
    held: Vec<Option<(Held, f64)>>,
    steps: Vec<Value>,
    /// Answers tell of the node's load.
    tells: bool,
    kind: Kind,
}

impl Run {
    fn shares(&mut self, first: bool) {
        let random = &mut self.random;
        let mut nodes = Vec::new();
        for name in NODES {
            // Now and then one is missing, or drained.
            let missing = !first && random.random_bool(0.1);
            let drained = !first && random.random_bool(0.1);
            let bound_jobs = f64::from(random.random_range(1..40_u32));
            let granted = bound_jobs * f64::from(random.random_range(0..100_u32));
            if !missing {
                nodes.push(NodeShare {
                    name: name.to_owned(),
                    address: String::new(),
                    granted: if drained { 0.0 } else { granted },
                    bound_jobs: if drained { 0.0 } else { bound_jobs },
                    mean_cost: f64::from(random.random_range(1..30_u32)),
                    jobs: f64::from(random.random_range(0..30_u32)),
                    load: f64::from(random.random_range(0..200_u32)) / 100.0,
                });
            }
        }
        let count = random.random_range(1..4_usize);
        let given_up = self.dispatcher.on_shares(self.now, count, &nodes);
        let nodes: Vec<Value> = nodes
            .iter()
            .map(|node| {
                json!([
                    node.name,
                    node.granted,
                    node.bound_jobs,
                    node.mean_cost,
                    node.jobs,
                    node.load
                ])
            })
            .collect();
        self.steps
            .push(json!({"do": "shares", "now": self.now, "dispatchers": count, "nodes": nodes, "given_up": given_up}));
    }

    fn ring(&mut self, version: u64) {
        let mut bounds: Vec<f64> = (0..NODES.len())
            .map(|_| f64::from(self.random.random_range(1..100_u32)))
            .collect();
        bounds[self.random.random_range(0..NODES.len())] = 0.0;
        // A node that the dispatcher has never heard of.
        bounds.push(20.0);
        let sizes = ring_sizes(&bounds, 64).unwrap();
        let empty = RingTable::empty(64).unwrap();
        let mut moves = empty.change_to(&sizes).unwrap().moves;
        for at in (1..moves.len()).rev() {
            let other = self.random.random_range(0..=at);
            let owner = moves[at].1;
            moves[at].1 = moves[other].1;
            moves[other].1 = owner;
        }
        let mut names: Vec<String> = NODES.iter().rev().map(|name| (*name).to_owned()).collect();
        names.push("stranger".to_owned());
        let owners: Vec<u8> = moves.iter().map(|(_, owner)| *owner).collect();
        let table = RingTable::from_owners(version, names.len(), owners.clone()).unwrap();
        self.dispatcher.on_ring(table, names.clone());
        self.steps
            .push(json!({"do": "ring", "version": version, "names": names, "owners": owners}));
    }

    fn admit(&mut self) {
        let hash = self
            .random
            .random_bool(0.9)
            .then(|| self.random.random::<u32>());
        let cost = f64::from(self.random.random_range(0..300_u32)) / 2.0;
        let class = self
            .kind
            .classes
            .then(|| self.random.random_range(0..4_u64));
        let state = &mut self.state;
        let verdict = self.dispatcher.admit(
            self.now,
            hash,
            cost,
            Class::new(class.unwrap_or(0)),
            &mut || next(state),
        );
        let told = match &verdict {
            Verdict::Placed(held) => json!(self.dispatcher.usage().nth(held.place()).unwrap().0),
            Verdict::Full => json!("full"),
            Verdict::Unknown => Value::Null,
        };
        let mut step =
            json!({"do": "admit", "now": self.now, "hash": hash, "cost": cost, "verdict": told});
        if let Some(class) = class {
            step["class"] = json!(class);
        }
        self.steps.push(step);
        self.held.push(match verdict {
            Verdict::Placed(held) => Some((held, self.now)),
            _ => None,
        });
    }

    fn end(&mut self) {
        let open: Vec<usize> = (0..self.held.len())
            .filter(|number| self.held[*number].is_some())
            .collect();
        let Some(number) = open.get(self.random.random_range(0..open.len().max(1))) else {
            return;
        };
        let (held, since) = self.held[*number].take().unwrap();
        let place = held.place();
        let mut told = None;
        if self.random.random_bool(0.1) {
            let left_at = self.random.random_bool(0.5).then_some(self.now);
            match left_at {
                Some(now) => self.dispatcher.left(place, now - since),
                None => self.dispatcher.unanswered(place, self.now),
            }
            self.steps
                .push(json!({"do": "abandon", "request": *number, "left_at": left_at}));
        } else {
            let status = if self.random.random_bool(0.1) {
                503
            } else {
                200
            };
            let items = self
                .random
                .random_bool(0.5)
                .then(|| f64::from(self.random.random_range(0..100_u32)));
            self.dispatcher.answered(
                place,
                self.now - since,
                status,
                items.unwrap_or(held.cost()),
            );
            let mut step = json!({"do": "finish", "request": *number, "now": self.now, "status": status, "items": items});
            if self.tells {
                let random = &mut self.random;
                let jobs = random
                    .random_bool(0.8)
                    .then(|| f64::from(random.random_range(0..30_u32)));
                let load = random
                    .random_bool(0.8)
                    .then(|| f64::from(random.random_range(0..200_u32)) / 100.0);
                told = Some((jobs, load));
                step["jobs"] = json!(jobs);
                step["load"] = json!(load);
            }
            self.steps.push(step);
        }
        self.dispatcher.release(held);
        if let Some((jobs, load)) = told {
            self.dispatcher.accessed(place, self.now, jobs, load);
        }
    }

    /// The process was stopped, and its shares have lapsed; its clock may have stood still meanwhile.
    fn stop(&mut self) {
        let since = self.now;
        self.now += f64::from(self.random.random_range(0..12_u32));
        self.dispatcher.lapse(since, self.now);
        self.steps
            .push(json!({"do": "lapse", "since": since, "now": self.now}));
    }

    fn time(&mut self) {
        self.dispatcher.on_time(self.now);
        self.steps.push(json!({"do": "time", "now": self.now}));
    }

    fn report(&mut self) {
        self.dispatcher.end_period();
        let report = self.dispatcher.report().into_iter();
        let nodes: Vec<Value> = report
            .map(|node| json!([node.name, node.demand, node.held, node.observation]))
            .collect();
        self.steps.push(json!({"do": "report", "nodes": nodes}));
    }
}

/// What happens in a run beyond the usual.
#[derive(Clone, Copy, Default)]
struct Kind {
    /// The process is stopped now and then.
    stops: bool,
    /// Requests are of all classes.
    classes: bool,
}

fn run(name: &str, placement: Placement, news: NewsSettings, seed: u64, kind: Kind) -> Value {
    let settings = DispatchSettings {
        placement,
        age_limit: 10.0,
        lease: 3.0,
        spill: 0.5,
        least_cost: 1.0,
        news,
    };
    let mut run = Run {
        random: SmallRng::seed_from_u64(seed),
        dispatcher: Dispatcher::new(settings),
        state: seed as u32,
        now: 100.0,
        held: Vec::new(),
        steps: Vec::new(),
        tells: news.update == UpdateAlgorithm::OnAccess,
        kind,
    };
    // Before there is any news.
    run.admit();
    run.shares(true);
    run.admit();
    run.ring(1);
    for step in 0..250 {
        run.now += f64::from(run.random.random_range(0..64_u32)) / 1024.0;
        if run.kind.stops {
            match run.random.random_range(0..100) {
                0..3 => run.stop(),
                3..30 => run.time(),
                _ => {}
            }
        }
        match run.random.random_range(0..100) {
            0..2 => run.shares(false),
            2..4 => run.ring(step + 2),
            4..6 => run.report(),
            6..70 => run.admit(),
            _ => run.end(),
        }
    }
    // Silence until it is stale.
    run.now += 9.5;
    run.admit();
    run.now += 10.0;
    run.admit();
    let update = match news.update {
        UpdateAlgorithm::Periodic => "periodic",
        UpdateAlgorithm::Continuous => "continuous",
        UpdateAlgorithm::OnAccess => "on_access",
    };
    json!({
        "policy": name, "update": update, "phase": news.phase, "seed": seed as u32, "age_limit": 10, "lease": 3, "spill": 0.5, "least_cost": 1,
        "servers": NODES, "steps": run.steps,
    })
}

#[test]
fn dispatcher_matches_vectors() {
    let mut cases = Vec::new();
    for (number, (name, placement)) in (0..).zip(POLICIES) {
        cases.push(run(
            name,
            placement,
            NewsSettings::default(),
            number,
            Kind::default(),
        ));
    }
    for seed in 100..103 {
        cases.push(run(
            "fc_hash",
            Placement::FcHash,
            NewsSettings::default(),
            seed,
            Kind::default(),
        ));
    }
    let updates = [
        UpdateAlgorithm::Periodic,
        UpdateAlgorithm::Continuous,
        UpdateAlgorithm::OnAccess,
    ];
    for (seed, update) in (200..).zip(updates) {
        let news = NewsSettings { update, phase: 2.0 };
        for (name, placement) in &POLICIES[6..] {
            cases.push(run(name, *placement, news, seed, Kind::default()));
        }
    }
    let stops = Kind {
        stops: true,
        ..Kind::default()
    };
    let classes = Kind {
        classes: true,
        ..Kind::default()
    };
    for (first, kind) in [(300, stops), (400, classes)] {
        for (seed, (name, placement)) in (first..).zip(&POLICIES[..3]) {
            cases.push(run(name, *placement, NewsSettings::default(), seed, kind));
        }
    }
    let what = "a dispatcher's decisions, step by step: shares and rings come and lapse, requests are admitted and end; a verdict is a node's name, full, or null where the proxy is to decide";
    compare("dispatch.json", what, cases);
}
