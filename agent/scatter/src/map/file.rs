//! Partition maps: which row belongs to which part, and which node serves it.

use std::{fs, path::Path};

use anyhow::{Context, bail};
use clap::ValueEnum;
use plimsoll_core::{
    gather::{Partition, PartitionMap},
    md5_word,
    ring::{DEFAULT_SLOTS, slot_of_hash},
};
use plimsoll_science::cluster::MAX_CLUSTERS;
use serde::{Deserialize, Serialize};

/// Slots of keys' hashes; part of the format.
pub const SLOTS: u32 = DEFAULT_SLOTS;
const VERSION: u32 = 1;
const MAX_BYTES: u64 = 16 << 20;

/// What rows are told apart by.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// The hash of the key: parts of even sizes.
    Rows,
    /// What is near to what: a part is a cluster.
    Clusters,
    /// Clusters, of which large ones are several parts by the hash of the key.
    Both,
}

/// A part of the rows.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// The node that serves it.
    pub node: String,
    /// The cluster it is of, from 0, where there are clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<usize>,
    /// Its first and last slot of the key's hash.
    pub slots: [u32; 2],
    /// Rows it was made of, or extended to.
    pub rows: u64,
}

/// A partition map as it is in a file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Map {
    version: u32,
    /// What rows are told apart by.
    pub by: By,
    /// Column of the key.
    pub key: String,
    /// Columns of the coordinates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// Centres of the clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<Vec<f64>>,
    /// In order.
    pub parts: Vec<Part>,
}

impl Map {
    /// Of these.
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

    /// Reads a file. Its parts may still have gaps or overlap: [`Map::faults`] tells.
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
                    bail!(
                        "part {:?} is of cluster {at}, which is not there",
                        part.name
                    )
                }
                None if clustered => bail!("part {:?} is of no cluster", part.name),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes a file whole, or leaves it as it was.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        fs::write(&beside, text)
            .and_then(|()| fs::rename(&beside, path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// What is wrong with the parts: names, nodes other than these (where there are any), gaps and overlaps; the
    /// first of each cluster.
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

    /// The part of a row; none where there is a gap.
    pub fn part_of(&self, key: &str, point: &[f64]) -> Option<usize> {
        let (cluster, slot) = (nearest(&self.clusters, point), slot_of(key));
        self.parts.iter().position(|part| {
            let of_cluster = self.by == By::Rows || part.cluster == Some(cluster);
            of_cluster && (part.slots[0]..=part.slots[1]).contains(&slot)
        })
    }
}

/// The slot of a key.
pub fn slot_of(key: &str) -> u32 {
    slot_of_hash(md5_word(key.as_bytes()), SLOTS)
}

/// The nearest of these; the first of equal ones.
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
