//! Map from partitions to the nodes that serve them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use super::MAX_PARTITIONS;
use plimsoll_core::MAX_NAME_BYTES;

/// Part of the data, in a database of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Name, unique in the map.
    pub name: String,
    /// Name of the node that serves it.
    pub node: String,
    /// Numbers of the parts that it holds, from 0; given for all partitions or for none.
    pub parts: Option<RangeInclusive<u32>>,
}

/// Reason for which a map is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The number of partitions is not 1 to [`MAX_PARTITIONS`].
    Count(usize),
    /// A name is not 1 to [`MAX_NAME_BYTES`] visible ASCII characters.
    Name(String),
    /// Two nodes have this name.
    TwoNodes(String),
    /// Two partitions have this name.
    TwoPartitions(String),
    /// A partition names a node that is not in the map.
    UnknownNode {
        /// The partition.
        partition: String,
        /// The node.
        node: String,
    },
    /// This partition has no parts, although the map or other partitions have.
    NoParts(String),
    /// The range of parts of this partition is empty, or extends beyond the last part.
    WrongParts(String),
    /// No partition holds these parts.
    Gap(RangeInclusive<u32>),
    /// Two partitions hold these parts.
    Overlap {
        /// The parts.
        parts: RangeInclusive<u32>,
        /// The two partitions.
        partitions: [String; 2],
    },
}

impl std::fmt::Display for MapError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let range = |parts: &RangeInclusive<u32>| match (parts.start(), parts.end()) {
            (first, last) if first == last => format!("part {first}"),
            (first, last) => format!("parts {first} to {last}"),
        };
        match self {
            MapError::Count(count) => {
                write!(f, "must have 1 to {MAX_PARTITIONS} partitions, has {count}")
            }
            MapError::Name(name) => write!(
                f,
                "a name must be 1 to {MAX_NAME_BYTES} visible ASCII characters, is {name:?}"
            ),
            MapError::TwoNodes(name) => write!(f, "there are two nodes {name:?}"),
            MapError::TwoPartitions(name) => write!(f, "there are two partitions {name:?}"),
            MapError::UnknownNode { partition, node } => {
                write!(f, "partition {partition:?}: unknown node {node:?}")
            }
            MapError::NoParts(partition) => write!(
                f,
                "partition {partition:?} has no parts, but other partitions have"
            ),
            MapError::WrongParts(partition) => {
                write!(
                    f,
                    "the parts of partition {partition:?} are empty or beyond the last part"
                )
            }
            MapError::Gap(parts) => write!(f, "no partition has {}", range(parts)),
            MapError::Overlap {
                parts,
                partitions: [one, other],
            } => write!(f, "{} are in both {one:?} and {other:?}", range(parts)),
        }
    }
}

impl std::error::Error for MapError {}

/// Valid map: the partitions hold every part of the data exactly once, each at a known node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionMap {
    partitions: Vec<Partition>,
}

impl PartitionMap {
    /// Checks and creates a map. `parts` is the number of parts, numbered from 0; `None` if partitions do not state
    /// theirs.
    pub fn new<'a>(
        nodes: impl IntoIterator<Item = &'a str>,
        parts: Option<u32>,
        partitions: Vec<Partition>,
    ) -> Result<Self, MapError> {
        let mut known = BTreeSet::new();
        for node in nodes {
            check_name(node)?;
            if !known.insert(node) {
                return Err(MapError::TwoNodes(node.to_owned()));
            }
        }
        if !(1..=MAX_PARTITIONS).contains(&partitions.len()) {
            return Err(MapError::Count(partitions.len()));
        }
        let mut names = BTreeSet::new();
        for Partition { name, node, .. } in &partitions {
            check_name(name)?;
            if !names.insert(name) {
                return Err(MapError::TwoPartitions(name.clone()));
            }
            if !known.contains(node.as_str()) {
                return Err(MapError::UnknownNode {
                    partition: name.clone(),
                    node: node.clone(),
                });
            }
        }
        check_parts(parts, &partitions)?;
        Ok(PartitionMap { partitions })
    }

    /// Partitions in the given order.
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }
}

fn check_name(name: &str) -> Result<(), MapError> {
    let fine = (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic());
    match fine {
        true => Ok(()),
        false => Err(MapError::Name(name.to_owned())),
    }
}

fn check_parts(parts: Option<u32>, partitions: &[Partition]) -> Result<(), MapError> {
    if parts.is_none() && partitions.iter().all(|it| it.parts.is_none()) {
        return Ok(());
    }
    let all = parts.unwrap_or(0);
    let mut by_first = BTreeMap::<(u32, usize), (u32, &str)>::new();
    for (at, partition) in partitions.iter().enumerate() {
        let name = &partition.name;
        let parts = partition.parts.as_ref();
        let parts = parts.ok_or_else(|| MapError::NoParts(name.clone()))?;
        if parts.is_empty() || *parts.end() >= all {
            return Err(MapError::WrongParts(name.clone()));
        }
        by_first.insert((*parts.start(), at), (*parts.end(), name));
    }
    let mut before: Option<(u32, &str)> = None;
    for ((first, _), (last, name)) in by_first {
        let next = before.map_or(0, |(end, _)| end + 1);
        if let Some((end, other)) = before
            && first <= end
        {
            return Err(MapError::Overlap {
                parts: first..=last.min(end),
                partitions: [other.to_owned(), name.to_owned()],
            });
        }
        if first > next {
            return Err(MapError::Gap(next..=first - 1));
        }
        before = Some((last, name));
    }
    let next = before.map_or(0, |(end, _)| end + 1);
    match next < all {
        true => Err(MapError::Gap(next..=all - 1)),
        false => Ok(()),
    }
}
