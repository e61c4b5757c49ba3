//! Deterministic annealing with masses: K. Rose, "Deterministic annealing for clustering, compression,
//! classification, regression, and related optimization problems", Proceedings of the IEEE 86(11), 1998, section II.
//!
//! At a high temperature all points belong to one cluster. As it falls, a cluster whose covariance has an
//! eigenvalue above half the temperature no longer minimizes the free energy, and splits along that
//! eigenvector: a phase transition. So clusters are determined from coarse to fine, independently of initial
//! centres.

use nalgebra::{DMatrix, DVector};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    ClusterError, Clustering, Points, Progress, check,
    k_means::{fill, lloyd},
    moves::improve,
    pass::{Codes, Sums, soft},
};

/// Maximum points that are annealed, a random sample of larger sets. The final iteration, without temperature, uses all
/// points.
pub const SAMPLE: usize = 32_768;
/// Ratio of successive temperatures.
const COOLING: f64 = 0.9;
/// Maximum passes at one temperature.
const MAX_PASSES: usize = 40;
/// Maximum squared movement of a centre, relative to the temperature, at which centres count as settled.
const SETTLED: f64 = 1e-5;
/// Initial distance of the halves of a split cluster from its centre, in standard deviations.
const APART: f64 = 0.5;
/// Share of the distortion due to soft assignments at which every point has its cluster.
const DOUBT: f64 = 1e-3;
/// Ratio of the last to the first temperature, if annealing does not end earlier.
const COLDEST: f64 = 1e-9;

/// Clusters by deterministic annealing. Equal seeds give equal clusters; with at most [`SAMPLE`] points all seeds do.
pub fn anneal(
    points: &Points,
    clusters: usize,
    seed: u64,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Clustering, ClusterError> {
    check(points, clusters)?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let centres = match points.len() > SAMPLE {
        true => {
            let drawn = rand::seq::index::sample(&mut random, points.len(), SAMPLE);
            settled(&points.only(drawn.into_iter()), clusters, progress)
        }
        false => settled(points, clusters, progress),
    };
    // A small cluster may be missing from the sample.
    let centres = fill(points, centres, clusters, &mut random);
    Ok(lloyd(points, centres, progress))
}

/// Anneals, then moves centres to more useful places, if there are any.
fn settled(points: &Points, wanted: usize, progress: &mut dyn FnMut(&Progress)) -> Vec<Vec<f64>> {
    let centres = cool(points, wanted, progress);
    improve(points, lloyd(points, centres, &mut |_| ())).centres
}

/// Centres once every point has its cluster: the wanted number, or fewer if there are fewer distinct points.
fn cool(points: &Points, wanted: usize, progress: &mut dyn FnMut(&Progress)) -> Vec<Vec<f64>> {
    let mut state = State {
        points,
        centres: vec![vec![0.0; points.width()]],
        masses: vec![1.0],
        temperature: f64::MAX,
    };
    state.settle();
    let sums = state.sums(true);
    let hottest = 2.0 * state.largest(&sums, 0).0;
    state.temperature = hottest;
    while state.temperature > COLDEST * hottest {
        state.settle();
        let full = state.centres.len() >= wanted;
        let sums = state.sums(!full);
        progress(&Progress {
            temperature: state.temperature,
            clusters: state.centres.len(),
            distortion: sums.squares / points.len() as f64,
        });
        if full && sums.squares - sums.nearest <= DOUBT * sums.squares {
            break;
        }
        if full || !state.split(&sums, wanted) {
            state.temperature *= COOLING;
        }
    }
    state.centres
}

struct State<'a> {
    points: &'a Points,
    centres: Vec<Vec<f64>>,
    masses: Vec<f64>,
    temperature: f64,
}

impl State<'_> {
    fn sums(&self, products: bool) -> Sums {
        let codes = Codes::new(self.points.width(), &self.centres, &self.masses);
        soft(self.points, &codes, self.temperature, products)
    }

    /// Iterates centres and masses to their fixed point at this temperature.
    fn settle(&mut self) {
        for _ in 0..MAX_PASSES {
            let sums = self.sums(false);
            let mut moved = 0.0f64;
            let centres = self
                .centres
                .iter_mut()
                .zip(sums.centres(self.points.width()));
            for (centre, to) in centres {
                let Some(to) = to else { continue };
                let apart = centre.iter().zip(&to).map(|(x, y)| (x - y) * (x - y));
                moved = moved.max(apart.sum());
                *centre = to;
            }
            self.masses = sums
                .masses
                .iter()
                .map(|mass| mass / self.points.len() as f64)
                .collect();
            if moved <= SETTLED * self.temperature {
                break;
            }
        }
    }

    /// Splits critical clusters, those critical for longest first. Returns whether there were any.
    fn split(&mut self, sums: &Sums, wanted: usize) -> bool {
        let mut critical: Vec<(f64, usize, DVector<f64>)> = (0..self.centres.len())
            .map(|cluster| {
                let (value, direction) = self.largest(sums, cluster);
                (value, cluster, direction)
            })
            .filter(|(value, ..)| 2.0 * value > self.temperature)
            .collect();
        critical.sort_by(|x, y| y.0.total_cmp(&x.0));
        critical.truncate(wanted - self.centres.len());
        for (value, cluster, direction) in &critical {
            let mut other = self.centres[*cluster].clone();
            let step = APART * value.sqrt();
            for (column, along) in direction.iter().enumerate() {
                self.centres[*cluster][column] -= step * along;
                other[column] += step * along;
            }
            self.masses[*cluster] /= 2.0;
            self.masses.push(self.masses[*cluster]);
            self.centres.push(other);
        }
        !critical.is_empty()
    }

    /// Largest eigenvalue of a cluster's covariance, and its eigenvector.
    fn largest(&self, sums: &Sums, cluster: usize) -> (f64, DVector<f64>) {
        let width = self.points.width();
        let triangle = width * (width + 1) / 2;
        let products = &sums.products[cluster * triangle..][..triangle];
        let mass = sums.masses[cluster].max(f64::MIN_POSITIVE);
        let covariance = DMatrix::from_fn(width, width, |row, column| {
            let (low, high) = (row.min(column), row.max(column));
            products[high * (high + 1) / 2 + low] / mass
        });
        let eigen = covariance.symmetric_eigen();
        let (at, value) = eigen.eigenvalues.argmax();
        (value, eigen.eigenvectors.column(at).into_owned())
    }
}
