//! Classes of requests at a node that is full.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{cmp::Reverse, collections::BinaryHeap};

use plimsoll_core::{
    dispatch::{Class, DispatchSettings, Dispatcher, Held, NodeShare, Placement, Verdict},
    ring::RingTable,
    schedule::NewsSettings,
};
use rand::{Rng, SeedableRng, rngs::SmallRng};

/// Requests in flight that each node's share admits, and those of them that it serves at once; the others wait. Room
/// for the higher classes (10 requests at the load of the first test) is less than what may wait.
const SHARE: usize = 20;
const WORKERS: usize = 2;
/// Mean time of a request in a worker, in seconds.
const SERVICE: f64 = 0.02;
const NODES: usize = 3;
/// Requests per second that all nodes can serve.
const CAPACITY: f64 = (NODES * WORKERS) as f64 / SERVICE;

/// What was asked, admitted and served, by class.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    asked: [f64; Class::COUNT],
    admitted: [f64; Class::COUNT],
}

impl Counts {
    fn goodput(&self, class: usize) -> f64 {
        self.admitted[class] / self.asked[class]
    }

    fn all_admitted(&self) -> f64 {
        self.admitted.iter().sum()
    }
}

/// Dispatchers in front of nodes with exponential times, and with arrivals that follow Poisson's law.
struct Plant {
    dispatchers: Vec<Dispatcher>,
    random: SmallRng,
    now: f64,
    period_ends: f64,
    /// By worker of each node.
    free_at: [[f64; WORKERS]; NODES],
    /// In microseconds, with the number in `held`.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    /// With the number of their dispatcher.
    held: Vec<Option<(usize, Held)>>,
}

fn dispatcher(placement: Placement, share: f64) -> Dispatcher {
    let mut dispatcher = Dispatcher::new(DispatchSettings {
        placement,
        age_limit: f64::INFINITY,
        lease: f64::INFINITY,
        spill: 0.5,
        least_cost: 1.0,
        news: NewsSettings::default(),
    });
    let names: Vec<String> = (0..NODES).map(|number| format!("node{number}")).collect();
    let share = |name: &String| NodeShare {
        name: name.clone(),
        address: String::new(),
        granted: share,
        bound_jobs: share,
        mean_cost: 1.0,
        jobs: 0.0,
        load: 0.0,
    };
    dispatcher.on_shares(0.0, 1, &names.iter().map(share).collect::<Vec<_>>());
    let owners = (0..=u8::MAX).map(|slot| slot % NODES as u8);
    let table = RingTable::from_owners(1, NODES, owners.collect()).unwrap();
    dispatcher.on_ring(table, names);
    dispatcher
}

impl Plant {
    fn new(placement: Placement) -> Self {
        Plant::shared(placement, 1, SHARE as f64)
    }

    /// Each node's bound of so many requests is shared by that many dispatchers.
    fn shared(placement: Placement, dispatchers: usize, bound: f64) -> Self {
        let share = bound / dispatchers as f64;
        Plant {
            dispatchers: (0..dispatchers)
                .map(|_| dispatcher(placement, share))
                .collect(),
            random: SmallRng::seed_from_u64(7),
            now: 0.0,
            period_ends: 1.0,
            free_at: [[0.0; WORKERS]; NODES],
            ends: BinaryHeap::new(),
            held: Vec::new(),
        }
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.random.random::<f64>()).ln() * mean
    }

    /// Runs for `seconds` with this load of each class, as a part of the capacity.
    fn run(&mut self, seconds: f64, loads: [f64; Class::COUNT]) -> Counts {
        let mut counts = Counts::default();
        let end = self.now + seconds;
        let load: f64 = loads.iter().sum();
        loop {
            self.now += self.exponential(1.0 / (load * CAPACITY));
            if self.now > end {
                return counts;
            }
            self.until(self.now);
            let mut drawn = self.random.random::<f64>() * load;
            let number = loads.iter().position(|part| {
                drawn -= part;
                drawn < 0.0
            });
            let number = number.unwrap_or(0);
            counts.asked[number] += 1.0;
            let hash = self.random.random();
            let by = self.random.random_range(0..self.dispatchers.len());
            let random = &mut self.random;
            let class = Class::new(number as u64);
            let verdict = self.dispatchers[by]
                .admit(self.now, Some(hash), 1.0, class, &mut || random.random());
            if let Verdict::Placed(held) = verdict {
                counts.admitted[number] += 1.0;
                self.start(by, held);
            }
        }
    }

    fn start(&mut self, by: usize, held: Held) {
        let service = self.exponential(SERVICE);
        let workers = &mut self.free_at[held.place()];
        let soonest = workers.iter_mut().min_by(|a, b| a.total_cmp(b)).unwrap();
        *soonest = soonest.max(self.now) + service;
        self.ends
            .push(Reverse(((*soonest * 1e6) as u64, self.held.len())));
        self.held.push(Some((by, held)));
    }

    fn until(&mut self, now: f64) {
        while let Some(Reverse((end, number))) = self.ends.peek().copied() {
            if end as f64 > now * 1e6 {
                break;
            }
            self.ends.pop();
            let (by, held) = self.held[number].take().expect("ends once");
            self.dispatchers[by].release(held);
        }
        while self.period_ends <= now {
            for dispatcher in &mut self.dispatchers {
                dispatcher.end_period();
            }
            self.period_ends += 1.0;
        }
    }
}

const PLACEMENTS: [Placement; 2] = [Placement::FcProp, Placement::FcHash];

