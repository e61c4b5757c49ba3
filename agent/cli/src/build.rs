//! Build information.

use std::sync::LazyLock;

/// The version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The licence, as an SPDX expression.
pub const LICENSE: &str = env!("CARGO_PKG_LICENSE");
/// The commit. Only `scripts/package` sets it: other builds would link anew after every commit.
pub const COMMIT: &str = match option_env!("PLIMSOLL_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// Version, commit and licence, for `--version`.
pub fn long_version() -> &'static str {
    static TEXT: LazyLock<String> =
        LazyLock::new(|| format!("{VERSION}\ncommit: {COMMIT}\nlicense: {LICENSE}"));
    &TEXT
}
