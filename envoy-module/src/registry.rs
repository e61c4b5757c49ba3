//! The clusters of a process, and the thread that wakes them. None is ever forgotten: an update of a listener goes on
//! with the counts and shares of the one before.

use std::{
    sync::{Mutex, OnceLock},
    thread,
    time::Duration,
};

use envoy_abi::guard;
use envoy_policy::exchanger::LOOK;

use crate::system::locked;

const MAX_CLUSTERS: usize = 256;

/// Clusters by their numbers, so that a request finds its own without a lock.
pub struct Registry<T: 'static>([OnceLock<T>; MAX_CLUSTERS]);

/// Of all registries.
static MEMBERS: Mutex<Vec<&'static dyn Member>> = Mutex::new(Vec::new());

/// One of a registry.
pub trait Member: Sync {
    /// As in its settings.
    fn name(&self) -> &str;
    /// Several times a second, on the module's own thread.
    fn tick(&self);
}

impl<T: Member> Registry<T> {
    /// An empty one.
    pub const fn new() -> Self {
        Registry([const { OnceLock::new() }; MAX_CLUSTERS])
    }

    fn all(&'static self) -> impl Iterator<Item = &'static T> {
        self.0.iter().map_while(OnceLock::get)
    }

    /// By its number.
    pub fn numbered(&'static self, number: u32) -> Option<&'static T> {
        self.0.get(number as usize)?.get()
    }

    /// By its name.
    pub fn named(&'static self, name: &str) -> Option<&'static T> {
        self.all().find(|member| member.name() == name)
    }

    /// A new one, made of its number. On the main thread alone.
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

/// Starts the thread that wakes clusters, unless it runs. Where that fails, the next one to ask tries again.
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
        // A cluster may be added meanwhile.
        let members = locked(&MEMBERS).clone();
        for member in members {
            // Whoever panics is called again: without the time, old news would be taken for new.
            let _ = guard(|| member.tick());
        }
    }
}
