//! Network load: the waiting time of an M/M/1 queue (section 4.3).

use super::CounterError;

/// A full link counts as one that is used to this part, so that its load is large, but a number.
pub const MAX_UTILISATION: f64 = 0.99;

/// What went through an interface since some start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkBytes {
    /// In.
    pub received: u64,
    /// Out.
    pub sent: u64,
}

/// How far the busier direction of a link was used between two readings, 0 to 1: `ρ = λ / μ`. Links
/// carry both directions at once, each with a queue of its own.
pub fn link_utilisation(
    earlier: LinkBytes,
    now: LinkBytes,
    seconds: f64,
    bits_per_second: f64,
) -> Result<f64, CounterError> {
    let since = |now: u64, earlier: u64| now.checked_sub(earlier).ok_or(CounterError::WentBack);
    let received = since(now.received, earlier.received)?;
    let sent = since(now.sent, earlier.sent)?;
    let most = seconds * bits_per_second;
    if !(most.is_finite() && most > 0.0) {
        return Err(CounterError::NoTime);
    }
    Ok((8.0 * received.max(sent) as f64 / most).min(1.0))
}

/// `ρ / (1 - ρ)`, with `ρ` at most [`MAX_UTILISATION`].
pub fn network_load(utilisation: f64) -> f64 {
    if utilisation.is_nan() {
        return 0.0;
    }
    let rho = utilisation.clamp(0.0, MAX_UTILISATION);
    rho / (1.0 - rho)
}
