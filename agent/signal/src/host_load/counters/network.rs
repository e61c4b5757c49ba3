//! Network load from the waiting time of an M/M/1 queue (section 4.3).

use super::CounterError;

/// Utilisation at which a link counts as full, which keeps its load finite.
pub const MAX_UTILISATION: f64 = 0.99;

/// Cumulative traffic of an interface, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkBytes {
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
}

/// Utilisation `ρ = λ / μ` of the busier direction of a link between two readings, 0 to 1. Links are full duplex,
/// with one queue per direction. Errors if a counter went back or no time has passed.
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

/// Network load `ρ / (1 - ρ)`, 0 to 99, with `ρ` limited to [`MAX_UTILISATION`].
pub fn network_load(utilisation: f64) -> f64 {
    if utilisation.is_nan() {
        return 0.0;
    }
    let rho = utilisation.clamp(0.0, MAX_UTILISATION);
    rho / (1.0 - rho)
}
