//! `GET /v1/ring`: the ring, whole or as changes since a version.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::ring::{MAX_NODES, MAX_SLOTS, NOBODY, RingDelta, RingTable};
use serde::{Deserialize, Serialize};

use crate::is_name;

/// Changes are sent only if the ring has at least this many slots per run of changes: the table is hardly larger
/// otherwise.
const SLOTS_PER_CHANGE: usize = 4;

/// A ring and the names of its nodes by index; empty if the index is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Slots and version.
    pub table: RingTable,
    /// Node names by index.
    pub names: Vec<String>,
}

/// The response body.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RingView {
    #[serde(default)]
    service: String,
    version: u64,
    /// Number of slots, at most [`MAX_SLOTS`].
    slots: u32,
    /// Node names by index, at most [`MAX_NODES`]; empty if the index is free.
    nodes: Vec<String>,
    /// The whole table: alternating owner and number of slots; owner 255 means nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    owners: Option<Vec<u32>>,
    /// Slots that changed owner since the requested version: first slot, count, owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<[u32; 3]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
}

impl RingView {
    /// The whole ring of a service.
    pub fn whole(service: &str, ring: &Ring) -> Self {
        let all = (0..).zip(ring.table.owners().iter().copied());
        let owners = runs(all)
            .into_iter()
            .flat_map(|[_, count, owner]| [owner, count]);
        RingView {
            service: service.to_owned(),
            version: ring.table.version(),
            slots: ring.table.slots(),
            nodes: ring.names.clone(),
            owners: Some(owners.collect()),
            changes: None,
            since: None,
        }
    }

    /// The `moves` (slot, owner) that lead from version `since` to this ring; if a slot occurs twice, the later move
    /// wins. The whole ring if that is no larger.
    pub fn changes(
        service: &str,
        ring: &Ring,
        since: u64,
        moves: impl IntoIterator<Item = (u32, u8)>,
    ) -> Self {
        let last: BTreeMap<u32, u8> = moves.into_iter().collect();
        let changes = runs(last);
        if changes.len() > ring.table.slots() as usize / SLOTS_PER_CHANGE {
            return RingView::whole(service, ring);
        }
        RingView {
            service: service.to_owned(),
            version: ring.table.version(),
            slots: ring.table.slots(),
            nodes: ring.names.clone(),
            owners: None,
            changes: Some(changes),
            since: Some(since),
        }
    }

    /// Parses a response body; the error names the field.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let view: RingView = serde_json::from_slice(body).map_err(|problem| problem.to_string())?;
        if !(1..=MAX_SLOTS).contains(&view.slots) {
            return Err(format!(
                "slots: {} is not within 1..={MAX_SLOTS}",
                view.slots
            ));
        }
        if view.nodes.len() > MAX_NODES {
            return Err(format!("nodes: {}, maximum {MAX_NODES}", view.nodes.len()));
        }
        let mut seen = BTreeSet::new();
        for name in view.nodes.iter().filter(|name| !name.is_empty()) {
            if !is_name(name) {
                return Err("nodes: malformed name".to_owned());
            }
            if !seen.insert(name) {
                return Err(format!("nodes: duplicate {name}"));
            }
        }
        Ok(view)
    }

    /// Version of the ring.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The ring shown, applying changes to `held` if the response contains only changes.
    pub fn ring(self, held: Option<&Ring>) -> Result<Ring, String> {
        let table = match (&self.owners, &self.changes, self.since) {
            (Some(runs), _, _) => self.read_whole(runs)?,
            (None, Some(changes), Some(since)) => {
                let held = held.ok_or("changes, but there is no ring to change")?;
                self.read_changes(held, changes, since)?
            }
            _ => return Err("neither owners nor changes".to_owned()),
        };
        let unnamed = |owner: &u8| {
            *owner != NOBODY
                && self
                    .nodes
                    .get(usize::from(*owner))
                    .is_none_or(String::is_empty)
        };
        if let Some(owner) = table.owners().iter().find(|owner| unnamed(owner)) {
            return Err(format!("owner {owner} is no node of this ring"));
        }
        Ok(Ring {
            table,
            names: self.nodes,
        })
    }

    fn read_whole(&self, runs: &[u32]) -> Result<RingTable, String> {
        let mut owners = Vec::with_capacity(self.slots as usize);
        for run in runs.chunks(2) {
            let &[owner, count] = run else {
                return Err("owners: an odd number of them".to_owned());
            };
            let owner = u8::try_from(owner).map_err(|_| format!("owners: {owner} is none"))?;
            if count as usize > self.slots as usize - owners.len() {
                return Err("owners: more than slots".to_owned());
            }
            owners.resize(owners.len() + count as usize, owner);
        }
        if owners.len() != self.slots as usize {
            return Err("owners: fewer than slots".to_owned());
        }
        let table = RingTable::from_owners(self.version, self.nodes.len(), owners);
        table.map_err(|problem| problem.to_string())
    }

    fn read_changes(
        &self,
        held: &Ring,
        changes: &[[u32; 3]],
        since: u64,
    ) -> Result<RingTable, String> {
        if held.table.slots() != self.slots {
            return Err("changes of a ring of another size".to_owned());
        }
        let mut moves = Vec::new();
        for [first, count, owner] in changes {
            let owner =
                u8::try_from(*owner).map_err(|_| format!("changes: {owner} is no owner"))?;
            let end = first.checked_add(*count).filter(|end| *end <= self.slots);
            let end = end.ok_or("changes: a slot beyond the table")?;
            if moves.len() + *count as usize > self.slots as usize {
                return Err("changes: more than slots".to_owned());
            }
            moves.extend((*first..end).map(|slot| (slot, owner)));
        }
        let delta = RingDelta {
            from: since,
            to: self.version,
            moves,
        };
        let mut table = held.table.clone();
        let applied = table.apply(&delta, self.nodes.len());
        applied.map_err(|problem| problem.to_string())?;
        Ok(table)
    }
}

impl Ring {
    /// Encodes the ring for workers: version, number of names, each name with its length, owners.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.table.version().to_le_bytes().to_vec();
        bytes.push(self.names.len() as u8);
        for name in &self.names {
            bytes.push(name.len() as u8);
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes.extend_from_slice(self.table.owners());
        bytes
    }

    /// Decodes [`Ring::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk::<8>()?;
        let (count, mut rest) = rest.split_first()?;
        let mut names = Vec::with_capacity(usize::from(*count));
        for _ in 0..*count {
            let (length, after) = rest.split_first()?;
            let (name, after) = after.split_at_checked(usize::from(*length))?;
            names.push(std::str::from_utf8(name).ok()?.to_owned());
            rest = after;
        }
        let version = u64::from_le_bytes(*version);
        let table = RingTable::from_owners(version, names.len(), rest.to_vec()).ok()?;
        Some(Ring { table, names })
    }
}

fn runs(slots: impl IntoIterator<Item = (u32, u8)>) -> Vec<[u32; 3]> {
    let mut runs: Vec<[u32; 3]> = Vec::new();
    for (slot, owner) in slots {
        let owner = u32::from(owner);
        match runs.last_mut() {
            Some([first, count, held]) if *first + *count == slot && *held == owner => *count += 1,
            _ => runs.push([slot, 1, owner]),
        }
    }
    runs
}
