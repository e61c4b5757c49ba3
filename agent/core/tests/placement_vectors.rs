//! `vectors/placement.json`: decisions and reports of a dispatcher's follower of the table of primaries, step by step,
//! and the rests of names; Lua's must be the same.
//!
//! `PLIMSOLL_WRITE_VECTORS=1 cargo test -p plimsoll-core --test placement_vectors` writes it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod vectors;

use plimsoll_core::placement::*;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use vectors::compare;

const NODES: u32 = 4;
const NAMES: [&str; 9] = [
    "a",
    "b",
    "orders",
    "customers/7",
    "=x",
    "*3",
    ">",
    "~\"'\\",
    "S0001",
];

fn word(set: &ObjectSet) -> String {
    match set {
        ObjectSet::Named(name) => format!("={name}"),
        ObjectSet::Rest(rest) => format!("*{rest}"),
    }
}

fn state(state: Option<State>) -> String {
    match state {
        Some(State::Settled(node)) => format!("node{node}"),
        Some(State::Leaving(node)) => format!(">node{node}"),
        None => "-".to_owned(),
    }
}

fn delta_text(delta: &Delta) -> String {
    let mut text = format!("{} {}", delta.from, delta.to);
    for (set, to) in &delta.entries {
        text += &format!(" {} {}", word(set), state(*to));
    }
    text
}

fn table_words(table: &Table) -> Vec<String> {
    let entries = table.entries();
    entries
        .flat_map(|(set, to)| [word(&set), state(Some(to))])
        .collect()
}

struct Run {
    random: SmallRng,
    keeper: Keeper,
    follower: Follower,
    id: DispatcherId,
    joined: bool,
    tickets: Vec<Option<Ticket>>,
    missed: Vec<Delta>,
    steps: Vec<Value>,
}

impl Run {
    fn new(seed: u64) -> Self {
        Run {
            random: SmallRng::seed_from_u64(seed),
            keeper: Keeper::new(Table::new(|rest| u32::from(rest) % NODES)),
            follower: Follower::default(),
            id: 1,
            joined: false,
            tickets: Vec::new(),
            missed: Vec::new(),
            steps: Vec::new(),
        }
    }

    fn join(&mut self) -> Value {
        if self.joined {
            self.keeper.left(self.id, true);
        }
        self.id += 1;
        let table = self.keeper.join(self.id).unwrap();
        self.joined = true;
        let step =
            json!({"op": "join", "version": table.version(), "entries": table_words(&table)});
        self.follower.joined(table);
        step
    }

    /// The keeper acts, and the follower gets the change, or misses it.
    fn plan(&mut self) -> Value {
        let before = self.keeper.table().version();
        let to = self.random.random_range(0..NODES);
        let name = NAMES[self.random.random_range(0..NAMES.len())];
        let set = self.keeper.table().set_of(name);
        let is_named = self.keeper.table().is_named(name);
        let change = match self.random.random_range(0..3) {
            0 if !is_named => Change::Name(name.into(), to),
            1 if is_named => Change::Forget(name.into()),
            _ => Change::Move(set, to),
        };
        self.keeper.begin(&[change]).unwrap();
        self.tell(before)
    }

    fn tell(&mut self, before: u64) -> Value {
        if let News::Deltas(deltas) = self.keeper.news(Some(before)) {
            self.missed.extend(deltas);
        }
        self.hear()
    }

    fn hear(&mut self) -> Value {
        if self.missed.is_empty() {
            return json!({"op": "none"});
        }
        let late = self.random.random_bool(0.2);
        let which = if late {
            self.random.random_range(0..self.missed.len())
        } else {
            0
        };
        let delta = if self.random.random_bool(0.2) {
            self.missed[which].clone()
        } else {
            self.missed.remove(which)
        };
        self.take(&delta)
    }

    fn take(&mut self, delta: &Delta) -> Value {
        let gap = match self.follower.on_delta(delta) {
            Ok(()) => Value::Null,
            Err(Gap::Late) => json!("late"),
            Err(Gap::Missed) => json!("missed"),
            Err(Gap::Wrong) => json!("wrong"),
        };
        json!({"op": "delta", "text": delta_text(delta), "gap": gap})
    }

