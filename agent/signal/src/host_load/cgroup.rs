//! CPU limit, CPU usage and run queue of a control group, version 1 or 2.

use std::{
    collections::HashSet,
    path::{Component, Path, PathBuf},
};

use super::{
    files::{self, LONG, Roots, SHORT},
    machine::CpuSet,
};

/// Maximum number of threads whose state is read, at some 20 µs each. Of more threads, every n-th is read.
const MAX_LOOKED_AT: usize = 1024;
/// Maximum number of threads listed.
const MAX_THREADS: usize = 1 << 16;
/// Maximum number of groups searched for threads: the limited group and its descendants.
const MAX_GROUPS: usize = 256;
/// Maximum number of levels checked from a group up to the root.
const MAX_LEVELS: usize = 64;

/// Version of the control group hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A control group with CPU accounting.
#[derive(Debug)]
pub struct Group {
    version: Version,
    /// `/sys/fs/cgroup`
    mount: PathBuf,
    /// Path of the group with the CPU time, and with the CPU set, below the mount or the controller's directory there.
    path: PathBuf,
    set_path: PathBuf,
}

/// A quota of CPU time.
#[derive(Debug, PartialEq)]
pub struct Limit {
    /// Path of the group that has the quota.
    pub path: PathBuf,
    /// Quota in CPUs, above 0; may be fractional.
    pub cpus: f64,
}

impl Group {
    /// Finds the named group, else the agent's own. `None` if the kernel has no CPU accounting by group.
    pub fn find(roots: &Roots, named: Option<&Path>) -> Result<Option<Self>, String> {
        let mount = roots.sys.join("fs/cgroup");
        let version = if mount.join("cgroup.controllers").exists() {
            Version::Two
        } else if mount.join("cpuacct").exists() {
            Version::One
        } else if let Some(named) = named {
            return Err(format!(
                "{}: no control group: no CPU accounting by group in {}",
                named.display(),
                mount.display()
            ));
        } else {
            return Ok(None);
        };
        let mut group = Group {
            version,
            mount,
            path: PathBuf::new(),
            set_path: PathBuf::new(),
        };
        if let Some(named) = named {
            let below: PathBuf = normal(named);
            let directory = group.controller("cpuacct").join(&below);
            if !directory.is_dir() {
                return Err(format!("{}: no such control group", directory.display()));
            }
            group.path.clone_from(&below);
            group.set_path = below;
            return Ok(Some(group));
        }
        let file = roots.proc.join("self/cgroup");
        let text = files::read(&file, SHORT)?;
        group.path = group.own(&text, "cpuacct");
        group.set_path = group.own(&text, "cpuset");
        Ok(Some(group))
    }

