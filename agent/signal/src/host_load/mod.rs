//! CPU and network load of the host, measured once a period.

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

pub use settings::{HostLoadConfig, LoadConfig, LoadSection, NetworkConfig, load};

/// Minimum time between two readings: closer ones have too few ticks between them.
const CLOSEST: Duration = Duration::from_millis(100);
/// Minimum time for which the last load stays valid while readings fail; three periods if that is longer.
const HELD: Duration = Duration::from_secs(10);

/// Measured loads of the host; `None` if not configured or not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HostLoads {
    /// CPU load per CPU by algorithm 4.1, 0 or more.
    pub cpu: Option<f64>,
    /// Network load `ρ / (1 - ρ)` of the busiest interface, 0 to 99.
    pub network: Option<f64>,
}

/// Readers of the configured parts. They block.
#[derive(Debug)]
struct Readers {
    roots: Roots,
    cpu: Option<cpu::CpuReader>,
    network: Option<network::NetworkReader>,
}

/// Result of one reading; a part that is not configured is `None`.
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

/// A load and the time of its measurement.
type Known = Option<(Instant, f64)>;

/// Load of the host or the control group that a service runs on.
#[derive(Debug)]
pub struct HostLoad {
    roots: Roots,
    config: Option<HostLoadConfig>,
    timeout: Duration,
    held: Duration,
    readers: Option<Readers>,
    /// A reading in progress. It may hang if `/proc` is served by a program, so a second one is not started.
    under_way: Option<JoinHandle<(Readers, Reading)>>,
    begun: Option<Instant>,
    ended: Result<(), SourceError>,
    cpu: Known,
    network: Known,
}

impl HostLoad {
    /// State before the first reading. The timeout of a reading is the period, at most 500 ms.
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

    /// Applies a new configuration; resets the readings if the load configuration differs.
    pub fn reconfigure(&mut self, config: &LoadConfig, period: Duration) {
        let new = HostLoad::within(config, period, self.roots.clone());
        if new.config != self.config {
            *self = new;
        } else {
            (self.timeout, self.held) = (new.timeout, new.held);
        }
    }

    /// Takes a reading, within the timeout. Errors: kind `load`.
    pub async fn read(&mut self, now: Instant) -> Result<(), SourceError> {
        // Too soon after the last reading for a new result.
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
            // Propagate the panic to the control loop, which is restarted and counted.
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            // The runtime is shutting down.
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
                // The first reading, or not configured.
                Some(Ok(None)) | None => {}
            }
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(SourceError::new("load", problems.join("; ")))
    }

    /// Latest loads; `None` for those older than 10 s or three periods, whichever is longer.
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

    /// Load of the node: the sum of the configured parts. `None` if any of them is unknown or none is configured.
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
