//! The kernel's files, each read whole and no further than it may be long.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
};

/// A file with a line or a few; those with a line an interface or a CPU may be longer.
pub const SHORT: u64 = 64 << 10;
/// See [`SHORT`].
pub const LONG: u64 = 4 << 20;

/// Where the kernel tells of itself; tests put trees of their own here.
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

/// The text of a file of at most `most` bytes; what is no UTF-8 in it is replaced.
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

/// As [`read`]; `None` where there is no such file.
pub fn read_if_there(path: &Path, most: u64) -> Result<Option<String>, String> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        _ => read(path, most).map(Some),
    }
}

/// A number, or what is there instead.
pub fn number<T: FromStr>(path: &Path, word: Option<&str>) -> Result<T, String> {
    let word = word.unwrap_or_default().trim();
    word.parse().map_err(|_| {
        let shown: String = word.chars().take(40).collect();
        format!("{}: {shown:?} is no number", path.display())
    })
}
