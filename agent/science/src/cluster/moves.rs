//! Out of a local minimum: B. Fritzke, "The LBG-U method for vector quantization - an improvement over LBG inspired
//! from neural networks", Neural Processing Letters 5, 1997. Where a cluster is of little use and another one has
//! much distortion, the first one's centre goes there.

use super::{Clustering, Points, k_means::lloyd};

/// Moves, at most; each that is kept has made the distortion less.
const MAX_MOVES: usize = 32;
/// By at least this part of it.
const MIN_GAIN: f64 = 1e-5;

/// No worse than what it begins with; without chance.
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

/// What a cluster is to its points.
#[derive(Clone, Default)]
struct Use {
    /// Of their squared distances to the centre, and to the next one.
    error: f64,
    without: f64,
    count: f64,
    /// Of squared distances by column.
    squares: Vec<f64>,
}

/// The centres with that of least use beside that with most distortion; `None` where they are the same.
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
    // Along the column in which it is widest, by half its deviation either way.
    let widest = |x: &usize, y: &usize| uses[worst].squares[*x].total_cmp(&uses[worst].squares[*y]);
    let column = (0..points.width()).max_by(widest)?;
    let step = 0.5 * (uses[worst].squares[column] / uses[worst].count.max(1.0)).sqrt();
    beside[column] += step;
    centres[worst][column] -= step;
    centres[least] = beside;
    Some(centres)
}
