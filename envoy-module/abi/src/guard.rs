//! Panics end at the boundary: one that reached Envoy would end the process.

use std::{
    any::Any,
    panic::{self, AssertUnwindSafe, PanicHookInfo},
    sync::atomic::{AtomicU64, Ordering},
};

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Panics that were caught since the module was loaded.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Runs what Envoy, or a thread of the module, has called; none where that panics.
pub fn guard<T>(hook: impl FnOnce() -> T) -> Option<T> {
    // Whoever is left half changed is dropped by the caller, or keeps its own invariants.
    panic::catch_unwind(AssertUnwindSafe(hook))
        .inspect_err(|_| {
            PANICS.fetch_add(1, Ordering::Relaxed);
        })
        .ok()
}

/// Panics are logged in one line: symbolizing a backtrace would hold up the worker, and the memory for it stays.
pub fn install() {
    panic::set_hook(Box::new(|info: &PanicHookInfo<'_>| {
        let place = info.location().map(ToString::to_string);
        log::error!(
            "panicked at {}: {}",
            place.as_deref().unwrap_or("an unknown place"),
            message(info.payload())
        );
    }));
}

fn message(payload: &dyn Any) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    text.or(owned).unwrap_or("without a message")
}