    /// Path of the group, relative to the hierarchy.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn controller(&self, name: &str) -> PathBuf {
        match self.version {
            Version::One => self.mount.join(name),
            Version::Two => self.mount.clone(),
        }
    }

    /// Path of the agent's group, from `/proc/self/cgroup`. In a container without a cgroup namespace that path is the
    /// host's, while the container's group is mounted as the root: then the path is empty.
    fn own(&self, text: &str, controller: &str) -> PathBuf {
        let lines = text.lines().filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            rest.split_once(':')
        });
        let wanted = |names: &str| match self.version {
            Version::One => names.split(',').any(|name| name == controller),
            Version::Two => names.is_empty(),
        };
        let mut found = lines.filter(|(names, _)| wanted(names));
        let path = found.next().map(|(_, path)| Path::new(path));
        // A group outside the namespace has `..` in its path.
        let inside = path.filter(|path| path.components().all(|c| c != Component::ParentDir));
        let path = inside.map(normal).unwrap_or_default();
        if self.controller(controller).join(&path).is_dir() {
            path
        } else {
            PathBuf::new()
        }
    }

    /// The smallest quota of this group and its ancestors; `None` without a quota.
    pub fn limit(&self) -> Result<Option<Limit>, String> {
        let mut least: Option<Limit> = None;
        for path in self.path.ancestors().take(MAX_LEVELS) {
            if let Some(cpus) = self.quota(path)?
                && least.as_ref().is_none_or(|least| cpus < least.cpus)
            {
                let path = path.to_owned();
                least = Some(Limit { path, cpus });
            }
        }
        Ok(least)
    }

    fn quota(&self, path: &Path) -> Result<Option<f64>, String> {
        let (quota, period) = match self.version {
            Version::Two => {
                let file = self.mount.join(path).join("cpu.max");
                let Some(text) = files::read_if_there(&file, SHORT)? else {
                    return Ok(None);
                };
                let mut words = text.split_ascii_whitespace();
                let quota = words.next().filter(|word| *word != "max");
                let Some(quota) = quota else {
                    return Ok(None);
                };
                let quota: f64 = files::number(&file, Some(quota))?;
                (quota, files::number(&file, words.next())?)
            }
            Version::One => {
                let directory = self.mount.join("cpu").join(path);
                let file = directory.join("cpu.cfs_quota_us");
                let Some(text) = files::read_if_there(&file, SHORT)? else {
                    return Ok(None);
                };
                let quota: f64 = files::number(&file, Some(&text))?;
                let file = directory.join("cpu.cfs_period_us");
                let text = files::read(&file, SHORT)?;
                (quota, files::number::<f64>(&file, Some(&text))?)
            }
        };
        let cpus = quota / period;
        Ok((cpus.is_finite() && cpus > 0.0).then_some(cpus))
    }

    /// CPUs that the group may run on; `None` if the kernel does not report them.
    pub fn cpus(&self) -> Result<Option<CpuSet>, String> {
        let directory = self.controller("cpuset").join(&self.set_path);
        let file = directory.join(match self.version {
            Version::One => "cpuset.effective_cpus",
            Version::Two => "cpuset.cpus.effective",
        });
        match files::read_if_there(&file, SHORT)? {
            Some(text) => CpuSet::parse(&file, &text),
            None => Ok(None),
        }
    }

    /// CPU time used by a group since its creation, in microseconds.
    pub fn used(&self, path: &Path) -> Result<f64, String> {
        let directory = self.controller("cpuacct").join(path);
        match self.version {
            Version::One => {
                let file = directory.join("cpuacct.usage");
                let text = files::read(&file, SHORT)?;
                Ok(files::number::<u64>(&file, Some(&text))? as f64 / 1e3)
            }
            Version::Two => {
                let file = directory.join("cpu.stat");
                let text = files::read(&file, SHORT)?;
                let mut lines = text.lines();
                let used = lines.find_map(|line| line.strip_prefix("usage_usec "));
                Ok(files::number::<u64>(&file, used)? as f64)
            }
        }
    }

    /// Run queue of a group and its descendants, scaled up if only a sample of the threads is read. Running threads of
    /// the agent do not count. `None` if no thread's state is readable.
    pub fn queue(&self, roots: &Roots, path: &Path) -> Option<Queue> {
        let threads = self.threads(path);
        let step = threads.len().div_ceil(MAX_LOOKED_AT).max(1);
        let each = step as f64;
        let own: HashSet<String> = std::fs::read_dir(roots.proc.join("self/task"))
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        let mut queue = Queue::default();
        let mut seen = false;
        for thread in threads.iter().step_by(step) {
            // A thread of another PID namespace.
            if thread == "0" {
                continue;
            }
            // Without `task` the file has the sums over all threads of the process.
            let file = roots.proc.join(format!("{thread}/task/{thread}/stat"));
            // The thread may have ended in the meantime.
            let Ok(text) = files::read(&file, SHORT) else {
                continue;
            };
            seen = true;
            // The process name before it may contain any character.
            let state = text
                .rsplit_once(") ")
                .and_then(|(_, rest)| rest.chars().next());
            match state {
                Some('R') if !own.contains(thread) => queue.running += each,
                Some('D') => queue.blocked += each,
                _ => {}
            }
        }
        seen.then_some(queue)
    }

    fn threads(&self, path: &Path) -> Vec<String> {
        let list = match self.version {
            Version::One => "tasks",
            Version::Two => "cgroup.threads",
        };
        let mut groups = vec![self.controller("cpuacct").join(path)];
        let (mut threads, mut looked) = (Vec::new(), 0);
        while let Some(group) = groups.pop() {
            if looked == MAX_GROUPS || threads.len() >= MAX_THREADS {
                break;
            }
            looked += 1;
            let text = files::read(&group.join(list), LONG).unwrap_or_default();
            let words = text.split_ascii_whitespace();
            // The numbers become parts of paths.
            let numbers = words.filter(|word| word.bytes().all(|b| b.is_ascii_digit()));
            threads.extend(numbers.take(MAX_THREADS - threads.len()).map(str::to_owned));
            let below = std::fs::read_dir(&group).into_iter().flatten();
            let below = below.filter_map(|entry| {
                let entry = entry.ok()?;
                entry.file_type().ok()?.is_dir().then(|| entry.path())
            });
            groups.extend(below.take(MAX_GROUPS));
        }
        threads
    }
}

/// Number of threads of a group that run or wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queue {
    /// Threads that run or wait for a CPU.
    pub running: f64,
    /// Threads in uninterruptible sleep, usually waiting for a disk.
    pub blocked: f64,
}

/// The path relative to its root, without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let parts = path.components();
    let parts = parts.filter(|part| matches!(part, Component::Normal(_)));
    parts.collect()
}
