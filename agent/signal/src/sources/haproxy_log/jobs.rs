//! Jobs in the node, from the number of requests that each proxy process still had there when a request ended.

use std::collections::HashMap;

use super::line::Stamp;

/// Maximum age of a process's last report: after that its lines are lost, or it has ended.
const MAX_AGE_MILLIS: i64 = 10_000;
/// Maximum number of processes remembered; the one silent for longest is forgotten.
const MAX_PROCESSES: usize = 256;

/// Last report of every proxy process.
#[derive(Debug, Default)]
pub struct JobsOfProxies(HashMap<u64, Word>);

#[derive(Clone, Copy, Debug)]
struct Word {
    jobs: u32,
    written_millis: i64,
    arrived_millis: i64,
}

impl JobsOfProxies {
    /// Takes the report of a line that arrived at `now_millis`. A line older than the last report is ignored.
    pub fn take(&mut self, stamp: Stamp, now_millis: i64) {
        let Some(left) = stamp.left else { return };
        let word = Word {
            jobs: left.jobs,
            written_millis: stamp.written_millis,
            arrived_millis: now_millis,
        };
        if let Some(known) = self.0.get_mut(&left.proxy) {
            if known.written_millis <= word.written_millis || known.is_old(now_millis) {
                *known = word;
            }
            return;
        }
        if self.0.len() >= MAX_PROCESSES
            && let Some(silent) = self.0.iter().min_by_key(|(_, word)| word.arrived_millis)
        {
            let silent = *silent.0;
            self.0.remove(&silent);
        }
        self.0.insert(left.proxy, word);
    }

    /// Sum over all reports that arrived within 10 s; `None` without any.
    pub fn sum(&mut self, now_millis: i64) -> Option<f64> {
        self.0.retain(|_, word| !word.is_old(now_millis));
        let sum = self.0.values().map(|word| f64::from(word.jobs)).sum();
        (!self.0.is_empty()).then_some(sum)
    }
}

impl Word {
    fn is_old(self, now_millis: i64) -> bool {
        now_millis - self.arrived_millis > MAX_AGE_MILLIS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::haproxy_log::line::LeftAtServer;

    fn stamp(written_millis: i64, proxy: u64, jobs: u32) -> Stamp {
        Stamp {
            written_millis,
            request: 0,
            left: Some(LeftAtServer { proxy, jobs }),
        }
    }

    #[test]
    fn the_newest_word_of_each_process_counts() {
        let mut jobs = JobsOfProxies::default();
        assert_eq!(jobs.sum(0), None);
        jobs.take(stamp(10, 1, 5), 100);
        jobs.take(stamp(500, 2, 7), 101);
        assert_eq!(jobs.sum(101), Some(12.0));
        jobs.take(stamp(9, 1, 50), 102);
        assert_eq!(jobs.sum(102), Some(12.0), "it was overtaken");
        jobs.take(stamp(11, 1, 0), 103);
        assert_eq!(jobs.sum(103), Some(7.0));
        assert_eq!(jobs.sum(101 + MAX_AGE_MILLIS + 1), Some(0.0));
        assert_eq!(jobs.sum(103 + MAX_AGE_MILLIS + 1), None);
        // The clock of process 2 went back.
        jobs.take(stamp(500, 2, 7), 0);
        jobs.take(stamp(3, 2, 4), 20_000);
        assert_eq!(jobs.sum(20_000), Some(4.0));
    }

    #[test]
    fn processes_without_end_are_forgotten() {
        let mut jobs = JobsOfProxies::default();
        for process in 0..100_000 {
            jobs.take(stamp(0, process, 1), process as i64 / 100);
        }
        assert_eq!(jobs.0.len(), MAX_PROCESSES);
        assert_eq!(jobs.sum(1_000), Some(MAX_PROCESSES as f64));
    }
}
