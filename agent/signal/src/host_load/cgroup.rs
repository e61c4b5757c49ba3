//! What a control group may use of the CPUs, what it used, and its queue: versions 1 and 2.

use std::{
    collections::HashSet,
    path::{Component, Path, PathBuf},
};

use super::{
    files::{self, LONG, Roots, SHORT},
    machine::CpuSet,
};

/// Threads whose state is looked at, each some 20 µs; of more, every second or third and so on.
const MAX_LOOKED_AT: usize = 1024;
/// Threads that are known of.
const MAX_THREADS: usize = 1 << 16;
/// Groups below the limited one that are looked into for threads.
const MAX_GROUPS: usize = 256;
/// Levels from a group to the root that are looked at.
const MAX_LEVELS: usize = 64;

/// Which controllers' directories there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A control group.
#[derive(Debug)]
pub struct Group {
    version: Version,
    /// `/sys/fs/cgroup`
    mount: PathBuf,
    /// Below the mount or a controller's directory there: of CPU time, and of CPU numbers.
    path: PathBuf,
    set_path: PathBuf,
}

/// The group that limits the CPU time, and to how many CPUs.
#[derive(Debug, PartialEq)]
pub struct Limit {
    /// Its path.
    pub path: PathBuf,
    /// CPUs, parts included.
    pub cpus: f64,
}

impl Group {
    /// The named group, or the agent's own. `None` where the kernel has no groups of CPU time.
    pub fn find(roots: &Roots, named: Option<&Path>) -> Result<Option<Self>, String> {
        let mount = roots.sys.join("fs/cgroup");
        let version = if mount.join("cgroup.controllers").exists() {
            Version::Two
        } else if mount.join("cpuacct").exists() {
            Version::One
        } else if let Some(named) = named {
            return Err(format!(
                "{}: no control group: there are none of CPU time in {}",
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

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn controller(&self, name: &str) -> PathBuf {
        match self.version {
            Version::One => self.mount.join(name),
            Version::Two => self.mount.clone(),
        }
    }

    /// The agent's path by `/proc/self/cgroup`. In a container without a name space of groups that
    /// is the machine's, and what is mounted is the container's group itself.
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
        // A group outside of the name space has `..` in its path.
        let inside = path.filter(|path| path.components().all(|c| c != Component::ParentDir));
        let path = inside.map(normal).unwrap_or_default();
        if self.controller(controller).join(&path).is_dir() {
            path
        } else {
            PathBuf::new()
        }
    }

    /// The group that gets the fewest CPUs of this one and those above it.
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

    /// The CPUs it may run on; `None` where that is not said.
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

    /// CPU time that a group has used, in microseconds.
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

    /// Threads of a group and those below that run or wait to, and that wait for a disk. The agent's
    /// own do not count. `None` where no thread's state can be seen.
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
            // One of another name space of processes.
            if thread == "0" {
                continue;
            }
            // Without `task` the figures of all threads of its process are added up.
            let file = roots.proc.join(format!("{thread}/task/{thread}/stat"));
            // It may have ended meanwhile.
            let Ok(text) = files::read(&file, SHORT) else {
                continue;
            };
            seen = true;
            // The name before may hold anything.
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
            // Nothing else is to become part of a path.
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

/// How many threads of a group wait, and for what.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queue {
    /// For a CPU, those that have one included.
    pub running: f64,
    /// For a disk.
    pub blocked: f64,
}

/// Without what leads elsewhere.
fn normal(path: &Path) -> PathBuf {
    let parts = path.components();
    let parts = parts.filter(|part| matches!(part, Component::Normal(_)));
    parts.collect()
}
