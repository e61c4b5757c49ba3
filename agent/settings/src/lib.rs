//! Configuration files: values checked by key, and errors with file, line and key.

mod check;
mod locate;
mod reference;
mod tls;
mod values;

pub use check::{
    Checked, MAX_NAME, MILLI, READ_TIMEOUT, at, duration, log_format, log_level, metric_name,
    networks, number, only_for, required, secret, token, tokens, word, wrong,
};
pub use locate::{ConfigError, Wrong, deserialize, expected, point_at, section};
pub use reference::{KeyReference, TableReference, markdown, table};
pub use tls::{ServerTlsSection, SharedTls, TlsSection, at_file, client_files, server_tls};
pub use values::{HttpSection, Level, LogFormat, Secret, TokensSection, bytes, one_of};
