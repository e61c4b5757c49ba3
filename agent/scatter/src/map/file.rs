//! Partition maps: the part of each row, and the node of each part.

use std::{fs, path::Path};

use anyhow::{Context, bail};
use clap::ValueEnum;
use plimsoll_core::{
    md5_word,
    ring::{DEFAULT_SLOTS, slot_of_hash},
};
use plimsoll_science::cluster::MAX_CLUSTERS;
use serde::{Deserialize, Serialize};

use crate::answer::{Partition, PartitionMap};

/// Number of slots for hashes of keys; fixed by the file format.
pub const SLOTS: u32 = DEFAULT_SLOTS;
const VERSION: u32 = 1;
const MAX_BYTES: u64 = 16 << 20;

/// Criterion by which rows are assigned to parts.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// By the hash of the key: parts of even sizes.
    Rows,
    /// By proximity: each part is a cluster.
    Clusters,
    /// By cluster, with large clusters split into several parts by the hash of the key.
    Both,
}

/// A part of the rows.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Name of the part.
    pub name: String,
    /// Name of the node that serves it.
    pub node: String,
    /// Index of its cluster, from 0; `None` without clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<usize>,
    /// First and last slot of the key's hash.
    pub slots: [u32; 2],
    /// Number of rows when the map was made or last extended.
    pub rows: u64,
}

/// Partition map in its file format.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Map {
    version: u32,
    /// Criterion by which rows are assigned to parts.
    pub by: By,
    /// Name of the key column.
    pub key: String,
    /// Names of the coordinate columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// Centres of the clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<Vec<f64>>,
    /// Parts, in order of cluster and slots.
    pub parts: Vec<Part>,
}

impl Map {
    /// Creates a map.
    pub fn new(
        by: By,
        key: String,
        columns: Vec<String>,
        clusters: Vec<Vec<f64>>,
        parts: Vec<Part>,
    ) -> Self {
        Self {
            version: VERSION,
            by,
            key,
            columns,
            clusters,
            parts,
        }
    }

    /// Reads a file. Its parts may have gaps or overlaps, which [`Map::faults`] finds.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let size = fs::metadata(path).with_context(|| format!("cannot read {name}"))?;
        if size.len() > MAX_BYTES {
            bail!(
                "{name}: more than {} MiB: this is no partition map",
                MAX_BYTES >> 20
            );
        }
        let text = fs::read(path).with_context(|| format!("cannot read {name}"))?;
        let map: Map = serde_json::from_slice(&text).with_context(|| format!("{name}"))?;
        map.check().with_context(|| format!("{name}"))?;
        Ok(map)
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.version != VERSION {
            bail!("version {}: must be {VERSION}", self.version);
        }
        let clustered = self.by != By::Rows;
        if clustered == self.clusters.is_empty() || clustered == self.columns.is_empty() {
            bail!("clusters and columns must be there unless it is by rows");
        }
        if self.clusters.len() > MAX_CLUSTERS {
            bail!(
                "{} clusters: must be at most {MAX_CLUSTERS}",
                self.clusters.len()
            );
        }
        let width = self.columns.len();
        if let Some(at) = self.clusters.iter().position(|one| one.len() != width) {
            bail!(
                "cluster {at} has {} coordinates: must have {width}",
                self.clusters[at].len()
            );
        }
        for part in &self.parts {
            match part.cluster {
                Some(at) if at >= self.clusters.len() => {
                    bail!("part {:?}: unknown cluster {at}", part.name)
                }
                None if clustered => bail!("part {:?} is of no cluster", part.name),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes a file atomically.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        fs::write(&beside, text)
            .and_then(|()| fs::rename(&beside, path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Errors in the parts: invalid names, nodes not in `nodes` (unless that is empty), and the first gap or overlap of
    /// each cluster.
    pub fn faults(&self, nodes: &[String]) -> Vec<String> {
        let mut known: Vec<&str> = match nodes.is_empty() {
            true => self.parts.iter().map(|part| part.node.as_str()).collect(),
            false => nodes.iter().map(String::as_str).collect(),
        };
        known.sort_unstable();
        known.dedup();
        let check = |slots: Option<u32>, cluster: Option<usize>| {
            let parts = self.parts.iter();
            let parts = parts.filter(|part| cluster.is_none() || part.cluster == cluster);
            let parts = parts.map(|part| Partition {
                name: part.name.clone(),
                node: part.node.clone(),
                parts: slots.map(|_| part.slots[0]..=part.slots[1]),
            });
            PartitionMap::new(known.iter().copied(), slots, parts.collect()).err()
        };
        if let Some(error) = check(None, None) {
            return vec![error.to_string()];
        }
        if self.by == By::Rows {
            let error = check(Some(SLOTS), None);
            return error
                .map(|error| format!("of its slots as parts: {error}"))
                .into_iter()
                .collect();
        }
        let faults = (0..self.clusters.len()).filter_map(|cluster| {
            let error = check(Some(SLOTS), Some(cluster))?;
            Some(format!("cluster {cluster}, of its slots as parts: {error}"))
        });
        faults.collect()
    }

    /// Index of a row's part; `None` in a gap.
    pub fn part_of(&self, key: &str, point: &[f64]) -> Option<usize> {
        let (cluster, slot) = (nearest(&self.clusters, point), slot_of(key));
        self.parts.iter().position(|part| {
            let of_cluster = self.by == By::Rows || part.cluster == Some(cluster);
            of_cluster && (part.slots[0]..=part.slots[1]).contains(&slot)
        })
    }
}

/// Slot of a key.
pub fn slot_of(key: &str) -> u32 {
    slot_of_hash(md5_word(key.as_bytes()), SLOTS)
}

/// Index of the nearest centre; the first of several.
pub fn nearest(centres: &[Vec<f64>], point: &[f64]) -> usize {
    let mut best = (0, f64::INFINITY);
    for (at, centre) in centres.iter().enumerate() {
        let square = centre
            .iter()
            .zip(point)
            .map(|(x, y)| (x - y) * (x - y))
            .sum();
        if square < best.1 {
            best = (at, square);
        }
    }
    best.0
}
