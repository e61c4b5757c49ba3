//! CPU load: algorithm 4.1.

use super::CounterError;

/// Share of the CPU time from which use alone no longer tells the load (line 7).
pub const SATURATED: f64 = 0.95;

/// How often the kernel renews its load average, in seconds. Looking twice in between would compare
/// a figure with itself.
pub const RENEWED: f64 = 5.0;

/// CPU time since some start, both in one unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTime {
    /// Used, or lost to others of the machine.
    pub used: f64,
    /// That there was.
    pub offered: f64,
}

impl CpuTime {
    /// Share of the CPU time used since an earlier reading, 0 to 1.
    pub fn share_since(self, earlier: CpuTime) -> Result<f64, CounterError> {
        let used = self.used - earlier.used;
        let offered = self.offered - earlier.offered;
        if offered == 0.0 {
            return Err(CounterError::NoTime);
        }
        // What is no number compares as false.
        if !(used >= 0.0 && offered > 0.0) {
            return Err(CounterError::WentBack);
        }
        Ok((used / offered).min(1.0))
    }
}

/// A load average as the kernel makes one, for a group of processes that it keeps none of.
///
/// `A = (L + A · (S - 1)) / S` (the thesis' footnote 1), with `S` samples a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueAverage(f64);

impl QueueAverage {
    /// Takes in how many run or wait, `seconds` after the last time; the average now.
    pub fn add(&mut self, running: f64, seconds: f64) -> f64 {
        let samples = (60.0 / seconds).max(1.0);
        let average = (running + self.0 * (samples - 1.0)) / samples;
        if average.is_finite() {
            self.0 = average.max(0.0);
        }
        self.0
    }
}

/// What algorithm 4.1 looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuSample {
    /// Share of the CPU time used since the last look, 0 to 1.
    pub share: f64,
    /// CPUs there are; a part of one in a container.
    pub cpus: f64,
    /// Processes that run or wait to, without those of whoever looks.
    pub waiting: f64,
    /// Their average of the last minute.
    pub average: f64,
    /// Time since the last look, in seconds.
    pub seconds: f64,
}

/// Algorithm 4.1, and what it remembers.
#[derive(Clone, Debug, Default)]
pub struct CpuLoad {
    before: Option<f64>,
    last: f64,
    age: f64,
}

impl CpuLoad {
    /// The load for each CPU, 0 or more. Below [`SATURATED`] it is the share used, and at least 1
    /// from there on.
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

    /// The average when it was last looked at, or where that is no time ago, before that.
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
