//! Values shared by several programs.

use std::path::PathBuf;

use serde::Deserialize;

use crate::ServerTlsSection;

/// `[http]` table as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSection {
    /// Address to listen on.
    pub listen: Option<String>,
    /// Networks that may connect.
    pub allow: Option<Vec<String>>,
    /// File with a bearer token of every role.
    pub token_file: Option<PathBuf>,
    /// Bearer tokens by role.
    #[serde(default)]
    pub tokens: TokensSection,
    /// TLS of the server.
    pub tls: Option<ServerTlsSection>,
}

/// `[http.tokens]` table as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokensSection {
    /// File with the token of the role `read`.
    pub read_file: Option<PathBuf>,
    /// File with the token of the role `observe`.
    pub observe_file: Option<PathBuf>,
    /// File with the token of the role `write`.
    pub write_file: Option<PathBuf>,
}

/// The least severe level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(pub tracing::Level);

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

/// A text that `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps the text.
    pub fn new(text: String) -> Self {
        Secret(text)
    }

    /// The secret text itself.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Parses a number of bytes, with the unit B, KiB, MiB or none.
pub fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "" | "B" => Some(1),
        "KiB" => Some(1usize << 10),
        "MiB" => Some(1 << 20),
        _ => None,
    };
    let value = number.parse::<usize>().ok().zip(factor);
    value
        .and_then(|(number, factor)| number.checked_mul(factor))
        .ok_or_else(|| format!("must be bytes such as \"512KiB\" or \"4MiB\", is {text:?}"))
}

/// Looks up one of a few words.
pub fn one_of<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        format!("must be one of {}, is {text:?}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_parses_units_and_refuses_others() {
        assert_eq!(bytes("4MiB"), Ok(4 << 20));
        assert_eq!(bytes("100"), Ok(100));
        assert!(bytes("4MB").is_err() && bytes("").is_err() && bytes("-1").is_err());
    }
}
