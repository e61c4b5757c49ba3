//! Configuration files: values checked by key, and errors with file, line and key.

mod check;
mod locate;
mod values;

pub use check::{
    Checked, MAX_NAME, MILLI, READ_TIMEOUT, at, duration, log_format, log_level, metric_name,
    networks, number, only_for, required, secret, token, word, wrong,
};
pub use locate::{ConfigError, Wrong, deserialize, expected, point_at};
pub use values::{HttpSection, Level, LogFormat, Secret, bytes, one_of};

/// A key of a configuration file, as its reference has it: name, values with unit and range, default, meaning.
pub type KeyReference = (&'static str, &'static str, &'static str, &'static str);

/// A table of it: its header, what it is about, and its keys.
pub type TableReference = (&'static str, &'static str, &'static [KeyReference]);
