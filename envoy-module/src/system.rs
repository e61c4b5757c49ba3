//! Time, chance, and what the machine is called.

use std::{
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError},
    time::Instant,
};

use envoy_policy::config::proxy_name;

/// Seconds since the first look at the clock; the same for all threads.
pub fn now() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// A number that another process or worker does not get.
pub fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A lock whose holder has panicked is taken all the same: what it guards keeps its own invariants.
pub fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same, or none where somebody holds it now.
pub fn locked_if_free<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match lock.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A name that no other process has. An Envoy that hands over to another lives on beside it: their names must differ.
pub fn process_name(proxy: Option<&str>) -> String {
    format!("{}/{:x}", proxy_name(proxy, host_name), seed() & 0xff_ffff)
}

/// What the machine is called; a module is not told Envoy's node id.
fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}
