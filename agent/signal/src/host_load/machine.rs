//! CPU time and run queue of the whole machine, from `/proc/stat` and `/proc/loadavg`.

use std::path::Path;

use super::counters::CpuTime;

use super::files::{self, LONG, SHORT};

/// Columns of unused time: idle and iowait.
const UNUSED: [usize; 2] = [3, 4];
/// Number of columns summed up. The guest columns after them are already part of user time.
const COUNTED: usize = 8;

/// CPU times from `/proc/stat`, in ticks since boot.
#[derive(Debug)]
pub struct Cpus {
    /// Number and time of each online CPU.
    each: Vec<(u32, CpuTime)>,
}

impl Cpus {
    /// Reads `stat` in the directory `proc`.
    pub fn read(proc: &Path) -> Result<Self, String> {
        let path = proc.join("stat");
        let text = files::read(&path, LONG)?;
        let mut each = Vec::new();
        for line in text.lines() {
            let Some((name, times)) = line.split_once(' ') else {
                continue;
            };
            let Some(name) = name.strip_prefix("cpu") else {
                continue;
            };
            if name.is_empty() {
                continue;
            }
            let number = files::number(&path, Some(name))?;
            each.push((number, ticks(&path, times)?));
        }
        if each.is_empty() {
            return Err(format!("{}: no CPU line", path.display()));
        }
        Ok(Cpus { each })
    }

    /// Number of online CPUs, of a set if given.
    pub fn count(&self, set: Option<&CpuSet>) -> usize {
        self.of(set).count()
    }

    /// Total time of the online CPUs, of a set if given.
    pub fn time(&self, set: Option<&CpuSet>) -> CpuTime {
        self.of(set).fold(CpuTime::default(), |all, time| CpuTime {
            used: all.used + time.used,
            offered: all.offered + time.offered,
        })
    }

    fn of<'a>(&'a self, set: Option<&'a CpuSet>) -> impl Iterator<Item = CpuTime> + 'a {
        let wanted = self
            .each
            .iter()
            .filter(move |(number, _)| set.is_none_or(|set| set.has(*number)));
        wanted.map(|(_, time)| *time)
    }
}

fn ticks(path: &Path, times: &str) -> Result<CpuTime, String> {
    let mut time = CpuTime::default();
    let mut found = 0;
    for (place, word) in times.split_ascii_whitespace().take(COUNTED).enumerate() {
        let ticks: u64 = files::number(path, Some(word))?;
        let ticks = ticks as f64;
        time.offered += ticks;
        if !UNUSED.contains(&place) {
            time.used += ticks;
        }
        found += 1;
    }
    // Linux 2.4 had four columns.
    if found < 4 {
        return Err(format!("{}: a CPU with {found} times", path.display()));
    }
    Ok(time)
}

/// A set of CPU numbers, parsed from ranges such as `0-3,8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSet(Vec<(u32, u32)>);

impl CpuSet {
    /// Parses the text of the file at `path`; `None` if it is empty.
    pub fn parse(path: &Path, text: &str) -> Result<Option<Self>, String> {
        let ranges = text.trim().split(',').filter(|range| !range.is_empty());
        let ranges = ranges.map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Ok((
                files::number(path, Some(first))?,
                files::number(path, Some(last))?,
            ))
        });
        let ranges: Vec<_> = ranges.collect::<Result<_, String>>()?;
        Ok((!ranges.is_empty()).then_some(CpuSet(ranges)))
    }

    fn has(&self, number: u32) -> bool {
        let mut ranges = self.0.iter();
        ranges.any(|(first, last)| (*first..=*last).contains(&number))
    }
}

/// Number of runnable processes except the reading one, and the load average over one minute.
pub fn queue(proc: &Path) -> Result<(f64, f64), String> {
    let path = proc.join("loadavg");
    let text = files::read(&path, SHORT)?;
    let mut words = text.split_ascii_whitespace();
    let average: f64 = files::number(&path, words.next())?;
    let tasks = words.nth(2).unwrap_or_default();
    let running = tasks.split('/').next();
    let running: u32 = files::number(&path, running)?;
    Ok((f64::from(running.saturating_sub(1)), average))
}
