//! The table of primaries, and how its changes travel.

use std::collections::BTreeMap;

use super::{MAX_NAMED, MAX_VERSION, NodeId, RESTS, rest_of};

/// An entry of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectSet {
    /// The names without an entry of their own whose hash is this, below [`RESTS`].
    Rest(u16),
    /// One name.
    Named(Box<str>),
}

/// As agents, proxies and Redis write it: `=NAME`, or `*N` for a rest.
impl std::fmt::Display for ObjectSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ObjectSet::Rest(rest) => write!(f, "*{rest}"),
            ObjectSet::Named(name) => write!(f, "={name}"),
        }
    }
}

/// What is no object set as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSet;

impl std::fmt::Display for NoSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "an object set is =NAME or *0 to *{}, NAME 1 to {} visible ASCII characters",
            RESTS - 1,
            crate::MAX_NAME_BYTES
        )
    }
}

impl std::error::Error for NoSet {}

impl std::str::FromStr for ObjectSet {
    type Err = NoSet;

    fn from_str(word: &str) -> Result<Self, NoSet> {
        if let Some(name) = word.strip_prefix('=') {
            super::check_name(name).map_err(|_| NoSet)?;
            return Ok(ObjectSet::Named(name.into()));
        }
        let rest = word.strip_prefix('*').ok_or(NoSet)?;
        match rest.parse() {
            Ok(number) if number < RESTS && rest == format!("{number}") => {
                Ok(ObjectSet::Rest(number))
            }
            _ => Err(NoSet),
        }
    }
}

/// How it is with an object set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its requests run at this node.
    Settled(NodeId),
    /// Nobody is let in until what runs at this node is through.
    Leaving(NodeId),
}

impl State {
    /// The primary, or the one that it leaves.
    pub fn primary(self) -> NodeId {
        match self {
            State::Settled(node) | State::Leaving(node) => node,
        }
    }
}

/// A published change: from one version to the next, only what is new; `None` for a name that has no entry any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The version it applies to.
    pub from: u64,
    /// The version it leads to.
    pub to: u64,
    /// Entries and their new states.
    pub entries: Vec<(ObjectSet, Option<State>)>,
}

/// A change that does not fit the table, which is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// It leads to a version that the table has or is past: doubled or late, and nothing to do.
    Late,
    /// It begins at a later version than the table's: something was missed, and the whole table is needed.
    Missed,
    /// It names a rest that is none, forgets one, or has more names or a higher version than there may be.
    Wrong,
}

/// Which node is the primary of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    version: u64,
    rests: Vec<State>,
    names: BTreeMap<Box<str>, State>,
}

impl Table {
    /// At version 1, with all on one node; `each` says which for each rest.
    pub fn new(each: impl Fn(u16) -> NodeId) -> Self {
        Table {
            version: 1,
            rests: (0..RESTS).map(|rest| State::Settled(each(rest))).collect(),
            names: BTreeMap::new(),
        }
    }

    /// With these entries; [`Gap::Wrong`] where they are no table: a rest is missing, there are too many names, or the
    /// version is above [`MAX_VERSION`].
    pub fn from_entries(
        version: u64,
        entries: impl IntoIterator<Item = (ObjectSet, State)>,
    ) -> Result<Self, Gap> {
        let mut rests = vec![None; usize::from(RESTS)];
        let mut names = BTreeMap::new();
        for (set, state) in entries {
            match set {
                ObjectSet::Rest(rest) => {
                    *rests.get_mut(usize::from(rest)).ok_or(Gap::Wrong)? = Some(state);
                }
                ObjectSet::Named(name) => {
                    super::check_name(&name).map_err(|_| Gap::Wrong)?;
                    names.insert(name, state);
                }
            }
        }
        let rests: Option<Vec<State>> = rests.into_iter().collect();
        match rests {
            Some(rests) if names.len() <= 2 * MAX_NAMED && version <= MAX_VERSION => Ok(Table {
                version,
                rests,
                names,
            }),
            _ => Err(Gap::Wrong),
        }
    }

    /// Increases with every published change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The entry that a name goes by.
    pub fn set_of(&self, name: &str) -> ObjectSet {
        match self.names.get_key_value(name) {
            Some((name, _)) => ObjectSet::Named(name.clone()),
            None => ObjectSet::Rest(rest_of(name)),
        }
    }

    /// How it is with an entry; `None` where there is none.
    pub fn state(&self, set: &ObjectSet) -> Option<State> {
        match set {
            ObjectSet::Rest(rest) => self.rest(*rest),
            ObjectSet::Named(name) => self.names.get(name).copied(),
        }
    }

    /// How it is with a rest.
    pub fn rest(&self, rest: u16) -> Option<State> {
        self.rests.get(usize::from(rest)).copied()
    }

    /// Whether a name has an entry of its own.
    pub fn is_named(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Names with an entry of their own.
    pub fn named(&self) -> usize {
        self.names.len()
    }

    /// All entries, the rests first.
    pub fn entries(&self) -> impl Iterator<Item = (ObjectSet, State)> {
        let rests = self.rests.iter().zip(0..);
        let rests = rests.map(|(state, rest)| (ObjectSet::Rest(rest), *state));
        let names = self.names.iter();
        rests.chain(names.map(|(name, state)| (ObjectSet::Named(name.clone()), *state)))
    }

    /// Takes a change over; on an error nothing has changed.
    pub fn apply(&mut self, delta: &Delta) -> Result<(), Gap> {
        if delta.to <= self.version {
            return Err(Gap::Late);
        }
        if delta.from != self.version {
            return Err(Gap::Missed);
        }
        let is_wrong = |(set, state): &(ObjectSet, Option<State>)| match set {
            ObjectSet::Rest(rest) => *rest >= RESTS || state.is_none(),
            ObjectSet::Named(name) => super::check_name(name).is_err(),
        };
        if delta.to > MAX_VERSION
            || delta.entries.iter().any(is_wrong)
            || self.names.len() + delta.entries.len() > 2 * MAX_NAMED
        {
            return Err(Gap::Wrong);
        }
        for (set, state) in &delta.entries {
            match (set, state) {
                (ObjectSet::Rest(rest), Some(state)) => self.rests[usize::from(*rest)] = *state,
                (ObjectSet::Named(name), Some(state)) => {
                    self.names.insert(name.clone(), *state);
                }
                (ObjectSet::Named(name), None) => {
                    self.names.remove(name);
                }
                (ObjectSet::Rest(_), None) => {}
            }
        }
        self.version = delta.to;
        Ok(())
    }
}
