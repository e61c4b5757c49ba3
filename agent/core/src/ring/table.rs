//! The slot table, its changes and its look-ups.

use std::sync::Arc;

use super::{MAX_NODES, MAX_SLOTS, NOBODY, key_hash, probe_hash, slot_of_hash};

/// A table that was handed over and cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingError {
    /// Not within 1..=[`MAX_SLOTS`].
    Slots(usize),
    /// An owner beyond the nodes.
    Owner {
        /// The slot.
        slot: u32,
        /// Its owner.
        owner: u8,
    },
    /// A slot beyond the table.
    Slot(u32),
    /// The delta starts at another version.
    Gap {
        /// The table's version.
        have: u64,
        /// The one the delta starts from.
        from: u64,
    },
    /// Sizes that do not sum to the table, or name too many nodes.
    Sizes,
}

impl std::fmt::Display for RingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RingError::Slots(slots) => write!(f, "{slots} slots: must be within 1..={MAX_SLOTS}"),
            RingError::Owner { slot, owner } => {
                write!(f, "slot {slot}: owner {owner} is no node of this ring")
            }
            RingError::Slot(slot) => write!(f, "slot {slot} is beyond the table"),
            RingError::Gap { have, from } => {
                write!(
                    f,
                    "a change from version {from} does not fit version {have}"
                )
            }
            RingError::Sizes => write!(f, "sizes do not sum to the table's slots"),
        }
    }
}

impl std::error::Error for RingError {}

/// A published change: from one version to the next, only what moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingDelta {
    /// The version it applies to.
    pub from: u64,
    /// The version it leads to.
    pub to: u64,
    /// Slot and new owner, by slot.
    pub moves: Vec<(u32, u8)>,
}

/// `H` slots, each with the index of the node that owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingTable {
    version: u64,
    nodes: usize,
    /// Shared, for all workers of a process have the same ring.
    owners: Arc<[u8]>,
}

impl RingTable {
    /// A table at version 0 that nobody owns.
    pub fn empty(slots: u32) -> Result<Self, RingError> {
        if slots == 0 || slots > MAX_SLOTS {
            return Err(RingError::Slots(slots as usize));
        }
        Ok(RingTable {
            version: 0,
            nodes: 0,
            owners: vec![NOBODY; slots as usize].into(),
        })
    }

    /// A table as it came from elsewhere: nothing in it is trusted.
    pub fn from_owners(version: u64, nodes: usize, owners: Vec<u8>) -> Result<Self, RingError> {
        if owners.is_empty() || owners.len() > MAX_SLOTS as usize {
            return Err(RingError::Slots(owners.len()));
        }
        if nodes > MAX_NODES {
            return Err(RingError::Sizes);
        }
        for (slot, owner) in owners.iter().enumerate() {
            check_owner(slot as u32, *owner, nodes)?;
        }
        Ok(RingTable {
            version,
            nodes,
            owners: owners.into(),
        })
    }

    /// Increases with every published change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Node indices are below this.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// `H`.
    pub fn slots(&self) -> u32 {
        self.owners.len() as u32
    }

    /// The owner of every slot, [`NOBODY`] where there is none.
    pub fn owners(&self) -> &[u8] {
        &self.owners
    }

    /// `H_i` of every node.
    pub fn sizes(&self) -> Vec<u32> {
        let mut sizes = vec![0; self.nodes];
        for owner in self.owners.iter().filter(|owner| **owner != NOBODY) {
            sizes[usize::from(*owner)] += 1;
        }
        sizes
    }

