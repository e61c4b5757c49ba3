//! Time, random seeds, locks, and the name of the machine.

use std::{
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError},
    time::Instant,
};

use envoy_policy::config::proxy_name;

/// Monotonic time since the first call in this process, seconds; the same clock for all threads.
pub fn now() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// A random number, different for each call and process.
pub fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Takes a lock, even if a holder has panicked: all guarded values keep their invariants by themselves.
pub fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`locked`], but `None` if the lock is held.
pub fn locked_if_free<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match lock.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A name for this process that is unique among all processes. During a hot restart two Envoys run side by side, so
/// their names must differ.
pub fn process_name(proxy: Option<&str>) -> String {
    format!("{}/{:x}", proxy_name(proxy, host_name), seed() & 0xff_ffff)
}

/// The host name, as Envoy's node id is not available to modules.
fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}
