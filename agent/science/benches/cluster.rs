//! Deterministic annealing against k-means on the same points: time, distortion, and how far seeds differ.
//!
//! `cargo bench -p plimsoll-science --bench cluster [-- POINTS [SEEDS]]`. The points are synthetic: 12 columns, eight
//! overlapping clusters with the sizes of table 3 in "Performance of distributed database system built on multicore
//! systems" (2017).
#![allow(clippy::unwrap_used)]

use std::time::Instant;

use plimsoll_science::cluster::{Clustering, Points, anneal, k_means};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Thousands of rows.
const SIZES: [f64; 8] = [
    6204.776, 616.133, 507.209, 2018.281, 2302.272, 4634.860, 785.232, 163.017,
];
const WIDTH: usize = 12;

/// A sum of twelve uniform numbers is normal enough.
fn normal(random: &mut impl Rng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

fn points(count: usize) -> Points {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2017);
    let clusters: Vec<Vec<(f64, f64)>> = SIZES
        .iter()
        .map(|_| {
            let mut column = || {
                (
                    2.0 * normal(&mut random),
                    0.5 + 1.5 * random.random::<f64>(),
                )
            };
            (0..WIDTH).map(|_| column()).collect()
        })
        .collect();
    let whole: f64 = SIZES.iter().sum();
    let mut made = Points::new(WIDTH);
    for _ in 0..count {
        let mut left = random.random::<f64>() * whole;
        let at = SIZES.iter().position(|size| {
            left -= size;
            left < 0.0
        });
        let row: Vec<f64> = clusters[at.unwrap_or(0)]
            .iter()
            .map(|(mean, deviation)| mean + deviation * normal(&mut random))
            .collect();
        made.push(&row).unwrap();
    }
    made
}

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok());
    let (count, seeds) = (
        numbers.next().unwrap_or(1_000_000),
        numbers.next().unwrap_or(10),
    );
    let points = points(count);
    type Method = fn(&Points, u64) -> Clustering;
    let methods: [(&str, Method); 2] = [
        ("annealing", |points, seed| {
            anneal(points, 8, seed, &mut |_| ()).unwrap()
        }),
        ("k-means", |points, seed| {
            k_means(points, 8, seed, &mut |_| ()).unwrap()
        }),
    ];
    for (name, method) in methods {
        let mut distortions = Vec::new();
        let mut slowest = 0.0f64;
        for seed in 1..=seeds as u64 {
            let start = Instant::now();
            let found = method(&points, seed);
            slowest = slowest.max(start.elapsed().as_secs_f64());
            println!(
                "{name} seed {seed}: distortion {:.6}, balance {:.2}, Davies-Bouldin {:.3}",
                found.distortion,
                found.balance(),
                found.davies_bouldin().unwrap_or(f64::NAN)
            );
            distortions.push(found.distortion);
        }
        let mean = distortions.iter().sum::<f64>() / distortions.len() as f64;
        let least = distortions.iter().copied().fold(f64::INFINITY, f64::min);
        let most = distortions.iter().copied().fold(0.0, f64::max);
        println!(
            "{name}: {count} points, {seeds} seeds: distortion {mean:.6} ({least:.6} to {most:.6}), \
             slowest {slowest:.2} s"
        );
    }
}
