//! Escape from local minima: B. Fritzke, "The LBG-U method for vector quantization - an improvement over LBG inspired
//! from neural networks", Neural Processing Letters 5, 1997. The centre of the least useful cluster moves to the
//! cluster with the most distortion.

use super::{Clustering, Points, k_means::lloyd};

/// Maximum moves, each of which must reduce the distortion.
const MAX_MOVES: usize = 32;
/// Minimum relative reduction of the distortion by a move.
const MIN_GAIN: f64 = 1e-5;

/// Improves a clustering, deterministically; the result is never worse.
pub(super) fn improve(points: &Points, mut found: Clustering) -> Clustering {
    for _ in 0..MAX_MOVES {
        let Some(centres) = moved(points, &found.centres) else {
            break;
        };
        let other = lloyd(points, centres, &mut |_| ());
        if other.distortion >= (1.0 - MIN_GAIN) * found.distortion {
            break;
        }
        found = other;
    }
    found
}

/// Utility of a cluster.
#[derive(Clone, Default)]
struct Use {
    /// Sum of its points' squared distances to its centre; `without` is that to the next centre.
    error: f64,
    without: f64,
    count: f64,
    /// Sums of squared distances by column.
    squares: Vec<f64>,
}

/// The centres with the least useful one moved beside the one with the most distortion; `None` if they are the same.
fn moved(points: &Points, centres: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    if centres.len() < 3 {
        return None;
    }
    let none = Use {
        squares: vec![0.0; points.width()],
        ..Use::default()
    };
    let mut uses = vec![none; centres.len()];
    for row in points.rows() {
        let (mut nearest, mut first, mut second) = (0, f64::INFINITY, f64::INFINITY);
        for (cluster, centre) in centres.iter().enumerate() {
            let squares = row.iter().zip(centre).map(|(x, y)| (x - y) * (x - y));
            let square: f64 = squares.sum();
            if square < first {
                (nearest, first, second) = (cluster, square, first);
            } else if square < second {
                second = square;
            }
        }
        let of = &mut uses[nearest];
        of.error += first;
        of.without += second;
        of.count += 1.0;
        for ((sum, x), y) in of.squares.iter_mut().zip(row).zip(&centres[nearest]) {
            *sum += (x - y) * (x - y);
        }
    }
    let order = |figure: fn(&Use) -> f64| {
        let uses = &uses;
        move |x: &usize, y: &usize| figure(&uses[*x]).total_cmp(&figure(&uses[*y]))
    };
    let least = (0..uses.len()).min_by(order(|it| it.without - it.error))?;
    let worst = (0..uses.len()).max_by(order(|it| it.error))?;
    if least == worst {
        return None;
    }
    let mut centres = centres.to_vec();
    let mut beside = centres[worst].clone();
    // Along its widest column, by half its deviation in either direction.
    let widest = |x: &usize, y: &usize| uses[worst].squares[*x].total_cmp(&uses[worst].squares[*y]);
    let column = (0..points.width()).max_by(widest)?;
    let step = 0.5 * (uses[worst].squares[column] / uses[worst].count.max(1.0)).sqrt();
    beside[column] += step;
    centres[worst][column] -= step;
    centres[least] = beside;
    Some(centres)
}
