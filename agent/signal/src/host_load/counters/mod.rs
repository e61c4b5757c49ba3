//! Host load after chapter 4 of the load balancing thesis (MySQL, 2003): from readings of the
//! kernel's counters to one figure each for CPU and network. Loads of both kinds may be added
//! (section 4.6); an idle host has 0, and a CPU in full use has 1 or more.

mod cpu;
mod network;

pub use cpu::{CpuLoad, CpuSample, CpuTime, QueueAverage, RENEWED, SATURATED};
pub use network::{LinkBytes, MAX_UTILISATION, link_utilisation, network_load};

/// Why two readings of counters tell nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterError {
    /// The later one is below the earlier one, as after a restart or a wrap.
    WentBack,
    /// No time lies between them.
    NoTime,
}

impl std::fmt::Display for CounterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            CounterError::WentBack => "a counter went back",
            CounterError::NoTime => "no time has passed between two readings",
        })
    }
}

impl std::error::Error for CounterError {}
