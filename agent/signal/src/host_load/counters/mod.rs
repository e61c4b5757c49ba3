//! Host load after chapter 4 of the load balancing thesis (MySQL, 2003): turns readings of the kernel's counters
//! into one figure each for CPU and network. The two may be added (section 4.6). An idle host has 0, a saturated
//! CPU 1 or more.

mod cpu;
mod network;

pub use cpu::{CpuLoad, CpuSample, CpuTime, QueueAverage, RENEWED, SATURATED};
pub use network::{LinkBytes, MAX_UTILISATION, link_utilisation, network_load};

/// Error of a comparison of two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterError {
    /// The later reading is below the earlier one, as after a restart or an overflow.
    WentBack,
    /// No time has passed between the readings.
    NoTime,
}

impl std::fmt::Display for CounterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            CounterError::WentBack => "a counter decreased",
            CounterError::NoTime => "no time has passed between two readings",
        })
    }
}

impl std::error::Error for CounterError {}
