//! One parallel pass over all points. Sums are computed in blocks and added in order, so that the result does not
//! depend on the number of cores.

use rayon::prelude::*;

use super::Points;

/// Points of a block.
const BLOCK: usize = 2048;
/// Squared distance, in temperatures, beyond which a point's share in a cluster is 0: e⁻⁴⁰ is negligible.
const COLD: f64 = 40.0;

/// Centres, each with its share of all points.
#[derive(Clone, Debug)]
pub(super) struct Codes {
    width: usize,
    /// By column, then cluster, so that the distances to all clusters are computed together.
    by_column: Vec<f64>,
    masses: Vec<f64>,
}

impl Codes {
    pub(super) fn new(width: usize, centres: &[Vec<f64>], masses: &[f64]) -> Self {
        let by_column = (0..width)
            .flat_map(|column| centres.iter().map(move |centre| centre[column]))
            .collect();
        Self {
            width,
            by_column,
            masses: masses.to_vec(),
        }
    }

    fn len(&self) -> usize {
        self.masses.len()
    }

    /// Squared distances of a point to all centres.
    fn distances(&self, point: &[f64], squares: &mut [f64]) {
        squares.fill(0.0);
        for (x, column) in point.iter().zip(self.by_column.chunks_exact(self.len())) {
            for (square, centre) in squares.iter_mut().zip(column) {
                let apart = x - centre;
                *square += apart * apart;
            }
        }
    }
}

/// Index and value of the smallest distance; the first of equal ones.
fn nearest(squares: &[f64]) -> (usize, f64) {
    let mut best = (0, f64::INFINITY);
    for (at, square) in squares.iter().enumerate() {
        if *square < best.1 {
            best = (at, *square);
        }
    }
    best
}

/// Sums of a pass.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    /// By cluster: sum of the points' shares.
    pub(super) masses: Vec<f64>,
    /// By cluster, then column: weighted sum of the points.
    pub(super) points: Vec<f64>,
    /// By cluster: sum of the (not squared) distances of the points nearest to it.
    pub(super) distances: Vec<f64>,
    /// By cluster: sums of products of the deviations from the centre, the lower triangle by rows; if requested.
    pub(super) products: Vec<f64>,
    /// Weighted sum of squared distances.
    pub(super) squares: f64,
    /// Sum of squared distances to the nearest centre.
    pub(super) nearest: f64,
    /// Point farthest from its nearest centre, and the squared distance.
    pub(super) farthest: (usize, f64),
}

impl Sums {
    fn new(clusters: usize, width: usize, products: bool) -> Self {
        let triangle = if products { width * (width + 1) / 2 } else { 0 };
        Self {
            masses: vec![0.0; clusters],
            points: vec![0.0; clusters * width],
            distances: vec![0.0; clusters],
            products: vec![0.0; clusters * triangle],
            squares: 0.0,
            nearest: 0.0,
            farthest: (0, -1.0),
        }
    }

    fn add(mut self, other: Sums) -> Self {
        let add = |to: &mut [f64], from: &[f64]| {
            for (to, from) in to.iter_mut().zip(from) {
                *to += from;
            }
        };
        add(&mut self.masses, &other.masses);
        add(&mut self.points, &other.points);
        add(&mut self.distances, &other.distances);
        add(&mut self.products, &other.products);
        self.squares += other.squares;
        self.nearest += other.nearest;
        if other.farthest.1 > self.farthest.1 {
            self.farthest = other.farthest;
        }
        self
    }

    /// New centres; `None` for an empty cluster.
    pub(super) fn centres(&self, width: usize) -> impl Iterator<Item = Option<Vec<f64>>> {
        let clusters = self.masses.iter().zip(self.points.chunks_exact(width));
        clusters.map(|(mass, sums)| {
            (*mass > 0.0).then(|| sums.iter().map(|sum| sum / mass).collect::<Vec<f64>>())
        })
    }

