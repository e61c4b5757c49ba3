//! The slot table, its changes and lookups.

use std::sync::Arc;

use super::{MAX_NODES, MAX_SLOTS, NOBODY, key_hash, probe_hash, slot_of_hash};

/// Reason for which a table or a change is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingError {
    /// The number of slots is not 1..=[`MAX_SLOTS`].
    Slots(usize),
    /// The owner of a slot is no node of the ring.
    Owner {
        /// The slot.
        slot: u32,
        /// Its owner.
        owner: u8,
    },
    /// The slot is beyond the table.
    Slot(u32),
    /// The change applies to another version.
    Gap {
        /// Version of the table.
        have: u64,
        /// Version that the change applies to.
        from: u64,
    },
    /// The sizes do not sum to the table's slots, or there are too many nodes.
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

/// Published change from one version to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingDelta {
    /// Version it applies to.
    pub from: u64,
    /// Version it results in.
    pub to: u64,
    /// Moved slots and their new owners, by slot.
    pub moves: Vec<(u32, u8)>,
}

/// `H` slots, each with the index of its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingTable {
    version: u64,
    nodes: usize,
    /// Shared, as all workers of a process have the same ring.
    owners: Arc<[u8]>,
}

impl RingTable {
    /// Creates a table at version 0 whose slots have no owner.
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

    /// Creates a table from untrusted data.
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

    /// Version, which increases with every published change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Number of node indexes; all owners are below it.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// `H`: number of slots.
    pub fn slots(&self) -> u32 {
        self.owners.len() as u32
    }

    /// Owner of every slot; [`NOBODY`] if it has none.
    pub fn owners(&self) -> &[u8] {
        &self.owners
    }

    /// `H_i`: number of slots of every node.
    pub fn sizes(&self) -> Vec<u32> {
        let mut sizes = vec![0; self.nodes];
        for owner in self.owners.iter().filter(|owner| **owner != NOBODY) {
            sizes[usize::from(*owner)] += 1;
        }
        sizes
    }

    /// Change that gives every node its size. In ascending order, a slot moves only if its owner has too many, to the
    /// node with the lowest index that has too few. So exactly the surplus moves, and slots that move back later are
    /// mostly those that moved before.
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

    /// Applies a change; on an error nothing has changed. `nodes` is the number of nodes after it.
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

    /// Change from this table to a newer one of the same size.
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

    /// Owner of a key; `None` if its slot has none.
    pub fn owner(&self, key: &[u8]) -> Option<u8> {
        self.owner_of_hash(key_hash(key))
    }

    /// Owner of a key's hash; `None` if its slot has none.
    pub fn owner_of_hash(&self, hash: u32) -> Option<u8> {
        let owner = self.owners[slot_of_hash(hash, self.slots()) as usize];
        (owner != NOBODY).then_some(owner)
    }

    /// Nodes to try for a key, each once: its owner, then the owners of re-hashed slots.
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

/// Maximum probes of a key. With this many, a node with a fiftieth of the ring is found with a probability of 0.72, and
/// a free half of the ring with one of 1 - 2^-64.
const PROBES: u32 = 64;

/// Candidates for a key by re-hashed probing, from [`RingTable::candidates`].
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
