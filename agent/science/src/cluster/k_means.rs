//! k-means: the seeding of Arthur and Vassilvitskii ("k-means++: The advantages of careful seeding", SODA 2007),
//! and Lloyd's iteration ("Least squares quantization in PCM", IEEE Trans. Information Theory 28, 1982).

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    ClusterError, Clustering, Points, Progress, check,
    pass::{Codes, Sums, closer, hard},
};

/// Relative fall of the distortion below which Lloyd's iteration ends.
const MIN_GAIN: f64 = 1e-6;
/// Maximum passes of Lloyd's iteration.
const MAX_PASSES: usize = 300;

/// Clusters by k-means. Equal seeds give equal clusters.
pub fn k_means(
    points: &Points,
    clusters: usize,
    seed: u64,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Clustering, ClusterError> {
    check(points, clusters)?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let centres = fill(points, Vec::new(), clusters, &mut random);
    Ok(lloyd(points, centres, progress))
}

/// Adds centres up to the wanted number: points drawn with probabilities by squared distance to the present centres.
pub(super) fn fill(
    points: &Points,
    mut centres: Vec<Vec<f64>>,
    wanted: usize,
    random: &mut impl Rng,
) -> Vec<Vec<f64>> {
    if centres.len() >= wanted {
        return centres;
    }
    let mut squares = vec![f64::INFINITY; points.len()];
    let mut sum = f64::INFINITY;
    for centre in &centres {
        sum = closer(points, centre, &mut squares);
    }
    while centres.len() < wanted {
        let at = match centres.is_empty() {
            true => random.random_range(0..points.len()),
            false => draw(&squares, random.random::<f64>() * sum),
        };
        let centre = points.row(at).to_vec();
        sum = closer(points, &centre, &mut squares);
        centres.push(centre);
    }
    centres
}

/// Index at which the cumulative weight exceeds `left`.
fn draw(weights: &[f64], mut left: f64) -> usize {
    let mut last = 0;
    for (at, weight) in weights.iter().enumerate().filter(|(_, w)| **w > 0.0) {
        last = at;
        left -= weight;
        if left < 0.0 {
            break;
        }
    }
    last
}

/// Lloyd's iteration: moves centres to the means of their nearest points until the gain is negligible. A centre without
/// points moves to the farthest point, which exists if there are as many distinct points as centres.
pub(super) fn lloyd(
    points: &Points,
    mut centres: Vec<Vec<f64>>,
    progress: &mut dyn FnMut(&Progress),
) -> Clustering {
    let width = points.width();
    let pass = |centres: &[Vec<f64>]| {
        let sums = hard(
            points,
            &Codes::new(width, centres, &vec![1.0; centres.len()]),
        );
        let empty = sums.masses.contains(&0.0);
        (sums, empty)
    };
    let (mut sums, mut empty) = pass(&centres);
    for _ in 0..MAX_PASSES {
        progress(&Progress {
            temperature: 0.0,
            clusters: centres.len(),
            distortion: sums.nearest / points.len() as f64,
        });
        let mut farthest = Some(sums.farthest.0);
        for (centre, moved) in centres.iter_mut().zip(sums.centres(width)) {
            match (moved, farthest) {
                (Some(moved), _) => *centre = moved,
                (None, Some(at)) => {
                    *centre = points.row(at).to_vec();
                    farthest = None;
                }
                (None, None) => {}
            }
        }
        let before = (sums.nearest, empty);
        (sums, empty) = pass(&centres);
        let gained = before.0 - sums.nearest;
        if !before.1 && !empty && gained <= MIN_GAIN * before.0 {
            break;
        }
    }
    clustering(points, centres, &sums)
}

fn clustering(points: &Points, centres: Vec<Vec<f64>>, sums: &Sums) -> Clustering {
    let distances = sums.distances.iter().zip(&sums.masses);
    Clustering {
        spreads: distances.map(|(sum, mass)| sum / mass.max(1.0)).collect(),
        sizes: sums.masses.iter().map(|mass| *mass as usize).collect(),
        distortion: sums.nearest / points.len() as f64,
        centres,
    }
}