    /// The change that gives every node its size. Slots are gone through upwards: a slot moves only
    /// if its owner has too many, to the node with the smallest index that has too few. So exactly
    /// the surplus moves, and what moves back later is mostly what moved before.
    pub fn change_to(&self, sizes: &[u32]) -> Result<RingDelta, RingError> {
        let sum: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
        if sizes.len() > MAX_NODES || (sum != 0 && sum != self.owners.len() as u64) {
            return Err(RingError::Sizes);
        }
        let mut held = self.sizes();
        held.resize(held.len().max(sizes.len()), 0);
        let wanted = |index: usize| sizes.get(index).copied().unwrap_or(0);
        let mut gainer = 0;
        let mut moves = Vec::new();
        for (slot, owner) in self.owners.iter().enumerate() {
            let from = usize::from(*owner);
            if *owner != NOBODY && held[from] <= wanted(from) {
                continue;
            }
            while gainer < sizes.len() && held[gainer] >= sizes[gainer] {
                gainer += 1;
            }
            let to = if gainer < sizes.len() {
                gainer as u8
            } else {
                NOBODY
            };
            if to == *owner {
                continue;
            }
            if *owner != NOBODY {
                held[from] -= 1;
            }
            if to != NOBODY {
                held[gainer] += 1;
            }
            moves.push((slot as u32, to));
        }
        Ok(RingDelta {
            from: self.version,
            to: self.version + 1,
            moves,
        })
    }

    /// Takes a change over; on an error nothing has changed. `nodes` is the count after it.
    pub fn apply(&mut self, delta: &RingDelta, nodes: usize) -> Result<(), RingError> {
        if delta.from != self.version {
            return Err(RingError::Gap {
                have: self.version,
                from: delta.from,
            });
        }
        if nodes > MAX_NODES {
            return Err(RingError::Sizes);
        }
        for (slot, owner) in &delta.moves {
            if *slot as usize >= self.owners.len() {
                return Err(RingError::Slot(*slot));
            }
            check_owner(*slot, *owner, nodes)?;
        }
        let mut owners = self.owners.to_vec();
        for (slot, owner) in &delta.moves {
            owners[*slot as usize] = *owner;
        }
        *self = RingTable::from_owners(delta.to, nodes, owners)?;
        Ok(())
    }

    /// The change from this table to a newer one of the same size.
    pub fn difference(&self, newer: &RingTable) -> Result<RingDelta, RingError> {
        if newer.owners.len() != self.owners.len() {
            return Err(RingError::Slots(newer.owners.len()));
        }
        let changed = self.owners.iter().zip(newer.owners()).enumerate();
        Ok(RingDelta {
            from: self.version,
            to: newer.version,
            moves: changed
                .filter(|(_, (old, new))| old != new)
                .map(|(slot, (_, new))| (slot as u32, *new))
                .collect(),
        })
    }

    /// The owner of a key.
    pub fn owner(&self, key: &[u8]) -> Option<u8> {
        self.owner_of_hash(key_hash(key))
    }

    /// The owner of a key's hash.
    pub fn owner_of_hash(&self, hash: u32) -> Option<u8> {
        let owner = self.owners[slot_of_hash(hash, self.slots()) as usize];
        (owner != NOBODY).then_some(owner)
    }

    /// The nodes to try for a key: its owner, then the owners of re-hashed slots, each node once.
    pub fn candidates(&self, hash: u32) -> Candidates<'_> {
        Candidates {
            table: self,
            hash,
            probe: 0,
            seen: [0; 4],
        }
    }
}

fn check_owner(slot: u32, owner: u8, nodes: usize) -> Result<(), RingError> {
    if owner != NOBODY && usize::from(owner) >= nodes {
        return Err(RingError::Owner { slot, owner });
    }
    Ok(())
}

/// Probes of a key before it is given up; at this many, a node with a fiftieth of the ring has been
/// met with a probability of 0.72, and the half of the ring that is free with one of 1 - 2^-64.
const PROBES: u32 = 64;

/// Bounded load by re-hashed probing: see [`RingTable::candidates`].
#[derive(Clone, Debug)]
pub struct Candidates<'a> {
    table: &'a RingTable,
    hash: u32,
    probe: u32,
    seen: [u64; 4],
}

impl Iterator for Candidates<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        while self.probe < PROBES {
            let owner = self.table.owner_of_hash(probe_hash(self.hash, self.probe));
            self.probe += 1;
            if let Some(owner) = owner {
                let (word, bit) = (usize::from(owner / 64), 1_u64 << (owner % 64));
                if self.seen[word] & bit == 0 {
                    self.seen[word] |= bit;
                    return Some(owner);
                }
            }
        }
        None
    }
}
