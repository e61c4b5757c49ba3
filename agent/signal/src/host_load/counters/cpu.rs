//! CPU load by algorithm 4.1.

use super::CounterError;

/// Share of the CPU time used, from which the load depends on the run queue (line 7).
pub const SATURATED: f64 = 0.95;

/// Interval in seconds at which the kernel updates its load average. Two samples within it have the same value.
pub const RENEWED: f64 = 5.0;

/// Cumulative CPU time since an arbitrary start. Both fields have the same unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTime {
    /// Time used, including time stolen by other virtual machines.
    pub used: f64,
    /// Time available.
    pub offered: f64,
}

impl CpuTime {
    /// Share of the CPU time used since an earlier reading, 0 to 1. Errors if no time passed or a counter went back.
    pub fn share_since(self, earlier: CpuTime) -> Result<f64, CounterError> {
        let used = self.used - earlier.used;
        let offered = self.offered - earlier.offered;
        if offered == 0.0 {
            return Err(CounterError::NoTime);
        }
        // Comparisons with NaN are false.
        if !(used >= 0.0 && offered > 0.0) {
            return Err(CounterError::WentBack);
        }
        Ok((used / offered).min(1.0))
    }
}

/// A load average like the kernel's, for a control group, of which the kernel keeps none.
///
/// `A = (L + A · (S - 1)) / S` (the thesis' footnote 1), with `S` samples a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueAverage(f64);

impl QueueAverage {
    /// Adds a sample of the number of threads that run or wait, taken `seconds` after the previous one. Returns the new
    /// average.
    pub fn add(&mut self, running: f64, seconds: f64) -> f64 {
        let samples = (60.0 / seconds).max(1.0);
        let average = (running + self.0 * (samples - 1.0)) / samples;
        if average.is_finite() {
            self.0 = average.max(0.0);
        }
        self.0
    }
}

/// Input of algorithm 4.1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuSample {
    /// Share of the CPU time used since the previous sample, 0 to 1.
    pub share: f64,
    /// Number of CPUs available, above 0; may be fractional in a container.
    pub cpus: f64,
    /// Number of processes that run or wait for a CPU, except the agent's own.
    pub waiting: f64,
    /// Load average over the last minute.
    pub average: f64,
    /// Seconds since the previous sample.
    pub seconds: f64,
}

/// State of algorithm 4.1.
#[derive(Clone, Debug, Default)]
pub struct CpuLoad {
    before: Option<f64>,
    last: f64,
    age: f64,
}

impl CpuLoad {
    /// Load per CPU, 0 or more: the share used below [`SATURATED`], else 1 or more.
    pub fn estimate(&mut self, sample: CpuSample) -> f64 {
        let average = number(sample.average);
        let before = self.look(average, number(sample.seconds));
        let share = number(sample.share).min(1.0);
        if share < SATURATED {
            return share;
        }
        let cpus = sample.cpus.max(f64::MIN_POSITIVE);
        let is_increasing = average > 1.25 * before;
        if average < 0.3 * cpus || (average < 1.2 * cpus && !is_increasing) {
            return 1.0;
        }
        if average < 1.2 * cpus {
            return 2.0;
        }
        let waiting = number(sample.waiting);
        if waiting > 3.0 * cpus && waiting > 2.0 * average {
            return ((average + waiting) / (2.0 * cpus)).min(f64::MAX);
        }
        (average / cpus).min(f64::MAX)
    }

    /// Takes in the average; returns the earlier one to compare it with, replaced at most once per [`RENEWED`] seconds.
    fn look(&mut self, average: f64, seconds: f64) -> f64 {
        self.age += seconds;
        match self.before {
            None => {
                self.before = Some(average);
                self.last = average;
                self.age = 0.0;
            }
            Some(_) if self.age >= RENEWED => {
                self.before = Some(self.last);
                self.last = average;
                self.age = 0.0;
            }
            Some(_) => {}
        }
        self.before.unwrap_or(average)
    }
}

fn number(value: f64) -> f64 {
    if value.is_finite() {
        value.max(0.0)
    } else {
        0.0
    }
}
