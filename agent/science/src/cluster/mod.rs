//! Clustering of points by deterministic annealing, and by k-means for comparison. Distances are Euclidean, without
//! scaling of columns.

mod annealing;
mod k_means;
mod moves;
mod pass;
mod points;

pub use annealing::{SAMPLE, anneal};
pub use k_means::k_means;
pub use points::{LARGEST, PointError, Points};

/// Maximum clusters.
pub const MAX_CLUSTERS: usize = 1024;

/// Reason for which clustering fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// The number of clusters is not 1 to [`MAX_CLUSTERS`].
    #[error("{0} clusters: must be 1 to {MAX_CLUSTERS}")]
    Clusters(usize),
    /// The points have no columns.
    #[error("points without a column")]
    NoColumns,
    /// Fewer distinct points than clusters.
    #[error(
        "{wanted} clusters of {points} points, of which {distinct} are distinct: there must be one for each"
    )]
    Points {
        /// Wanted clusters.
        wanted: usize,
        /// Given points.
        points: usize,
        /// Distinct points.
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

/// Progress of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Temperature in squared units of the coordinates; 0 in the final iteration, with hard assignments.
    pub temperature: f64,
    /// Present number of clusters.
    pub clusters: usize,
    /// Mean squared distance of the examined points to their centres.
    pub distortion: f64,
}

/// Result of clustering.
#[derive(Clone, Debug, PartialEq)]
pub struct Clustering {
    /// Centres: the means of the clusters' points.
    pub centres: Vec<Vec<f64>>,
    /// Number of points of each cluster, at least 1.
    pub sizes: Vec<usize>,
    /// Mean distance of each cluster's points to its centre.
    pub spreads: Vec<f64>,
    /// Mean squared distance to the nearest centre.
    pub distortion: f64,
}

impl Clustering {
    /// Ratio of the largest to the mean size; 1 for even sizes.
    pub fn balance(&self) -> f64 {
        balance(&self.sizes)
    }

    /// Davies-Bouldin index ("A cluster separation measure", IEEE Trans. PAMI 1(2), 1979) with mean distances: the mean
    /// ratio of the clusters' widths to their distance from the least separated other one. 0 is best; `None` for a
    /// single cluster.
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

/// Ratio of the largest to the mean; 1 if all are even or there are none.
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
