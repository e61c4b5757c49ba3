//! Gathers do not deadlock: all interleavings of a few queries, and some of many, on the agents' decision code.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashSet;

use plimsoll_scatter::answer::{Cores, MAX_HOPS};
use rand::{Rng, SeedableRng, rngs::SmallRng, seq::IndexedRandom};

/// Rows of a query, and the number that fits into the buffers between it and its caller.
const ROWS: u8 = 2;
const ROOM: u8 = 1;

/// Rules of an agent; without any one of them, gathers deadlock.
#[derive(Clone, Copy)]
struct Rules {
    /// A query releases its core before it waits for its caller.
    rests: bool,
    /// A query without a place is refused and does not wait, as is one beyond a service's bound.
    refuses: bool,
    /// Queries of other agents use other cores than those that the agents hold.
    counts_hops: bool,
}

const RULES: Rules = Rules {
    rests: true,
    refuses: true,
    counts_hops: true,
};

/// Consumer of a query's rows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asker {
    Gather(usize),
    /// A query in an agent whose partition is at another agent.
    Query(usize),
}

#[derive(Clone, Debug)]
struct Asked {
    by: Asker,
    /// Replicas, in the order in which they are tried.
    nodes: Vec<usize>,
    hops: usize,
    /// Query whose rows it forwards.
    of: Option<usize>,
}

/// Queries, and what runs them.
#[derive(Clone, Debug, Default)]
struct World {
    queries: Vec<Asked>,
    /// Whether each merges in order.
    gathers: Vec<bool>,
    nodes: usize,
    cores: usize,
    places: usize,
}

impl World {
    fn new(nodes: usize, cores: usize) -> Self {
        let places = usize::MAX;
        World {
            nodes,
            cores,
            places,
            ..World::default()
        }
    }

    /// A gather from partitions, each with its nodes.
    fn gather(mut self, is_ordered: bool, partitions: &[&[usize]]) -> Self {
        for nodes in partitions {
            self.queries.push(Asked {
                by: Asker::Gather(self.gathers.len()),
                nodes: nodes.to_vec(),
                hops: 0,
                of: None,
            });
        }
        self.gathers.push(is_ordered);
        self
    }

    /// The last query's rows come from there.
    fn by_way_of(mut self, node: usize) -> Self {
        let last = self.queries.len();
        let asker = &mut self.queries[last - 1];
        asker.of = Some(last);
        let hops = asker.hops + 1;
        assert!(hops <= MAX_HOPS);
        self.queries.push(Asked {
            by: Asker::Query(last - 1),
            nodes: vec![node],
            hops,
            of: None,
        });
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// Number of its nodes that refused it.
    Unasked(usize),
    /// At this one of its nodes: works, or is queued for a core.
    Active(usize),
    /// Waits for its caller.
    Resting(usize),
    Ended,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    cores: Vec<Cores>,
    stages: Vec<Stage>,
    /// That it has not sent.
    left: Vec<u8>,
    /// That were not taken.
    sent: Vec<u8>,
}

/// Possible next event.
#[derive(Clone, Copy, Debug)]
enum Event {
    Ask(usize),
    Send(usize),
    Rest(usize),
    Resume(usize),
    End(usize),
    /// A gather takes a row of this query.
    Take(usize),
}

struct Model {
    world: World,
    rules: Rules,
}

impl Model {
    fn begin(&self) -> State {
        let count = self.world.queries.len();
        State {
            cores: vec![Cores::new(self.world.cores); self.world.nodes * self.classes()],
            stages: vec![Stage::Unasked(0); count],
            left: vec![ROWS; count],
            sent: vec![0; count],
        }
    }

    fn cores(&self, query: usize, at: usize) -> usize {
        let Asked { nodes, hops, .. } = &self.world.queries[query];
        let hops = if self.rules.counts_hops { *hops } else { 0 };
        nodes[at] * self.classes() + hops
    }

    fn classes(&self) -> usize {
        let hops = self.world.queries.iter().map(|query| query.hops);
        1 + hops.max().unwrap_or_default()
    }

    fn works(&self, state: &State, query: usize) -> bool {
        match state.stages[query] {
            Stage::Active(at) => state.cores[self.cores(query, at)].has(query as u64),
            _ => false,
        }
    }

    fn has_place(&self, state: &State, node: usize) -> bool {
        let at = |(query, stage): (&Asked, &Stage)| match stage {
            Stage::Active(at) | Stage::Resting(at) => query.nodes[*at] == node,
            _ => false,
        };
        let all = self.world.queries.iter().zip(&state.stages);
        all.filter(|it| at(*it)).count() < self.world.places
    }

