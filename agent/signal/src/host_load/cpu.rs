//! CPU load of the CPUs available to the service: the whole machine, a CPU set, or a group's quota.

use std::path::PathBuf;

use super::counters::{CpuLoad, CpuSample, CpuTime, QueueAverage, RENEWED, SATURATED};

use super::{
    cgroup::{Group, Queue},
    files::Roots,
    machine::{self, CpuSet, Cpus},
};

/// Limit on the service's CPUs.
#[derive(Debug, PartialEq)]
enum Limit {
    Machine,
    Set(CpuSet),
    Group(PathBuf),
}

/// Reader of the CPU load, with the counters of the previous reading.
#[derive(Debug)]
pub struct CpuReader {
    /// The configured control group; `None` for the agent's own.
    named: Option<PathBuf>,
    load: CpuLoad,
    average: QueueAverage,
    /// Run queue of a saturated group, if readable, and its age in seconds.
    queue: Option<(Option<Queue>, f64)>,
    /// CPU time available to the group under its quota so far, in microseconds.
    offered: f64,
    /// Seconds not yet added to `offered`, because readings failed.
    elapsed: f64,
    base: Option<(Limit, CpuTime)>,
}

impl CpuReader {
    /// A reader without a previous reading.
    pub fn new(named: Option<PathBuf>) -> Self {
        CpuReader {
            named,
            load: CpuLoad::default(),
            average: QueueAverage::default(),
            queue: None,
            offered: 0.0,
            elapsed: 0.0,
            base: None,
        }
    }

    /// CPU load since the previous reading, which was `seconds` ago; 0 or more, `None` on the first reading and when
    /// the limit has changed.
    pub fn read(&mut self, roots: &Roots, seconds: f64) -> Result<Option<f64>, String> {
        self.elapsed += seconds;
        let group = Group::find(roots, self.named.as_deref())?;
        let all = Cpus::read(&roots.proc)?;
        let set = match &group {
            Some(group) => group.cpus()?,
            None => None,
        };
        let count = all.count(set.as_ref());
        // Ignore a set without any online CPU: nothing could be measured.
        let set = set.filter(|_| count > 0 && count < all.count(None));
        let cpus = all.count(set.as_ref()) as f64;
        let quota = match &group {
            Some(group) => group.limit()?.filter(|limit| limit.cpus < cpus),
            None => None,
        };
        let (limit, cpus, time, of_group) = match (quota, group) {
            (Some(quota), Some(group)) => {
                let used = group.used(&quota.path)?;
                self.offered += self.elapsed * quota.cpus * 1e6;
                let offered = self.offered;
                let of_group = (group, quota.path.clone());
                let time = CpuTime { used, offered };
                (Limit::Group(quota.path), quota.cpus, time, Some(of_group))
            }
            (_, Some(group)) if set.is_some() => {
                let time = all.time(set.as_ref());
                let path = group.path().to_owned();
                let limit = set.map_or(Limit::Machine, Limit::Set);
                (limit, cpus, time, Some((group, path)))
            }
            _ => (Limit::Machine, cpus, all.time(None), None),
        };
        self.elapsed = 0.0;
        let base = self.base.replace((limit, time));
        let share = match (&base, &self.base) {
            (Some((before, earlier)), Some((now, _))) if before == now => time
                .share_since(*earlier)
                .map_err(|error| error.to_string())?,
            // First reading, or the limit has changed.
            _ => return Ok(None),
        };
        let (waiting, average) = match of_group {
            None => machine::queue(&roots.proc)?,
            Some((group, path)) => {
                let queue = match self.queue {
                    // Below saturation nothing waits: all runnable threads run.
                    _ if share < SATURATED => None,
                    // There may be many threads, and the kernel's own average is no more frequent.
                    Some((queue, age)) if age + seconds < RENEWED => Some((queue, age + seconds)),
                    _ => Some((group.queue(roots, &path), 0.0)),
                };
                self.queue = queue;
                let queue = queue.and_then(|(queue, _)| queue).unwrap_or_default();
                let running = (queue.running + queue.blocked).max(share * cpus);
                (queue.running, self.average.add(running, seconds))
            }
        };
        Ok(Some(self.load.estimate(CpuSample {
            share,
            cpus,
            waiting,
            average,
            seconds,
        })))
    }
}
