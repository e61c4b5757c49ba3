//! The table in words, as Redis has it, and in numbers, as decisions are made.

use std::collections::BTreeMap;

use plimsoll_core::placement::{Delta, NodeId, ObjectSet, RESTS, State, Table};

/// Names of nodes or dispatchers, and their numbers, which are never given to another one.
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
            // 0 is nobody's.
            next: 1,
        }
    }
}

impl Numbers {
    /// The number of a name, a new one where it has none.
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

    /// The name of a number.
    pub fn name(&self, number: u64) -> &str {
        self.names.get(&number).map_or("?", String::as_str)
    }

    /// Forgets all but these; their numbers are not given again.
    pub fn keep(&mut self, wanted: impl Fn(u64) -> bool) {
        self.names.retain(|number, _| wanted(*number));
        self.by_name.retain(|_, number| wanted(*number));
    }
}

/// A table as Redis has it: set to "node" or ">node".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries(BTreeMap<String, String>);

impl Entries {
    /// Of "set", "state", …
    pub fn of(words: &[String]) -> Self {
        let pairs = words.chunks_exact(2);
        Entries(
            pairs
                .map(|pair| (pair[0].clone(), pair[1].clone()))
                .collect(),
        )
    }

    /// With every rest where this says.
    pub fn of_rests(each: impl Fn(u16) -> String) -> Self {
        Entries(
            (0..RESTS)
                .map(|rest| (format!("*{rest}"), each(rest)))
                .collect(),
        )
    }

    /// Takes "from to set state …" over; false where it does not go on from `version`.
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

    /// "set state …".
    pub fn words(&self) -> String {
        let words = self.0.iter();
        let words = words.map(|(set, state)| format!("{set} {state}"));
        words.collect::<Vec<_>>().join(" ")
    }

    /// Entries of single names.
    pub fn named(&self) -> usize {
        self.0.keys().filter(|set| set.starts_with('=')).count()
    }

    /// Sets that leave.
    pub fn moving(&self) -> usize {
        self.0
            .values()
            .filter(|state| state.starts_with('>'))
            .count()
    }

    /// How many sets each node has, those included that leave it.
    pub fn per_node(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for state in self.0.values() {
            *counts.entry(node_of(state)).or_default() += 1;
        }
        counts
    }

    /// The sets and their states.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let entries = self.0.iter();
        entries.map(|(set, state)| (set.as_str(), state.as_str()))
    }

    /// The same in numbers; `None` where it is no table.
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

/// The number of a node.
pub fn node_number(nodes: &mut Numbers, name: &str) -> NodeId {
    // As many as there are of them no term lives to see.
    NodeId::try_from(nodes.of(name)).unwrap_or(NodeId::MAX)
}

/// "from to set state …".
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
