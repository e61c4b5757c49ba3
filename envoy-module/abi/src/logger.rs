//! Writes the module's log to Envoy's log, under Envoy's component `dynamic_modules`.

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::{
    buffer::lent,
    sys::{self, LogLevel},
};

struct EnvoyLog {
    name: &'static str,
}

/// Sends all further log lines to Envoy, each after the name of the module.
pub fn install(name: &'static str) {
    // Fails if the module is loaded twice; the first logger stays.
    if log::set_logger(Box::leak(Box::new(EnvoyLog { name }))).is_ok() {
        log::set_max_level(LevelFilter::Trace);
    }
}

fn level_of(level: Level) -> LogLevel {
    match level {
        Level::Error => LogLevel::Error,
        Level::Warn => LogLevel::Warn,
        Level::Info => LogLevel::Info,
        Level::Debug => LogLevel::Debug,
        Level::Trace => LogLevel::Trace,
    }
}

impl Log for EnvoyLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // SAFETY: takes no pointers, and may be called from any thread.
        unsafe { sys::envoy_dynamic_module_callback_log_enabled(level_of(metadata.level())) }
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = format!("{}: {}", self.name, record.args());
            let level = level_of(record.level());
            // SAFETY: Envoy copies the line before it returns, and this may be called from any thread.
            unsafe { sys::envoy_dynamic_module_callback_log(level, lent(line.as_bytes())) };
        }
    }

    fn flush(&self) {}
}
