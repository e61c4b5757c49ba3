//! Catches panics before they reach Envoy, where one would end the process.

use std::{
    any::Any,
    panic::{self, AssertUnwindSafe, PanicHookInfo},
    sync::atomic::{AtomicU64, Ordering},
};

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Number of panics caught since the module was loaded.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Runs a hook, or the work of one of the module's threads; `None` if it panics.
pub fn guard<T>(hook: impl FnOnce() -> T) -> Option<T> {
    // The caller drops what a panic leaves half changed, unless that keeps its invariants by itself.
    panic::catch_unwind(AssertUnwindSafe(hook))
        .inspect_err(|_| {
            PANICS.fetch_add(1, Ordering::Relaxed);
        })
        .ok()
}

/// Logs each panic in one line, without a backtrace: symbolizing it would block the worker, and its memory would stay
/// allocated.
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
