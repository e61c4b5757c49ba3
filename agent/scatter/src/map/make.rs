//! Creates a partition map for a file.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use plimsoll_science::cluster::{Clustering, Points, anneal};

use super::{
    file::{By, Map, Part, SLOTS, nearest, slot_of},
    rows::{Rows, word},
};
use crate::answer::MAX_PARTITIONS;

/// Maximum rows whose coordinates are held in memory: a random sample of larger files.
const MAX_POINTS: usize = 1_000_000;

/// Arguments of `partition make`.
#[derive(Args, Clone, Debug)]
pub struct MakeArgs {
    /// CSV with a line of column names; it is read twice.
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// Column of the key, which tells a row from all others.
    #[arg(long, value_name = "COLUMN")]
    key: String,
    /// Columns of the coordinates, on one scale; for clusters.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    columns: Vec<String>,
    /// Number of parts.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=MAX_PARTITIONS as i64))]
    parts: u16,
    /// Key that rows are partitioned by.
    #[arg(long, value_enum)]
    by: By,
    /// Clusters of `--by both`; default: half as many as parts.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=MAX_PARTITIONS as i64))]
    clusters: Option<u16>,
    /// Nodes that the parts go to, in turn; default: node1, node2, …, one a part.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    nodes: Vec<String>,
    /// The same seed makes the same map of the same file.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// File to write the map to.
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
}

impl MakeArgs {
    /// Number of clusters; 0 with `--by rows`.
    fn wanted(&self) -> anyhow::Result<usize> {
        let (parts, clusters) = (usize::from(self.parts), self.clusters.map(usize::from));
        if (self.by == By::Rows) != self.columns.is_empty() {
            bail!("--columns goes with --by clusters and --by both, which need it");
        }
        match (self.by, clusters) {
            (By::Rows, None) => Ok(0),
            (By::Clusters, None) => Ok(parts),
            (By::Both, clusters) => {
                let clusters = clusters.unwrap_or(parts.div_ceil(2));
                if clusters > parts {
                    bail!("--clusters {clusters}: must be at most as many as parts, {parts}");
                }
                Ok(clusters)
            }
            (_, Some(_)) => bail!("--clusters goes with --by both"),
        }
    }
}

/// Creates the map, with its clustering if it has one.
pub fn make(args: &MakeArgs) -> anyhow::Result<(Map, Option<Clustering>)> {
    let wanted = args.wanted()?;
    let found = match wanted {
        0 => None,
        _ => Some(clusters(args, wanted)?),
    };
    let centres = found.as_ref().map_or(&[][..], |found| &found.centres);
    let mut counts = vec![vec![0u64; SLOTS as usize]; centres.len().max(1)];
    let mut rows = open(args)?;
    rows.each(|key, point| {
        counts[nearest(centres, point)][slot_of(key) as usize] += 1;
        Ok(())
    })?;
    let sizes: Vec<u64> = counts.iter().map(|slots| slots.iter().sum()).collect();
    let (all, wanted) = (sizes.iter().sum::<u64>(), usize::from(args.parts));
    if all < wanted as u64 {
        bail!(
            "{}: {all} rows are fewer than {wanted} parts",
            args.input.display()
        );
    }
    let mut parts = Vec::new();
    for (cluster, pieces) in allot(&sizes, wanted).into_iter().enumerate() {
        for (slots, rows) in cut(&counts[cluster], pieces) {
            let number = parts.len() + 1;
            let node = match args.nodes.is_empty() {
                true => format!("node{number}"),
                false => args.nodes[parts.len() % args.nodes.len()].clone(),
            };
            parts.push(Part {
                name: format!("p{number}"),
                node,
                cluster: (args.by != By::Rows).then_some(cluster),
                slots,
                rows,
            });
        }
    }
    let map = Map::new(
        args.by,
        args.key.clone(),
        args.columns.clone(),
        centres.to_vec(),
        parts,
    );
    if let Some(fault) = map.faults(&args.nodes).first() {
        bail!("{fault}");
    }
    Ok((map, found))
}

fn open(args: &MakeArgs) -> anyhow::Result<Rows> {
    Rows::open(&args.input, &args.key, &args.columns)
}

/// Clusters of the rows, or of a uniform sample of `MAX_POINTS` of them.
fn clusters(args: &MakeArgs, wanted: usize) -> anyhow::Result<Clustering> {
    let mut random = fastrand::Rng::with_seed(args.seed);
    let mut points = Points::new(args.columns.len());
    let mut seen = 0;
    open(args)?.each(|_, point| {
        seen += 1;
        if points.len() < MAX_POINTS {
            return Ok(points.push(point)?);
        }
        let at = random.usize(..seen);
        if at < MAX_POINTS {
            points.replace(at, point)?;
        }
        Ok(())
    })?;
    let found = anneal(&points, wanted, args.seed, &mut |now| {
        word(&format!(
            "{} clusters at temperature {:.3e}, distortion {:.3e}",
            now.clusters, now.temperature, now.distortion
        ));
    });
    word("");
    found.with_context(|| args.input.display().to_string())
}

/// Number of parts of each cluster: at least one, with further ones where parts would be largest.
fn allot(sizes: &[u64], parts: usize) -> Vec<usize> {
    let mut pieces = vec![1; sizes.len()];
    for _ in sizes.len()..parts {
        let size = |at: usize| sizes[at] as f64 / pieces[at] as f64;
        // The first of equal ones.
        let largest = (0..sizes.len())
            .rev()
            .max_by(|x, y| size(*x).total_cmp(&size(*y)));
        if let Some(largest) = largest {
            pieces[largest] += 1;
        }
    }
    pieces
}

/// Splits the slots into ranges with numbers of rows as even as whole slots allow; each has at least one slot.
fn cut(counts: &[u64], pieces: usize) -> Vec<([u32; 2], u64)> {
    let all: u64 = counts.iter().sum();
    let (mut made, mut first, mut passed) = (Vec::new(), 0, 0);
    for piece in 1..=pieces {
        let goal = all as f64 * piece as f64 / pieces as f64;
        let most = counts.len() - (pieces - piece);
        let mut end = first;
        let mut rows = 0;
        // A slot is included if more than half of it is needed.
        while end < most
            && (end == first
                || piece == pieces
                || (passed + rows) as f64 + counts[end] as f64 / 2.0 < goal)
        {
            rows += counts[end];
            end += 1;
        }
        made.push(([first as u32, end as u32 - 1], rows));
        passed += rows;
        first = end;
    }
    made
}

#[cfg(test)]
mod tests {
    use super::{allot, cut};

    #[test]
    fn large_clusters_are_split_into_parts() {
        assert_eq!(allot(&[620, 62, 51, 463], 8), [3, 1, 1, 3]);
        assert_eq!(allot(&[5, 5], 2), [1, 1]);
        assert_eq!(allot(&[7], 3), [3]);
    }

    #[test]
    fn slots_are_cut_evenly_without_gap_or_empty_range() {
        assert_eq!(cut(&[1; 8], 2), [([0, 3], 4), ([4, 7], 4)]);
        assert_eq!(cut(&[9, 0, 0], 3), [([0, 0], 9), ([1, 1], 0), ([2, 2], 0)]);
        assert_eq!(cut(&[0, 0, 9], 3), [([0, 0], 0), ([1, 1], 0), ([2, 2], 9)]);
    }
}