    fn event(&self, state: &State, query: usize) -> Option<Event> {
        let asked = &self.world.queries[query];
        match state.stages[query] {
            Stage::Unasked(at) => {
                let may = match asked.by {
                    Asker::Gather(_) => true,
                    Asker::Query(by) => self.works(state, by),
                };
                let waits = !self.rules.refuses && !self.has_place(state, asked.nodes[at]);
                (may && !waits).then_some(Event::Ask(query))
            }
            Stage::Active(_) if !self.works(state, query) => None,
            Stage::Active(_) if state.left[query] == 0 => Some(Event::End(query)),
            Stage::Active(_) if state.sent[query] < ROOM => {
                let comes = asked.of.is_none_or(|of| state.sent[of] > 0);
                comes.then_some(Event::Send(query))
            }
            Stage::Active(_) => self.rules.rests.then_some(Event::Rest(query)),
            Stage::Resting(_) => (state.sent[query] < ROOM).then_some(Event::Resume(query)),
            Stage::Ended | Stage::Failed => None,
        }
    }

    fn events(&self, state: &State) -> Vec<Event> {
        let all = 0..self.world.queries.len();
        let mut events: Vec<Event> = all.filter_map(|it| self.event(state, it)).collect();
        for (gather, is_ordered) in self.world.gathers.iter().enumerate() {
            let own = || {
                let all = self.world.queries.iter().enumerate();
                let own = all.filter(move |(_, it)| it.by == Asker::Gather(gather));
                own.map(|(query, _)| query)
            };
            let lacks = |query| state.sent[query] == 0 && state.stages[query] != Stage::Ended;
            if !(*is_ordered && own().any(lacks)) {
                // Whichever is first in order.
                let there = own().filter(|query| state.sent[*query] > 0);
                events.extend(there.map(Event::Take));
            }
        }
        events
    }

    fn after(&self, state: &State, event: Event) -> State {
        let mut state = state.clone();
        match event {
            Event::Ask(query) => {
                let Stage::Unasked(at) = state.stages[query] else {
                    unreachable!()
                };
                let nodes = &self.world.queries[query].nodes;
                if self.has_place(&state, nodes[at]) {
                    self.work(&mut state, query, at);
                } else if at + 1 < nodes.len() {
                    state.stages[query] = Stage::Unasked(at + 1);
                } else {
                    self.fail(&mut state, query);
                }
            }
            Event::Send(query) => {
                state.left[query] -= 1;
                state.sent[query] += 1;
                if let Some(of) = self.world.queries[query].of {
                    state.sent[of] -= 1;
                }
            }
            Event::Rest(query) => self.leave(&mut state, query, Stage::Resting),
            Event::Resume(query) => {
                if let Stage::Resting(at) = state.stages[query] {
                    self.work(&mut state, query, at);
                }
            }
            Event::End(query) => self.leave(&mut state, query, |_| Stage::Ended),
            Event::Take(query) => state.sent[query] -= 1,
        }
        state
    }

    fn work(&self, state: &mut State, query: usize, at: usize) {
        state.cores[self.cores(query, at)].work(query as u64);
        state.stages[query] = Stage::Active(at);
    }

    fn leave(&self, state: &mut State, query: usize, to: impl Fn(usize) -> Stage) {
        let at = match state.stages[query] {
            Stage::Active(at) | Stage::Resting(at) => {
                state.cores[self.cores(query, at)].rest(query as u64);
                at
            }
            _ => 0,
        };
        state.stages[query] = to(at);
    }

    /// Ends the callers too, with all of their queries.
    fn fail(&self, state: &mut State, query: usize) {
        let by = self.world.queries[query].by;
        if let Asker::Query(by) = by {
            return self.fail(state, by);
        }
        for own in 0..self.world.queries.len() {
            let mut asker = own;
            while let Asker::Query(by) = self.world.queries[asker].by {
                asker = by;
            }
            if self.world.queries[asker].by == by {
                self.leave(state, own, |_| Stage::Failed);
                (state.left[own], state.sent[own]) = (0, 0);
            }
        }
    }

    fn is_over(&self, state: &State) -> bool {
        let over = |stage: &Stage| matches!(stage, Stage::Ended | Stage::Failed);
        state.stages.iter().all(over) && state.sent.iter().all(|sent| *sent == 0)
    }

