//! Structured logs on standard error.

use plimsoll_settings::{Level, LogFormat};
use tracing_subscriber::{
    Registry, filter::LevelFilter, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

/// Handle that changes the log level of a running agent.
pub struct LogLevel(reload::Handle<LevelFilter, Registry>);

impl LogLevel {
    /// Sets the level.
    pub fn set(&self, level: Level) {
        // Fails only if the subscriber is gone, and then there is no log.
        let _ = self.0.reload(LevelFilter::from_level(level.0));
    }
}

/// Starts logging to standard error.
pub fn start(level: Level, format: LogFormat) -> LogLevel {
    let (filter, handle) = reload::Layer::new(LevelFilter::from_level(level.0));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => registry.with(lines.with_ansi(false)).init(),
        LogFormat::Json => registry.with(lines.json()).init(),
    }
    LogLevel(handle)
}