    fn wrong(&mut self) -> Value {
        let from = self.follower.version().unwrap_or(1);
        let set = match self.random.random_range(0..3) {
            0 => (ObjectSet::Rest(64), Some(State::Settled(1))),
            1 => (ObjectSet::Rest(3), None),
            _ => (ObjectSet::Named("Ü".into()), Some(State::Settled(1))),
        };
        self.take(&Delta {
            from,
            to: from + 1,
            entries: vec![set],
        })
    }

    fn route(&mut self) -> Value {
        let name = NAMES[self.random.random_range(0..NAMES.len())];
        let node = match self.follower.route(name).unwrap() {
            Route::Go(ticket) => {
                let node = json!(format!("node{}", ticket.node()));
                self.tickets.push(Some(ticket));
                node
            }
            Route::Wait => Value::Null,
        };
        json!({"op": "route", "name": name, "rest": rest_of(name), "node": node})
    }

    fn end(&mut self, answered: bool) -> Value {
        let open: Vec<usize> = (0..self.tickets.len())
            .filter(|at| self.tickets[*at].is_some())
            .collect();
        if open.is_empty() {
            return json!({"op": "none"});
        }
        let which = open[self.random.random_range(0..open.len())];
        let ticket = self.tickets[which].take().unwrap();
        if answered {
            self.follower.answered(ticket);
            json!({"op": "answered", "ticket": which})
        } else {
            self.follower.unanswered(ticket);
            json!({"op": "unanswered", "ticket": which})
        }
    }

    /// The keeper processes the follower's report, which may end handovers.
    fn report(&mut self) -> Value {
        let before = self.keeper.table().version();
        if let (true, Some((version, busy))) = (self.joined, self.follower.report()) {
            self.keeper.heard(self.id, version, &busy).unwrap();
        }
        self.tell(before)
    }

    fn whole(&mut self) -> Value {
        self.missed.clear();
        let table = self.keeper.table().clone();
        let step =
            json!({"op": "table", "version": table.version(), "entries": table_words(&table)});
        self.follower.on_table(table);
        step
    }

    fn step(&mut self) {
        let mut step = match self.random.random_range(0..100) {
            0..30 => self.route(),
            30..48 => self.end(true),
            48..54 => self.end(false),
            54..66 => self.plan(),
            66..78 => self.hear(),
            78..88 => self.report(),
            88..91 => {
                // For as long as a request may take, and longer.
                for node in self.follower.in_doubt() {
                    self.follower.vouched(node);
                }
                json!({"op": "later"})
            }
            91..94 => self.whole(),
            94..96 => self.wrong(),
            96 => {
                self.follower.suspend();
                json!({"op": "suspend"})
            }
            _ if self.follower.version().is_none() => self.join(),
            _ => json!({"op": "none"}),
        };
        if step["op"] == "none" {
            return;
        }
        if let Some((version, busy)) = self.follower.report() {
            let mut busy: Vec<String> = busy.iter().map(word).collect();
            busy.sort_unstable();
            step["told"] = json!(version);
            step["busy"] = json!(busy);
        }
        let is_idle =
            self.tickets.iter().all(Option::is_none) && self.follower.in_doubt().is_empty();
        step["idle"] = json!(is_idle);
        self.steps.push(step);
    }
}

#[test]
fn follower_matches_vectors() {
    let cases = (0..6).map(|seed| {
        let mut run = Run::new(seed);
        let first = run.join();
        run.steps.push(first);
        for _ in 0..250 {
            run.step();
        }
        assert!(run.keeper.table().version() > 20, "nothing moved");
        json!({"steps": run.steps})
    });
    compare(
        "placement.json",
        "steps of a follower: join, table (version, entries: set, state, …), delta (text; gap: why it is not taken), route (rest of the name; node, null: waits; a ticket for each that goes, counted from 0), answered, unanswered, later (doubts are over), suspend; after each, what is told (version, busy; absent: nothing) and whether it is idle",
        cases.collect(),
    );
}
