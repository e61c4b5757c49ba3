//! Clustering of points with known clusters, and without clusters.
#![allow(clippy::unwrap_used, missing_docs)]

use plimsoll_science::cluster::{
    ClusterError, Clustering, PointError, Points, SAMPLE, anneal, balance, k_means,
};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Points around these centres, the given number each.
fn around(centres: &[(f64, f64, usize)]) -> Points {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut made = Points::new(2);
    for (x, y, count) in centres {
        for _ in 0..*count {
            let mut near = |at: f64| at + random.random::<f64>() - 0.5;
            made.push(&[near(*x), near(*y)]).unwrap();
        }
    }
    made
}

fn of(rows: &[[f64; 2]]) -> Points {
    let mut made = Points::new(2);
    for row in rows {
        made.push(row).unwrap();
    }
    made
}

fn sorted(found: &Clustering) -> Vec<usize> {
    let mut sizes = found.sizes.clone();
    sizes.sort_unstable();
    sizes
}

#[test]
fn both_methods_find_separate_clusters_of_any_size() {
    let points = around(&[
        (0.0, 0.0, 400),
        (9.0, 0.0, 100),
        (0.0, 9.0, 20),
        (30.0, 30.0, 5),
    ]);
    for found in [
        anneal(&points, 4, 1, &mut |_| ()).unwrap(),
        k_means(&points, 4, 1, &mut |_| ()).unwrap(),
    ] {
        assert_eq!(sorted(&found), [5, 20, 100, 400]);
        assert!(found.distortion < 0.2, "{}", found.distortion);
        assert!(found.davies_bouldin().unwrap() < 0.2);
        assert!((found.balance() - 400.0 * 4.0 / 525.0).abs() < 1e-12);
    }
}

#[test]
fn annealing_splits_clusters_one_by_one_as_it_cools() {
    let points = around(&[(0.0, 0.0, 100), (9.0, 0.0, 100), (30.0, 0.0, 100)]);
    let mut seen = Vec::new();
    anneal(&points, 3, 1, &mut |now| seen.push(*now)).unwrap();
    assert_eq!(seen[0].clusters, 1);
    assert!(seen.windows(2).all(|two| {
        two[1].temperature <= two[0].temperature && two[1].clusters >= two[0].clusters
    }));
    // The points lie around 0, 9 and 30: half of the first temperature is their variance along that line.
    let variance = (169.0 + 16.0 + 289.0) / 3.0;
    assert!((seen[0].temperature / 2.0 / variance - 1.0).abs() < 0.02);
    assert!(seen.iter().any(|now| now.clusters == 2));
    assert_eq!(seen.last().unwrap().temperature, 0.0);
}

#[test]
fn annealing_matches_the_best_of_ten_k_means_for_any_seed() {
    let points = around(&[
        (0.0, 0.0, 300),
        (1.0, 0.2, 200),
        (0.0, 1.4, 150),
        (1.3, 1.2, 80),
        (3.0, 0.1, 60),
        (2.8, 1.6, 10),
    ]);
    let by = |seed| {
        let annealed = anneal(&points, 6, seed, &mut |_| ()).unwrap();
        (
            annealed.distortion,
            k_means(&points, 6, seed, &mut |_| ()).unwrap().distortion,
        )
    };
    let distortions: Vec<(f64, f64)> = (1..=10).map(by).collect();
    let first = distortions[0].0;
    assert!(distortions.iter().all(|(annealed, _)| *annealed == first));
    let least = distortions.iter().map(|(_, other)| *other);
    let least = least.fold(f64::INFINITY, f64::min);
    assert!(first <= least * (1.0 + 1e-9), "{distortions:?}");
}

#[test]
fn clusters_missing_from_the_sample_are_found() {
    let mut points = Points::new(1);
    for at in 0..SAMPLE + 3 {
        points.push(&[at.saturating_sub(SAMPLE) as f64]).unwrap();
    }
    let found = anneal(&points, 3, 1, &mut |_| ()).unwrap();
    assert_eq!(sorted(&found), [1, 1, SAMPLE + 1]);
}

#[test]
fn invalid_points_are_refused_with_row_and_column() {
    let mut points = of(&[[1.0, 2.0]]);
    let width = PointError::Width {
        row: 1,
        found: 3,
        wanted: 2,
    };
    assert_eq!(points.push(&[1.0, 2.0, 3.0]), Err(width));
    for value in [f64::NAN, f64::INFINITY, -f64::INFINITY, 1e300] {
        let error = points.push(&[0.0, value]).unwrap_err();
        assert!(
            error.to_string().starts_with("row 1, column 1: "),
            "{error}"
        );
    }
    assert_eq!(points.len(), 1);
}

#[test]
fn too_few_distinct_points_are_refused() {
    let same = of(&[[3.0, 4.0]; 5]);
    for method in [anneal, k_means] {
        let found = method(&same, 1, 1, &mut |_| ()).unwrap();
        assert_eq!(
            (found.centres, found.sizes),
            (vec![vec![3.0, 4.0]], vec![5])
        );
        assert_eq!(found.distortion, 0.0);
        let refused = |points: &Points, wanted| method(points, wanted, 1, &mut |_| ()).unwrap_err();
        let few = ClusterError::Points {
            wanted: 2,
            points: 5,
            distinct: 1,
        };
        assert_eq!(refused(&same, 2), few);
        let none = ClusterError::Points {
            wanted: 1,
            points: 0,
            distinct: 0,
        };
        assert_eq!(refused(&Points::new(2), 1), none);
        assert_eq!(refused(&Points::new(0), 1), ClusterError::NoColumns);
        assert_eq!(refused(&same, 0), ClusterError::Clusters(0));
    }
}

#[test]
fn as_many_points_as_clusters_give_single_point_clusters() {
    let points = of(&[[0.0, 0.0], [1e9, 0.0], [0.0, 1e-9], [5.0, 5.0], [5.0, 5.0]]);
    for method in [anneal, k_means] {
        let found = method(&points, 4, 3, &mut |_| ()).unwrap();
        assert_eq!(sorted(&found), [1, 1, 1, 2]);
        assert_eq!(found.distortion, 0.0);
    }
}

#[test]
fn balance_is_largest_over_mean_size() {
    assert_eq!(balance(&[2, 2, 2]), 1.0);
    assert_eq!(balance(&[6, 0, 0]), 3.0);
    assert_eq!(balance(&[]), 1.0);
}
