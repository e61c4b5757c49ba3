//! Backoff between failed attempts.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

/// The waits after consecutive failures, without end.
pub type Backoff = <ExponentialBuilder as BackoffBuilder>::Backoff;

/// Exponential backoff from `min` to `max`, doubling each time; jitter shortens each wait by up to half, so that agents
/// do not retry in step.
pub fn backoff(min: Duration, max: Duration) -> Backoff {
    // Jitter is added to the delay: up to as much again.
    ExponentialBuilder::new()
        .with_min_delay(min.min(max) / 2)
        .with_max_delay(max / 2)
        .without_max_times()
        .with_jitter()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_maximum_and_differ() {
        let millis = Duration::from_millis;
        let waits: Vec<_> = backoff(millis(100), millis(500)).take(40).collect();
        let nominal = [100, 200, 400].into_iter().chain(std::iter::repeat(500));
        for (wait, nominal) in waits.iter().zip(nominal.map(millis)) {
            assert!((nominal / 2..=nominal).contains(wait), "{wait:?}");
        }
        assert!(waits[3..].iter().any(|wait| *wait != waits[3]));
        assert_eq!(waits.len(), 40);
    }

    #[test]
    fn minimum_is_limited_to_the_maximum() {
        let max = Duration::from_millis(10);
        let first = backoff(Duration::from_secs(1), max).next();
        assert!(first.is_some_and(|wait| wait <= max));
    }
}
