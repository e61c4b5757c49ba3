//! CPU load of what the service may use: the whole machine, some of its CPUs, or a group's quota.

use std::path::PathBuf;

use super::counters::{CpuLoad, CpuSample, CpuTime, QueueAverage, RENEWED, SATURATED};

use super::{
    cgroup::{Group, Queue},
    files::Roots,
    machine::{self, CpuSet, Cpus},
};

/// What limits the service.
#[derive(Debug, PartialEq)]
enum Limit {
    Machine,
    Set(CpuSet),
    Group(PathBuf),
}

/// Reads it, and remembers what the next reading is compared with.
#[derive(Debug)]
pub struct CpuReader {
    /// The configured group; the agent's own where none is.
    named: Option<PathBuf>,
    load: CpuLoad,
    average: QueueAverage,
    /// Of groups in full use: the queue, where it can be seen, and seconds since it was counted.
    queue: Option<(Option<Queue>, f64)>,
    /// Of groups: CPU time that was there to use, in microseconds.
    offered: f64,
    /// Seconds not yet in there, since readings failed.
    elapsed: f64,
    base: Option<(Limit, CpuTime)>,
}

impl CpuReader {
    /// Not read yet.
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

    /// The load since the last reading, `seconds` ago; `None` where this one is the first.
    pub fn read(&mut self, roots: &Roots, seconds: f64) -> Result<Option<f64>, String> {
        self.elapsed += seconds;
        let group = Group::find(roots, self.named.as_deref())?;
        let all = Cpus::read(&roots.proc)?;
        let set = match &group {
            Some(group) => group.cpus()?,
            None => None,
        };
        let count = all.count(set.as_ref());
        // A set none of whose CPUs is on line limits nothing that could be measured.
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
            // What limits it has changed: a new beginning.
            _ => return Ok(None),
        };
        let (waiting, average) = match of_group {
            None => machine::queue(&roots.proc)?,
            Some((group, path)) => {
                let queue = match self.queue {
                    // While the CPUs are not in full use those that run are all there are.
                    _ if share < SATURATED => None,
                    // Threads may be many, and the kernel does not count more often.
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
