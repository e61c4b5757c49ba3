//! Network load of the busiest interface: `/proc/net/dev`, and speeds from `/sys/class/net`.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use super::counters::{LinkBytes, link_utilisation, network_load};

use super::files::{self, LONG, Roots, SHORT};
use crate::host_load::NetworkConfig;

/// Seconds for which a speed is cached: drivers may be slow to report it, and it hardly ever changes.
const SPEED_KEPT: f64 = 60.0;
/// Number of receive columns in `/proc/net/dev`, which come before the transmit columns.
const RECEIVED: usize = 8;

/// Reader of the network load, with the counters of the previous reading.
#[derive(Debug)]
pub struct NetworkReader {
    config: NetworkConfig,
    base: HashMap<String, LinkBytes>,
    /// Seconds since `base` was read.
    elapsed: f64,
    /// Cached speeds in bits per second; `None` if the kernel does not know the speed.
    speeds: HashMap<String, Option<f64>>,
    speeds_age: f64,
}

impl NetworkReader {
    /// A reader without a previous reading.
    pub fn new(config: NetworkConfig) -> Self {
        NetworkReader {
            config,
            base: HashMap::new(),
            elapsed: 0.0,
            speeds: HashMap::new(),
            speeds_age: 0.0,
        }
    }

    /// Network load since the previous reading, which was `seconds` ago; 0 or more, `None` on the first reading.
    pub fn read(&mut self, roots: &Roots, seconds: f64) -> Result<Option<f64>, String> {
        self.elapsed += seconds;
        self.speeds_age += seconds;
        if self.speeds_age >= SPEED_KEPT {
            self.speeds.clear();
            self.speeds_age = 0.0;
        }
        let path = roots.proc.join("net/dev");
        let mut links = interfaces(&path, &files::read(&path, LONG)?)?;
        match &self.config.interface {
            Some(wanted) => links.retain(|name, _| name == wanted),
            // The loopback interface has no maximum speed.
            None => links.retain(|name, _| name != "lo"),
        }
        let mut speeds = BTreeMap::new();
        for name in links.keys() {
            if let Some(speed) = self.speed(roots, name) {
                speeds.insert(name.clone(), speed);
            }
        }
        if speeds.is_empty() {
            self.base.clear();
            return Err(match (&self.config.interface, links.is_empty()) {
                (Some(name), true) => {
                    format!("load.interface: {}: no interface {name}", path.display())
                }
                (Some(name), false) => {
                    format!("the kernel does not know the speed of {name}: set load.speed")
                }
                (None, _) => {
                    "the kernel does not know the speed of any interface: set load.interface and load.speed"
                        .to_owned()
                }
            });
        }
        links.retain(|name, _| speeds.contains_key(name));
        let mut most: Option<f64> = None;
        let mut problem = None;
        for (name, now) in &links {
            let (Some(earlier), Some(speed)) = (self.base.get(name), speeds.get(name)) else {
                continue;
            };
            match link_utilisation(*earlier, *now, self.elapsed, *speed) {
                Ok(used) => most = Some(most.map_or(used, |most| most.max(used))),
                Err(error) => problem = Some(format!("{}: {name}: {error}", path.display())),
            }
        }
        self.elapsed = 0.0;
        self.base = links.into_iter().collect();
        match (most, problem) {
            (Some(used), _) => Ok(Some(network_load(used))),
            (None, Some(problem)) => Err(problem),
            (None, None) => Ok(None),
        }
    }

    fn speed(&mut self, roots: &Roots, name: &str) -> Option<f64> {
        if let Some(speed) = self.config.speed {
            return Some(speed);
        }
        let known = self.speeds.get(name).copied();
        known.unwrap_or_else(|| {
            let speed = speed(roots, name);
            self.speeds.insert(name.to_owned(), speed);
            speed
        })
    }
}

/// Speed in bits per second. The file is in Mbit/s; if the driver does not know the speed, the file cannot be read
/// or contains -1 or 0.
fn speed(roots: &Roots, name: &str) -> Option<f64> {
    let directory = roots.sys.join("class/net").join(name);
    let text = files::read(&directory.join("speed"), SHORT).ok()?;
    let speed: f64 = text.trim().parse().ok()?;
    (speed.is_finite() && speed > 0.0).then_some(speed * 1e6)
}

fn interfaces(path: &Path, text: &str) -> Result<BTreeMap<String, LinkBytes>, String> {
    let mut links = BTreeMap::new();
    // Skip two header lines.
    for line in text.lines().skip(2) {
        let Some((name, figures)) = line.rsplit_once(':') else {
            return Err(format!("{}: a line without an interface", path.display()));
        };
        let name = name.trim();
        // The name becomes part of a path.
        if name.is_empty() || name == "." || name == ".." || name.contains('/') {
            return Err(format!("{}: an interface without a name", path.display()));
        }
        let mut figures = figures.split_ascii_whitespace();
        let received = files::number(path, figures.next())?;
        let sent = files::number(path, figures.nth(RECEIVED - 1))?;
        links.insert(name.to_owned(), LinkBytes { received, sent });
    }
    Ok(links)
}
