//! The table of primaries and its changes.

use std::collections::BTreeMap;

use super::{MAX_NAMED, MAX_VERSION, NodeId, RESTS, rest_of};

/// Key of a table entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectSet {
    /// All names with this hash, below [`RESTS`], that have no entry of their own.
    Rest(u16),
    /// A single name.
    Named(Box<str>),
}

/// Text form of agents, proxies and Redis: `=NAME`, or `*N` for a rest.
impl std::fmt::Display for ObjectSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ObjectSet::Rest(rest) => write!(f, "*{rest}"),
            ObjectSet::Named(name) => write!(f, "={name}"),
        }
    }
}

/// Error for a malformed text form of an object set.
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

/// State of an object set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its requests run at this primary.
    Settled(NodeId),
    /// Handover: no requests are admitted until those at this node have ended.
    Leaving(NodeId),
}

impl State {
    /// The primary, or in a handover the former one.
    pub fn primary(self) -> NodeId {
        match self {
            State::Settled(node) | State::Leaving(node) => node,
        }
    }
}

/// Published change from one version to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Version it applies to.
    pub from: u64,
    /// Version it results in.
    pub to: u64,
    /// Changed entries and their new states; `None` removes a name's entry.
    pub entries: Vec<(ObjectSet, Option<State>)>,
}

/// Reason for which a change does not apply; the table stays as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// The table already has this or a later version: the change is late or a duplicate, and is to be ignored.
    Late,
    /// The change starts from another version: a change was missed, and the whole table is needed.
    Missed,
    /// Invalid: an unknown or removed rest, or too many names or too high a version.
    Wrong,
}

/// Map from object sets to primaries, with a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    version: u64,
    rests: Vec<State>,
    names: BTreeMap<Box<str>, State>,
}

impl Table {
    /// Creates a table at version 1 without named entries; `each` gives the primary of each rest.
    pub fn new(each: impl Fn(u16) -> NodeId) -> Self {
        Table {
            version: 1,
            rests: (0..RESTS).map(|rest| State::Settled(each(rest))).collect(),
            names: BTreeMap::new(),
        }
    }

    /// Creates a table of these entries.
    ///
    /// # Errors
    /// [`Gap::Wrong`] if a rest is missing or unknown, a name is invalid, there are too many names, or the version is
    /// above [`MAX_VERSION`].
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

    /// Version, which increases with every published change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Entry that a name belongs to.
    pub fn set_of(&self, name: &str) -> ObjectSet {
        match self.names.get_key_value(name) {
            Some((name, _)) => ObjectSet::Named(name.clone()),
            None => ObjectSet::Rest(rest_of(name)),
        }
    }

    /// State of an entry; `None` if there is none.
    pub fn state(&self, set: &ObjectSet) -> Option<State> {
        match set {
            ObjectSet::Rest(rest) => self.rest(*rest),
            ObjectSet::Named(name) => self.names.get(name).copied(),
        }
    }

    /// State of a rest; `None` if the number is not below [`RESTS`].
    pub fn rest(&self, rest: u16) -> Option<State> {
        self.rests.get(usize::from(rest)).copied()
    }

    /// Whether a name has an entry of its own.
    pub fn is_named(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Number of names with an entry of their own.
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

    /// Applies a change; on an error nothing has changed.
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
