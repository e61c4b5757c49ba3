//! The clusters of a process, and the thread that wakes them. Clusters are never removed: the new configuration of an
//! updated listener continues with the counts and shares of the old one.

use std::{
    sync::{Mutex, OnceLock},
    thread,
    time::Duration,
};

use envoy_abi::guard;
use envoy_policy::exchanger::LOOK;

use crate::system::locked;

/// Most clusters in one registry.
const MAX_CLUSTERS: usize = 256;

/// Clusters by number, so that a request finds its cluster without a lock.
pub struct Registry<T: 'static>([OnceLock<T>; MAX_CLUSTERS]);

/// The clusters of all registries.
static MEMBERS: Mutex<Vec<&'static dyn Member>> = Mutex::new(Vec::new());

/// A cluster of a registry.
pub trait Member: Sync {
    /// Name of the cluster in its settings.
    fn name(&self) -> &str;
    /// Called every [`LOOK`] seconds on the module's own thread.
    fn tick(&self);
}

impl<T: Member> Registry<T> {
    /// An empty registry.
    pub const fn new() -> Self {
        Registry([const { OnceLock::new() }; MAX_CLUSTERS])
    }

    fn all(&'static self) -> impl Iterator<Item = &'static T> {
        self.0.iter().map_while(OnceLock::get)
    }

    /// The cluster with this number.
    pub fn numbered(&'static self, number: u32) -> Option<&'static T> {
        self.0.get(number as usize)?.get()
    }

    /// The cluster with this name.
    pub fn named(&'static self, name: &str) -> Option<&'static T> {
        self.all().find(|member| member.name() == name)
    }

    /// Adds a cluster; `make` gets its number. Only to be called on the main thread.
    ///
    /// # Errors
    ///
    /// If the registry is full.
    pub fn add(&'static self, make: impl FnOnce(u32) -> T) -> Result<&'static T, String> {
        let number = self.all().count();
        let place = self.0.get(number);
        let place = place
            .ok_or_else(|| format!("cluster: {number} in this process, maximum {MAX_CLUSTERS}"))?;
        let member = place.get_or_init(|| make(number as u32));
        locked(&MEMBERS).push(member);
        Ok(member)
    }
}

/// Starts the thread that wakes clusters, unless it already runs.
///
/// # Errors
///
/// If the thread cannot be started; the next call tries again.
pub fn wake() -> Result<(), String> {
    static RUNS: Mutex<bool> = Mutex::new(false);
    let runs = &mut *locked(&RUNS);
    if !*runs {
        let waker = thread::Builder::new().name("plimsoll".to_owned());
        waker
            .spawn(tick)
            .map_err(|error| format!("no thread: {error}"))?;
        *runs = true;
    }
    Ok(())
}

fn tick() {
    loop {
        thread::sleep(Duration::from_secs_f64(LOOK));
        // Not locked during the ticks: a cluster may be added meanwhile.
        let members = locked(&MEMBERS).clone();
        for member in members {
            // A cluster that panicked is called again: with its clock stopped, stale shares would seem fresh.
            let _ = guard(|| member.tick());
        }
    }
}
