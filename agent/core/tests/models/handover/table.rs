//! Tables of primaries in a form that is small to copy and to compare: only the sets that move.

use plimsoll_core::placement::{Delta, NodeId, ObjectSet, RESTS, State, Table, rest_of};

/// Names of the object sets, of different rests.
pub const NAMES: [&str; 2] = ["a", "b"];
pub const NODES: u32 = 2;

/// [`State`] that can be hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    At(NodeId),
    Leaving(NodeId),
}

impl Entry {
    pub fn node(self) -> NodeId {
        match self {
            Entry::At(node) | Entry::Leaving(node) => node,
        }
    }

    fn state(self) -> State {
        match self {
            Entry::At(node) => State::Settled(node),
            Entry::Leaving(node) => State::Leaving(node),
        }
    }

    fn of(state: State) -> Self {
        match state {
            State::Settled(node) => Entry::At(node),
            State::Leaving(node) => Entry::Leaving(node),
        }
    }
}

pub type Entries = [Entry; NAMES.len()];

pub fn set_of(index: usize) -> ObjectSet {
    ObjectSet::Rest(rest_of(NAMES[index]))
}

/// A whole table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Board {
    pub generation: u8,
    pub version: u64,
    pub entries: Entries,
}

impl Board {
    pub fn table(&self) -> Table {
        let each = (0..RESTS).map(|rest| {
            let set = ObjectSet::Rest(rest);
            let index = (0..NAMES.len()).find(|index| set_of(*index) == set);
            let state = index.map_or(State::Settled(0), |index| self.entries[index].state());
            (set, state)
        });
        Table::from_entries(self.version, each).unwrap()
    }

    pub fn apply(&mut self, change: &Change) {
        for (entry, new) in self.entries.iter_mut().zip(change.entries) {
            *entry = new.unwrap_or(*entry);
        }
        self.version = change.to;
    }

    pub fn is_moving(&self) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| matches!(entry, Entry::Leaving(_)))
    }
}

/// A published change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    pub generation: u8,
    pub from: u64,
    pub to: u64,
    entries: [Option<Entry>; NAMES.len()],
}

impl Change {
    pub fn of(generation: u8, delta: &Delta) -> Self {
        let mut entries = [None; NAMES.len()];
        for (index, entry) in entries.iter_mut().enumerate() {
            let mut told = delta.entries.iter();
            let told = told.find(|(set, _)| *set == set_of(index));
            *entry = told.and_then(|(_, state)| *state).map(Entry::of);
        }
        Change {
            generation,
            from: delta.from,
            to: delta.to,
            entries,
        }
    }

    pub fn delta(&self) -> Delta {
        let entries = self.entries.iter().enumerate();
        let entries =
            entries.filter_map(|(index, entry)| Some((set_of(index), Some((*entry)?.state()))));
        Delta {
            from: self.from,
            to: self.to,
            entries: entries.collect(),
        }
    }
}