    fn give(&mut self, cluster: usize, point: &[f64], part: f64) {
        self.masses[cluster] += part;
        let sums = &mut self.points[cluster * point.len()..][..point.len()];
        for (sum, x) in sums.iter_mut().zip(point) {
            *sum += part * x;
        }
    }
}

fn blocks(points: &Points, empty: &Sums, of: impl Fn(Sums, usize, &[f64]) -> Sums + Sync) -> Sums {
    let width = points.width();
    let sums: Vec<Sums> = points
        .values()
        .par_chunks(BLOCK * width)
        .enumerate()
        .map(|(block, values)| of(empty.clone(), block * BLOCK, values))
        .collect();
    sums.into_iter().fold(empty.clone(), Sums::add)
}

/// Assigns every point to its nearest centre.
pub(super) fn hard(points: &Points, codes: &Codes) -> Sums {
    let empty = Sums::new(codes.len(), codes.width, false);
    blocks(points, &empty, |mut sums, first, values| {
        let mut squares = vec![0.0; codes.len()];
        for (at, point) in values.chunks_exact(codes.width).enumerate() {
            codes.distances(point, &mut squares);
            let (cluster, square) = nearest(&squares);
            sums.give(cluster, point, 1.0);
            sums.distances[cluster] += square.sqrt();
            sums.nearest += square;
            if square > sums.farthest.1 {
                sums.farthest = (first + at, square);
            }
        }
        sums.squares = sums.nearest;
        sums
    })
}

/// Assigns every point to all clusters in shares proportional to mass and `exp(-distance² / temperature)`. With the
/// products of deviations if requested.
pub(super) fn soft(points: &Points, codes: &Codes, temperature: f64, products: bool) -> Sums {
    let empty = Sums::new(codes.len(), codes.width, products);
    let triangle = empty.products.len() / codes.len();
    blocks(points, &empty, |mut sums, _, values| {
        let (mut squares, mut parts) = (vec![0.0; codes.len()], vec![0.0; codes.len()]);
        for point in values.chunks_exact(codes.width) {
            codes.distances(point, &mut squares);
            let (_, least) = nearest(&squares);
            let mut whole = 0.0;
            for ((part, square), mass) in parts.iter_mut().zip(&squares).zip(&codes.masses) {
                let colder = (square - least) / temperature;
                *part = match colder < COLD {
                    true => mass * (-colder).exp(),
                    false => 0.0,
                };
                whole += *part;
            }
            sums.nearest += least;
            for cluster in 0..codes.len() {
                let part = parts[cluster] / whole;
                if part == 0.0 {
                    continue;
                }
                sums.give(cluster, point, part);
                sums.squares += part * squares[cluster];
                if products {
                    let to = &mut sums.products[cluster * triangle..][..triangle];
                    deviations(to, point, codes, cluster, part);
                }
            }
        }
        sums
    })
}

fn deviations(products: &mut [f64], point: &[f64], codes: &Codes, cluster: usize, part: f64) {
    let apart = |column: usize| point[column] - codes.by_column[column * codes.len() + cluster];
    let mut rest = products;
    for row in 0..point.len() {
        let (these, others) = rest.split_at_mut(row + 1);
        let weighted = part * apart(row);
        for (column, product) in these.iter_mut().enumerate() {
            *product += weighted * apart(column);
        }
        rest = others;
    }
}

/// Updates the squared distances to the nearest centre for an additional centre, and returns their sum.
pub(super) fn closer(points: &Points, centre: &[f64], squares: &mut [f64]) -> f64 {
    let width = points.width();
    let sums: Vec<f64> = points
        .values()
        .par_chunks(BLOCK * width)
        .zip(squares.par_chunks_mut(BLOCK))
        .map(|(values, squares)| {
            for (point, square) in values.chunks_exact(width).zip(squares.iter_mut()) {
                let apart = point.iter().zip(centre).map(|(x, y)| (x - y) * (x - y));
                *square = square.min(apart.sum());
            }
            squares.iter().sum::<f64>()
        })
        .collect();
    sums.iter().sum()
}