    /// Whether a deadlock is reachable: a state without events before all gathers have ended.
    fn gets_stuck(&self) -> bool {
        let begin = self.begin();
        let (mut seen, mut open) = (HashSet::from([begin.clone()]), vec![begin]);
        while let Some(state) = open.pop() {
            let events = self.events(&state);
            if events.is_empty() && !self.is_over(&state) {
                return true;
            }
            for event in events {
                let next = self.after(&state, event);
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        false
    }

    /// Final state of one interleaving.
    fn walk(&self, random: &mut SmallRng) -> State {
        let mut state = self.begin();
        while let Some(event) = self.events(&state).choose(random) {
            state = self.after(&state, *event);
        }
        state
    }
}

fn stuck(world: &World, rules: Rules) -> bool {
    let world = world.clone();
    Model { world, rules }.gets_stuck()
}

#[track_caller]
fn needs(world: &World, without: Rules) {
    assert!(stuck(world, without), "does not get stuck: {world:?}");
    assert!(!stuck(world, RULES), "gets stuck: {world:?}");
}

const KEEPS: Rules = Rules {
    rests: false,
    ..RULES
};

#[test]
fn gather_of_more_partitions_than_cores_does_not_deadlock() {
    needs(&World::new(1, 1).gather(true, &[&[0], &[0], &[0]]), KEEPS);
    needs(&World::new(1, 2).gather(true, &[&[0], &[0], &[0]]), KEEPS);
    let two_nodes = World::new(2, 1).gather(true, &[&[0], &[0], &[1], &[1]]);
    needs(&two_nodes, KEEPS);
    // Without an order all were well.
    assert!(!stuck(
        &World::new(1, 1).gather(false, &[&[0], &[0], &[0]]),
        KEEPS
    ));
}

#[test]
fn concurrent_gathers_do_not_deadlock() {
    let pair: &[&[usize]] = &[&[0], &[1]];
    needs(
        &World::new(2, 1).gather(true, pair).gather(true, pair),
        KEEPS,
    );
    let mixed = World::new(2, 1).gather(true, pair);
    needs(&mixed.gather(true, pair).gather(false, &[&[0]]), KEEPS);
}

#[test]
fn queries_without_a_place_are_refused() {
    let waits = Rules {
        refuses: false,
        ..RULES
    };
    let pair: &[&[usize]] = &[&[0], &[1]];
    let mut world = World::new(2, 1).gather(true, pair).gather(true, pair);
    world.places = 1;
    needs(&world, waits);
    let replicas: &[&[usize]] = &[&[0, 1], &[1, 0]];
    let mut world = World::new(2, 1)
        .gather(true, replicas)
        .gather(true, replicas);
    world.places = 1;
    needs(&world, waits);
    world.places = 2;
    needs(&world, KEEPS);
}

#[test]
fn agents_that_query_each_other_do_not_deadlock() {
    let one_class = Rules {
        counts_hops: false,
        ..RULES
    };
    let own = World::new(1, 1).gather(false, &[&[0]]).by_way_of(0);
    needs(&own, one_class);
    let crossed = World::new(2, 1).gather(false, &[&[0]]).by_way_of(1);
    let crossed = crossed.gather(false, &[&[1]]).by_way_of(0);
    needs(&crossed, one_class);
    let both = World::new(2, 1).gather(true, &[&[0], &[1]]).by_way_of(0);
    let both = both.gather(true, &[&[0], &[1]]).by_way_of(0);
    needs(&both, KEEPS);
}

#[test]
fn many_gathers_over_many_nodes_end() {
    let mut random = SmallRng::seed_from_u64(1);
    let mut kept = 0;
    for _ in 0..300 {
        let nodes = random.random_range(1..4);
        let mut world = World::new(nodes, random.random_range(1..3));
        for _ in 0..random.random_range(1..5) {
            let partitions = random.random_range(1..5);
            let replicas: Vec<[usize; 2]> = (0..partitions)
                .map(|_| [(); 2].map(|()| random.random_range(0..nodes)))
                .collect();
            let partitions: Vec<&[usize]> = replicas.iter().map(|it| &it[..]).collect();
            world = world.gather(random.random_bool(0.8), &partitions);
            for _ in 0..random.random_range(0..=MAX_HOPS) {
                world = world.by_way_of(random.random_range(0..nodes));
            }
        }
        world.places = random.random_range(2..12);
        let mut ends = |rules| {
            let world = world.clone();
            let model = Model { world, rules };
            model.is_over(&model.walk(&mut random))
        };
        assert!(ends(RULES));
        kept += usize::from(!ends(KEEPS));
    }
    assert!(kept > 0);
}
