//! Reads files of `/proc` and `/sys`, with a limit on their size.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
};

/// Maximum size in bytes of a file with a few lines.
pub const SHORT: u64 = 64 << 10;
/// Maximum size in bytes of a file with one line per interface, CPU or thread.
pub const LONG: u64 = 4 << 20;

/// Mount points of `/proc` and `/sys`; tests use directories of their own.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/proc`
    pub proc: PathBuf,
    /// `/sys`
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Roots {
            proc: "/proc".into(),
            sys: "/sys".into(),
        }
    }
}

/// Reads a file of at most `most` bytes. Invalid UTF-8 is replaced.
pub fn read(path: &Path, most: u64) -> Result<String, String> {
    let told = |error: io::Error| format!("{}: {error}", path.display());
    let mut text = Vec::new();
    let file = File::open(path).map_err(told)?;
    file.take(most + 1).read_to_end(&mut text).map_err(told)?;
    if text.len() as u64 > most {
        return Err(format!("{}: longer than {most} bytes", path.display()));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Like [`read`], but `None` if the file does not exist.
pub fn read_if_there(path: &Path, most: u64) -> Result<Option<String>, String> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        _ => read(path, most).map(Some),
    }
}

/// Parses a number. The error quotes the malformed word.
pub fn number<T: FromStr>(path: &Path, word: Option<&str>) -> Result<T, String> {
    let word = word.unwrap_or_default().trim();
    word.parse().map_err(|_| {
        let shown: String = word.chars().take(40).collect();
        format!("{}: {shown:?} is not a number", path.display())
    })
}
