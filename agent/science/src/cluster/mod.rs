//! Clusters of points: by deterministic annealing, and by k-means to compare it with. Distances are Euclidean;
//! columns count as they are.

mod annealing;
mod k_means;
mod moves;
mod pass;
mod points;

pub use annealing::{SAMPLE, anneal};
pub use k_means::k_means;
pub use points::{LARGEST, PointError, Points};

/// Clusters, at most.
pub const MAX_CLUSTERS: usize = 1024;

/// Why there are no clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// None, or too many.
    #[error("{0} clusters: must be 1 to {MAX_CLUSTERS}")]
    Clusters(usize),
    /// Nothing to go by.
    #[error("points without a column")]
    NoColumns,
    /// Fewer distinct points than clusters.
    #[error(
        "{wanted} clusters of {points} points, of which {distinct} are distinct: there must be one for each"
    )]
    Points {
        /// Clusters wanted.
        wanted: usize,
        /// Points given.
        points: usize,
        /// Distinct ones.
        distinct: usize,
    },
}

fn check(points: &Points, clusters: usize) -> Result<(), ClusterError> {
    if !(1..=MAX_CLUSTERS).contains(&clusters) {
        return Err(ClusterError::Clusters(clusters));
    }
    if points.width() == 0 {
        return Err(ClusterError::NoColumns);
    }
    let distinct = points.distinct(clusters);
    match distinct < clusters {
        true => Err(ClusterError::Points {
            wanted: clusters,
            points: points.len(),
            distinct,
        }),
        false => Ok(()),
    }
}

/// How far the search is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Squared units of the coordinates; 0 in the end, where every point has one cluster.
    pub temperature: f64,
    /// Clusters there are by now.
    pub clusters: usize,
    /// Mean of the squared distances to the centres, of the points looked at.
    pub distortion: f64,
}

/// Clusters found.
#[derive(Clone, Debug, PartialEq)]
pub struct Clustering {
    /// Where they are: the mean of their points.
    pub centres: Vec<Vec<f64>>,
    /// Points of each; none is empty.
    pub sizes: Vec<usize>,
    /// Mean distance of each one's points to its centre.
    pub spreads: Vec<f64>,
    /// Mean of the squared distances to the nearest centre.
    pub distortion: f64,
}

impl Clustering {
    /// The largest over the mean size: 1 where they are even.
    pub fn balance(&self) -> f64 {
        balance(&self.sizes)
    }

    /// The index of Davies and Bouldin ("A cluster separation measure", IEEE Trans. PAMI 1(2), 1979), with mean
    /// distances: how wide clusters are over how far they are from the one they are worst told from, in the
    /// mean. 0 is best; none of a single cluster.
    pub fn davies_bouldin(&self) -> Option<f64> {
        let clusters = || self.centres.iter().zip(&self.spreads).enumerate();
        if self.centres.len() < 2 {
            return None;
        }
        let worst = |(at, (centre, spread)): (usize, (&Vec<f64>, &f64))| {
            clusters()
                .filter(|(other, _)| *other != at)
                .map(|(_, (other, wide))| (spread + wide) / distance(centre, other))
                .fold(0.0, f64::max)
        };
        let sum: f64 = clusters().map(worst).sum();
        Some(sum / self.centres.len() as f64)
    }
}

/// The largest over the mean: 1 where all are even, or where there is nothing.
pub fn balance(sizes: &[usize]) -> f64 {
    let (largest, sum) = (sizes.iter().max(), sizes.iter().sum::<usize>());
    match (largest, sum) {
        (Some(largest), 1..) => *largest as f64 * sizes.len() as f64 / sum as f64,
        _ => 1.0,
    }
}

fn distance(x: &[f64], y: &[f64]) -> f64 {
    let squares = x.iter().zip(y).map(|(x, y)| (x - y) * (x - y));
    squares.sum::<f64>().sqrt()
}
