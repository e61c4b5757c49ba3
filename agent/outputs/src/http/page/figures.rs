//! Figures as they are read at a glance.

use std::time::Duration;

/// Text for an unknown figure.
pub const UNKNOWN: &str = "unknown";

/// The longest age that is told, in seconds.
const MAX_AGE: f64 = 1e9;

/// Three significant digits, four decimals at most.
pub fn figure(value: f64) -> String {
    let digits_before = value.abs().max(1e-9).log10().floor() as i32 + 1;
    let decimals = (3 - digits_before).clamp(0, 4) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A figure and its unit, which stay on one line.
pub fn with_unit(value: f64, unit: &str) -> String {
    format!("{}\u{a0}{unit}", figure(value))
}

/// A delay with its unit.
pub fn delay(seconds: f64) -> String {
    match seconds < 1.0 {
        true => with_unit(seconds * 1e3, "ms"),
        false => with_unit(seconds, "s"),
    }
}

/// A part of 1 in percent.
pub fn percent(part: f64) -> String {
    with_unit(part * 100.0, "%")
}

/// A length of time in whole seconds.
pub fn age(time: Duration) -> String {
    humantime::format_duration(Duration::from_secs(time.as_secs())).to_string()
}

/// An age in seconds, as it is told on the wire.
pub fn age_in_seconds(seconds: &f64) -> String {
    age(Duration::from_secs_f64(seconds.clamp(0.0, MAX_AGE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_no_trailing_zeros() {
        for (value, shown) in [
            (0.0, "0"),
            (0.000_04, "0"),
            (0.012_34, "0.0123"),
            (0.5, "0.5"),
            (0.931_2, "0.931"),
            (18.55, "18.6"),
            (40.0, "40"),
            (99.96, "100"),
            (7351.4, "7351"),
            (-0.25, "-0.25"),
        ] {
            assert_eq!(figure(value), shown);
        }
    }

    #[test]
    fn delays_below_a_second_are_in_milliseconds() {
        for (seconds, shown) in [(0.000_5, "0.5 ms"), (0.412_3, "412 ms"), (1.0, "1 s")] {
            assert_eq!(delay(seconds).replace('\u{a0}', " "), shown);
        }
        assert_eq!(age(Duration::from_millis(3_723_900)), "1h 2m 3s");
    }
}
