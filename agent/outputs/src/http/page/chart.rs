//! Sparklines: ten minutes of a figure as paths of an SVG.

use std::{fmt::Write, time::Duration};

use plimsoll_node::history::{Point, STEP, STEPS};

/// Height of a chart in its own units; a step is one unit wide.
pub const HEIGHT: f64 = 40.0;
/// Width of a chart in its own units.
pub const WIDTH: usize = STEPS - 1;
/// Space above the highest value, which a line of some width needs.
const MARGIN: f64 = 1.5;

/// A figure by step, oldest first: outer `None` where no period ended, inner `None` where one did without this figure.
pub type Series = Vec<Option<Option<f64>>>;

/// One line of a chart.
pub struct Line {
    /// Class of its style.
    pub class: &'static str,
    /// Label next to the chart.
    pub name: String,
    /// Drawing commands.
    pub path: String,
}

/// A figure now, and its last ten minutes.
pub struct Chart {
    /// Unique on the page.
    pub id: String,
    /// Title of the chart.
    pub title: String,
    /// The current figure, with its unit.
    pub value: String,
    /// Figure to compare it with.
    pub beside: String,
    /// Whether it is worse than was promised; `beside` says so, too.
    pub is_bad: bool,
    /// The highest value, with its unit; `None` where all are unknown.
    pub top: Option<String>,
    /// In the order in which they are drawn.
    pub lines: Vec<Line>,
    /// Text alternative for screen readers.
    pub told: String,
}

/// Takes a figure out of the history.
pub fn series(points: &[Option<Point>], figure: impl Fn(&Point) -> Option<f64>) -> Series {
    let figures = points.iter().map(|point| point.as_ref().map(&figure));
    figures.collect()
}

/// The known values.
pub fn known(series: &Series) -> impl Iterator<Item = f64> {
    series.iter().copied().flatten().flatten()
}

/// The highest value; `None` where there is none above 0.
pub fn top(all: &[&Series]) -> Option<f64> {
    let values = all.iter().flat_map(|series| known(series));
    values.filter(|value| *value > 0.0).reduce(f64::max)
}

/// Connects values that follow each other; between two periods there may be steps in which none ended. Where the
/// figure was unknown, or the loop stood still, there is a gap.
pub fn path(series: &Series, top: f64, period: Duration) -> String {
    let apart = 1 + (1.1 * period.as_secs_f64() / STEP.as_secs_f64()) as usize;
    let mut path = String::new();
    let mut last: Option<(usize, String)> = None;
    // Where the command for a level begins, which the next value may prolong.
    let mut level = None;
    for (x, step) in series.iter().enumerate() {
        let Some(value) = step else { continue };
        let Some(value) = value else {
            last = None;
            continue;
        };
        let y = HEIGHT - MARGIN - (HEIGHT - 2.0 * MARGIN) * (value / top).clamp(0.0, 1.0);
        let y = format!("{y:.1}");
        let before = last.as_ref().filter(|(before, _)| x - before <= apart);
        let is_level = before.is_some_and(|(_, before)| *before == y);
        let begins = level.filter(|_| is_level).unwrap_or(path.len());
        path.truncate(begins);
        let _ = match before {
            // A value by itself is a dot.
            None => write!(path, "M{x} {y}h0"),
            Some(_) if is_level => write!(path, "H{x}"),
            Some(_) => write!(path, "L{x} {y}"),
        };
        level = is_level.then_some(begins);
        last = Some((x, y));
    }
    path
}

/// A level that holds for the whole time.
pub fn level(value: f64) -> Series {
    vec![Some(Some(value)); STEPS]
}

/// Says what a line shows.
pub fn in_words(series: &Series, worded: impl Fn(f64) -> String) -> String {
    let count = known(series).count();
    if count == 0 {
        return "unknown for the last 10 minutes".to_owned();
    }
    let least = known(series).fold(f64::MAX, f64::min);
    let most = known(series).fold(0.0, f64::max);
    let (least, most) = (worded(least), worded(most));
    let range = match least == most {
        true => most,
        false => format!("between {least} and {most}"),
    };
    let known = STEP.as_secs_f64() * count as f64 / 60.0;
    format!("{range}, known for {known:.1} of the last 10 minutes")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(1);

    fn series(values: &[Option<Option<f64>>]) -> Series {
        values.to_vec()
    }

    #[test]
    fn a_line_is_broken_where_nothing_is_known() {
        let some = |value| Some(Some(value));
        let line = series(&[some(0.0), some(1.0), Some(None), some(1.0), None, some(0.5)]);
        let drawn = path(&line, 1.0, PERIOD);
        assert_eq!(drawn, "M0 38.5h0L1 1.5M3 1.5h0M5 20.0h0");
        // Periods of 12 s: two steps in three have no end of a period.
        let drawn = path(&line, 1.0, Duration::from_secs(12));
        assert_eq!(drawn, "M0 38.5h0L1 1.5M3 1.5h0L5 20.0");
    }

    #[test]
    fn a_level_is_one_stretch() {
        let line = [1.0, 1.0, 1.0, 0.5, 0.5, 1.0].map(|value| Some(Some(value)));
        let drawn = path(&series(&line), 1.0, PERIOD);
        assert_eq!(drawn, "M0 1.5h0H2L3 20.0H4L5 1.5");
    }

    #[test]
    fn all_lines_fit() {
        let (low, high) = (level(0.25), level(4.0));
        assert_eq!(top(&[&low, &high]), Some(4.0));
        assert_eq!(top(&[&series(&[None]), &level(0.0)]), None);
        assert_eq!(path(&high, 4.0, PERIOD), "M0 1.5h0H119");
        assert_eq!(path(&low, 4.0, PERIOD), "M0 36.2h0H119");
    }

    #[test]
    fn a_line_is_told() {
        let words = |value: f64| format!("{value} s");
        let line = series(&[None, Some(None), Some(Some(0.5)), Some(Some(2.0))]);
        let told = in_words(&line, words);
        let expected = "between 0.5 s and 2 s, known for 0.2 of the last 10 minutes";
        assert_eq!(told, expected);
        let expected = "1 s, known for 10.0 of the last 10 minutes";
        assert_eq!(in_words(&level(1.0), words), expected);
        let expected = "unknown for the last 10 minutes";
        assert_eq!(in_words(&series(&[None]), words), expected);
    }
}