#[test]
fn lower_classes_are_refused_first_and_the_nodes_stay_busy() {
    for placement in PLACEMENTS {
        let mut plant = Plant::new(placement);
        plant.run(5.0, [0.6, 0.0, 0.0, 2.4]);
        let with = plant.run(300.0, [0.6, 0.0, 0.0, 2.4]);
        let without = Plant::new(placement).run(300.0, [3.0, 0.0, 0.0, 0.0]);
        assert!(with.goodput(0) >= 0.99, "{placement:?}: {with:?}");
        let busy = with.all_admitted() / without.all_admitted();
        assert!(busy >= 0.98, "{placement:?}: {busy}");
    }
}

#[test]
fn the_highest_class_comes_first_where_each_dispatcher_has_few_places() {
    for placement in PLACEMENTS {
        for (dispatchers, bound, least_busy) in
            [(1, 4.0, 0.85), (2, 4.0, 0.9), (4, 4.0, 0.6), (4, 8.0, 0.98)]
        {
            let mut plant = Plant::shared(placement, dispatchers, bound);
            plant.run(5.0, [0.6, 0.0, 0.0, 2.4]);
            let with = plant.run(300.0, [0.6, 0.0, 0.0, 2.4]);
            let mut plant = Plant::shared(placement, dispatchers, bound);
            let without = plant.run(300.0, [3.0, 0.0, 0.0, 0.0]);
            let case = format!("{placement:?}, {dispatchers} dispatchers, bound {bound}");
            assert!(with.goodput(0) >= 0.99, "{case}: {with:?}");
            let busy = with.all_admitted() / without.all_admitted();
            assert!(busy >= least_busy, "{case}: {busy}");
        }
    }
}

#[test]
fn after_an_overload_lower_classes_are_admitted_to_few_places_again() {
    for placement in PLACEMENTS {
        for (dispatchers, bound) in [(1, 4.0), (2, 6.0), (4, 12.0)] {
            let calm = |plant: &mut Plant| plant.run(20.0, [0.1, 0.0, 0.0, 0.4]).goodput(3);
            let mut plant = Plant::shared(placement, dispatchers, bound);
            let before = calm(&mut plant);
            plant.run(30.0, [0.6, 0.0, 0.0, 2.4]);
            plant.run(5.0, [0.1, 0.0, 0.0, 0.4]);
            let after = calm(&mut plant);
            let case = format!("{placement:?}, {dispatchers} dispatchers, bound {bound}");
            assert!(after > before - 0.02, "{case}: {before}, {after}");
        }
    }
}

#[test]
fn each_class_comes_before_those_below() {
    for placement in PLACEMENTS {
        let mut plant = Plant::new(placement);
        plant.run(10.0, [0.3, 0.3, 0.6, 1.8]);
        let counts = plant.run(60.0, [0.3, 0.3, 0.6, 1.8]);
        assert!(counts.goodput(0) >= 0.99, "{placement:?}: {counts:?}");
        assert!(counts.goodput(1) >= 0.98, "{placement:?}: {counts:?}");
        assert!(
            counts.goodput(2) > 2.0 * counts.goodput(3),
            "{placement:?}: {counts:?}"
        );
    }
}

#[test]
fn a_burst_of_the_higher_class_is_over_for_the_lower_one_soon_after() {
    for placement in PLACEMENTS {
        let mut plant = Plant::new(placement);
        let before = plant.run(20.0, [0.2, 0.0, 0.0, 2.0]);
        plant.run(2.0, [10.0, 0.0, 0.0, 2.0]);
        plant.run(10.0, [0.2, 0.0, 0.0, 2.0]);
        let after = plant.run(20.0, [0.2, 0.0, 0.0, 2.0]);
        let (before, after) = (before.goodput(3), after.goodput(3));
        assert!(after > 0.9 * before, "{placement:?}: {before}, {after}");
    }
}

#[test]
fn a_lower_class_has_all_the_room_where_no_other_asks_for_it() {
    for placement in PLACEMENTS {
        let mut plant = Plant::new(placement);
        let alone = plant.run(60.0, [0.0, 0.0, 0.0, 2.0]);
        let highest = Plant::new(placement).run(60.0, [2.0, 0.0, 0.0, 0.0]);
        assert_eq!(alone.admitted[3], highest.admitted[0]);
        plant.run(20.0, [2.0, 0.0, 0.0, 2.0]);
        // A tenth of what is kept free is given back each period.
        plant.run(80.0, [0.0, 0.0, 0.0, 2.0]);
        let again = plant.run(60.0, [0.0, 0.0, 0.0, 2.0]);
        let (alone, again) = (alone.goodput(3), again.goodput(3));
        assert!(
            (again - alone).abs() < 0.02,
            "{placement:?}: {alone}, {again}"
        );
    }
}

#[test]
fn the_highest_class_takes_all_if_it_needs_it() {
    for placement in PLACEMENTS {
        let mut plant = Plant::new(placement);
        plant.run(5.0, [3.0, 0.0, 0.0, 3.0]);
        let counts = plant.run(20.0, [3.0, 0.0, 0.0, 3.0]);
        assert!(counts.goodput(3) < 0.01, "{placement:?}: {counts:?}");
    }
}

#[test]
fn large_numbers_are_the_lowest_class() {
    assert_eq!(Class::new(0), Class::HIGHEST);
    assert_eq!(Class::new(2).number(), 2);
    assert_eq!(Class::new(u64::MAX), Class::LOWEST);
}
