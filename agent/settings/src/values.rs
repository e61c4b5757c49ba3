//! Values shared by several programs.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::ServerTlsSection;

/// The HTTP server; its endpoints: [http-api.md](http-api.md).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[http]")]
pub struct HttpSection {
    /// Needs a restart to change.
    #[schemars(extend(
        "x-values" = "IP:port",
        "x-default" = "`\"127.0.0.1:9464\"`; `plimsoll gather`: port 9470"
    ))]
    pub listen: Option<String>,
    /// Networks that may connect here, and to an agent's `envoy.orca_listen`; loopback must be listed, too. Other
    /// connections are closed at once and counted.
    #[schemars(extend(
        "x-values" = "1 to 256 networks or addresses, such as `192.0.2.0/24`",
        "x-default" = "all"
    ))]
    pub allow: Option<Vec<String>>,
    /// File with a token for every role, like `write_file` in `[http.tokens]`; if both are set, both tokens are
    /// accepted. Without any token, anyone who can reach an agent's `listen` can take shares of every node's bound and
    /// query the partitions.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    pub token_file: Option<PathBuf>,
    /// Bearer tokens by role.
    #[schemars(skip)]
    #[serde(default)]
    pub tokens: TokensSection,
    /// TLS of the server.
    #[schemars(skip)]
    pub tls: Option<ServerTlsSection>,
}

/// Tokens that callers must send as `Authorization: Bearer …`, by role: [http-api.md](http-api.md#roles). Files have
/// 16 to 4096 printable ASCII characters, are read at start and reload, and no two roles have the same token. With any
/// token, here or in `http.token_file`, all that needs `observe` or `write` needs a token of that role or a higher
/// one.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[http.tokens]")]
pub struct TokensSection {
    /// File with the token of the role `read`. Without it reading needs no token.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    pub read_file: Option<PathBuf>,
    /// File with the token of the role `observe`, for proxies.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    pub observe_file: Option<PathBuf>,
    /// File with the token of the role `write`, for operators and for those who query partitions.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
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
