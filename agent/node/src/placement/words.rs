//! The table as text, as stored in Redis, and as numbers, as used for decisions.

use std::collections::BTreeMap;

use plimsoll_core::placement::{Delta, NodeId, ObjectSet, RESTS, State, Table};

/// Numbers for the names of nodes or dispatchers. A number is never reused.
#[derive(Debug)]
pub struct Numbers {
    by_name: BTreeMap<String, u64>,
    names: BTreeMap<u64, String>,
    next: u64,
}

impl Default for Numbers {
    fn default() -> Self {
        Numbers {
            by_name: BTreeMap::new(),
            names: BTreeMap::new(),
            // 0 is reserved.
            next: 1,
        }
    }
}

impl Numbers {
    /// Returns the number of a name, assigning one if it has none.
    pub fn of(&mut self, name: &str) -> u64 {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        let number = self.next;
        self.next += 1;
        self.by_name.insert(name.to_owned(), number);
        self.names.insert(number, name.to_owned());
        number
    }

    /// Returns the name of a number.
    pub fn name(&self, number: u64) -> &str {
        self.names.get(&number).map_or("?", String::as_str)
    }

    /// Forgets all names but these; their numbers are not reused.
    pub fn keep(&mut self, wanted: impl Fn(u64) -> bool) {
        self.names.retain(|number, _| wanted(*number));
        self.by_name.retain(|_, number| wanted(*number));
    }
}

/// A table as stored in Redis: set to "node" or ">node".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries(BTreeMap<String, String>);

impl Entries {
    /// Parses "set", "state", …
    pub fn of(words: &[String]) -> Self {
        let pairs = words.chunks_exact(2);
        Entries(
            pairs
                .map(|pair| (pair[0].clone(), pair[1].clone()))
                .collect(),
        )
    }

    /// A table with the given node for each rest.
    pub fn of_rests(each: impl Fn(u16) -> String) -> Self {
        Entries(
            (0..RESTS)
                .map(|rest| (format!("*{rest}"), each(rest)))
                .collect(),
        )
    }

    /// Applies "from to set state …"; returns false if it does not continue from `version`.
    pub fn apply(&mut self, version: &mut u64, delta: &str) -> bool {
        let mut words = delta.split_ascii_whitespace();
        let mut number = || words.next()?.parse::<u64>().ok();
        let (Some(from), Some(to)) = (number(), number()) else {
            return false;
        };
        if from != *version {
            return false;
        }
        while let (Some(set), Some(state)) = (words.next(), words.next()) {
            match state {
                "-" => self.0.remove(set),
                _ => self.0.insert(set.to_owned(), state.to_owned()),
            };
        }
        *version = to;
        true
    }

    /// Formats as "set state …".
    pub fn words(&self) -> String {
        let words = self.0.iter();
        let words = words.map(|(set, state)| format!("{set} {state}"));
        words.collect::<Vec<_>>().join(" ")
    }

    /// Number of named sets.
    pub fn named(&self) -> usize {
        self.0.keys().filter(|set| set.starts_with('=')).count()
    }

    /// Number of sets in hand-over.
    pub fn moving(&self) -> usize {
        self.0
            .values()
            .filter(|state| state.starts_with('>'))
            .count()
    }

    /// Number of sets on each node, including those leaving it.
    pub fn per_node(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for state in self.0.values() {
            *counts.entry(node_of(state)).or_default() += 1;
        }
        counts
    }

    /// Sets with their states.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let entries = self.0.iter();
        entries.map(|(set, state)| (set.as_str(), state.as_str()))
    }

    /// The table as numbers; `None` if it is inconsistent.
    pub fn table(&self, version: u64, nodes: &mut Numbers) -> Option<Table> {
        let entries = self.0.iter().map(|(set, state)| {
            let node = node_number(nodes, node_of(state));
            let state = match state.starts_with('>') {
                true => State::Leaving(node),
                false => State::Settled(node),
            };
            Some((set.parse::<ObjectSet>().ok()?, state))
        });
        let entries: Option<Vec<_>> = entries.collect();
        Table::from_entries(version, entries?).ok()
    }
}

fn node_of(state: &str) -> &str {
    state.strip_prefix('>').unwrap_or(state)
}

/// Returns the number of a node.
pub fn node_number(nodes: &mut Numbers, name: &str) -> NodeId {
    // A term never sees that many nodes.
    NodeId::try_from(nodes.of(name)).unwrap_or(NodeId::MAX)
}

/// Formats a change as "from to set state …".
pub fn delta_words(delta: &Delta, nodes: &Numbers) -> String {
    let mut text = format!("{} {}", delta.from, delta.to);
    for (set, state) in &delta.entries {
        let state = match state {
            None => "-".to_owned(),
            Some(State::Settled(node)) => nodes.name(u64::from(*node)).to_owned(),
            Some(State::Leaving(node)) => format!(">{}", nodes.name(u64::from(*node))),
        };
        text += &format!(" {set} {state}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_the_same_in_words_and_in_numbers() {
        let mut nodes = Numbers::default();
        let mut entries = Entries::of_rests(|rest| format!("node{}", rest % 2));
        let mut version = 4;
        assert!(!entries.apply(&mut version, "5 6 *0 node1"));
        assert!(!entries.apply(&mut version, "x"));
        assert!(entries.apply(&mut version, "4 7 *0 >node0 =A node2 =B node1"));
        assert!(entries.apply(&mut version, "7 8 =B -"));
        assert_eq!((version, entries.named(), entries.moving()), (8, 1, 1));
        let table = entries.table(version, &mut nodes);
        assert!(table.is_some());
        let rest = table.and_then(|table| table.rest(0));
        assert!(
            matches!(rest, Some(State::Leaving(node)) if nodes.name(u64::from(node)) == "node0")
        );
        let words: Vec<String> = entries.words().split(' ').map(str::to_owned).collect();
        assert_eq!(Entries::of(&words), entries);
    }

    #[test]
    fn a_number_is_never_given_twice() {
        let mut names = Numbers::default();
        let first = names.of("a");
        assert_eq!((names.of("a"), names.name(first)), (first, "a"));
        names.keep(|_| false);
        assert_ne!(names.of("a"), first);
    }
}
