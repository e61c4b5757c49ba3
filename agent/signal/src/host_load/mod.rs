//! Load of the host: of its CPUs and of its network, once a period.

mod cgroup;
pub mod counters;
mod cpu;
mod files;
mod machine;
mod network;
mod settings;

use std::time::Duration;

use serde::Serialize;
use tokio::{task::JoinHandle, time::Instant};

use crate::source_error::SourceError;
use files::Roots;

pub use settings::{HostLoadConfig, LoadConfig, LoadSection, NetworkConfig, REFERENCE, load};

/// Readings closer than this have too few ticks between them.
const CLOSEST: Duration = Duration::from_millis(100);
/// How long a load counts that cannot be read any more, unless three periods are longer.
const HELD: Duration = Duration::from_secs(10);

/// What was measured of the host; a part that is not asked for or not known is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HostLoads {
    /// By algorithm 4.1, for each CPU.
    pub cpu: Option<f64>,
    /// `ρ / (1 - ρ)` of the busiest interface.
    pub network: Option<f64>,
}

/// Readers of what the configuration asks for; blocking.
#[derive(Debug)]
struct Readers {
    roots: Roots,
    cpu: Option<cpu::CpuReader>,
    network: Option<network::NetworkReader>,
}

/// What a reading gave for each part that is asked for.
#[derive(Debug, Default)]
struct Reading {
    cpu: Option<Result<Option<f64>, String>>,
    network: Option<Result<Option<f64>, String>>,
}

impl Readers {
    fn new(config: &HostLoadConfig, roots: Roots) -> Self {
        let cpu = config.cpu.as_ref();
        let network = config.network.as_ref();
        Readers {
            roots,
            cpu: cpu.map(|cpu| cpu::CpuReader::new(cpu.cgroup.clone())),
            network: network.map(|network| network::NetworkReader::new(network.clone())),
        }
    }

    fn read(&mut self, seconds: f64) -> Reading {
        let roots = &self.roots;
        Reading {
            cpu: self.cpu.as_mut().map(|cpu| cpu.read(roots, seconds)),
            network: self.network.as_mut().map(|it| it.read(roots, seconds)),
        }
    }
}

/// A figure and when it was measured.
type Known = Option<(Instant, f64)>;

/// The load of the host, or of the control group, that a service runs on.
#[derive(Debug)]
pub struct HostLoad {
    roots: Roots,
    config: Option<HostLoadConfig>,
    timeout: Duration,
    held: Duration,
    readers: Option<Readers>,
    /// A reading may hang, where `/proc` is some program's: it is not begun twice.
    under_way: Option<JoinHandle<(Readers, Reading)>>,
    begun: Option<Instant>,
    ended: Result<(), SourceError>,
    cpu: Known,
    network: Known,
}

impl HostLoad {
    /// Not read yet.
    pub fn new(config: &LoadConfig, period: Duration) -> Self {
        HostLoad::within(config, period, Roots::default())
    }

    fn within(config: &LoadConfig, period: Duration, roots: Roots) -> Self {
        let config = match config {
            LoadConfig::Delay => None,
            LoadConfig::Host(config) => Some(config.clone()),
        };
        HostLoad {
            readers: config
                .as_ref()
                .map(|config| Readers::new(config, roots.clone())),
            roots,
            timeout: period.min(Duration::from_millis(500)),
            held: HELD.max(3 * period),
            config,
            under_way: None,
            begun: None,
            ended: Ok(()),
            cpu: None,
            network: None,
        }
    }

    /// Begins anew where it differs.
    pub fn reconfigure(&mut self, config: &LoadConfig, period: Duration) {
        let new = HostLoad::within(config, period, self.roots.clone());
        if new.config != self.config {
            *self = new;
        } else {
            (self.timeout, self.held) = (new.timeout, new.held);
        }
    }

    /// Reads, within the time there is.
    pub async fn read(&mut self, now: Instant) -> Result<(), SourceError> {
        // The period is over before enough of it has passed to tell anything new.
        let is_close = self.begun.is_some_and(|begun| now < begun + CLOSEST);
        if self.under_way.is_none() {
            if is_close {
                return self.ended.clone();
            }
            let Some(mut readers) = self.readers.take() else {
                return Ok(());
            };
            let since = self.begun.replace(now).map(|begun| now - begun);
            let seconds = since.unwrap_or_default().as_secs_f64();
            self.under_way = Some(tokio::task::spawn_blocking(move || {
                let reading = readers.read(seconds);
                (readers, reading)
            }));
        }
        let Some(under_way) = &mut self.under_way else {
            return Ok(());
        };
        let Ok(ended) = tokio::time::timeout(self.timeout, under_way).await else {
            let limit = humantime::format_duration(self.timeout);
            let hangs = format!("/proc and /sys were not read within {limit}");
            return Err(SourceError::new("load", hangs));
        };
        self.under_way = None;
        match ended {
            Ok((readers, reading)) => {
                self.readers = Some(readers);
                self.ended = self.take_in(reading, now);
                self.ended.clone()
            }
            // Its panic becomes the loop's, which is restarted and counted.
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            // The runtime is at its end.
            Err(_) => Ok(()),
        }
    }

    fn take_in(&mut self, reading: Reading, now: Instant) -> Result<(), SourceError> {
        let mut problems = Vec::new();
        for (what, read, known) in [
            ("CPU", reading.cpu, &mut self.cpu),
            ("network", reading.network, &mut self.network),
        ] {
            match read {
                Some(Ok(Some(load))) => *known = Some((now, load)),
                Some(Err(problem)) => problems.push(format!("{what}: {problem}")),
                // The first of its kind.
                Some(Ok(None)) | None => {}
            }
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(SourceError::new("load", problems.join("; ")))
    }

    /// What was measured last, unless that is too long ago.
    pub fn known(&self, now: Instant) -> HostLoads {
        let fresh = |known: Known| {
            let (at, load) = known?;
            (now.saturating_duration_since(at) <= self.held).then_some(load)
        };
        HostLoads {
            cpu: fresh(self.cpu),
            network: fresh(self.network),
        }
    }

    /// What stands for the node's load: the sum of what the configuration asks for, and nothing
    /// where a part of it is not known.
    pub fn load(&self, now: Instant) -> Option<f64> {
        let config = self.config.as_ref()?;
        let known = self.known(now);
        let part = |asked: bool, load: Option<f64>| if asked { load } else { Some(0.0) };
        let cpu = part(config.cpu.is_some(), known.cpu)?;
        let network = part(config.network.is_some(), known.network)?;
        Some(cpu + network)
    }
}

#[cfg(test)]
mod tests;
