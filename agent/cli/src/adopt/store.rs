//! The file on disk: reading it with limits, replacing it atomically, restoring it.

use std::{
    ffi::OsString,
    fs::{self, File, Metadata},
    io::{Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use super::batch::Batch;

/// Larger than any hand-maintained configuration.
const MAX_BYTES: u64 = 16 << 20;
/// Suffixes of the copies from before and after the change. No proxy reads files with these extensions.
const BEFORE: &str = ".before-plimsoll";
const WRITTEN: &str = ".with-plimsoll";

/// A file as read.
pub struct Original {
    /// Path of the file itself, with symbolic links resolved.
    pub path: PathBuf,
    /// Contents.
    pub bytes: Vec<u8>,
    metadata: Metadata,
}

impl Original {
    /// Reads a file, following symbolic links.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let path = fs::canonicalize(path).with_context(|| path.display().to_string())?;
        let metadata = fs::metadata(&path).with_context(|| path.display().to_string())?;
        if metadata.is_dir() {
            bail!(
                "{} is a directory: name the file that contains the backend",
                path.display()
            );
        }
        if !metadata.is_file() {
            bail!("{} is not a regular file", path.display());
        }
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .with_context(|| path.display().to_string())?;
        if bytes.len() as u64 > MAX_BYTES {
            bail!("{} is larger than {} MiB", path.display(), MAX_BYTES >> 20);
        }
        Ok(Original {
            path,
            bytes,
            metadata,
        })
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(suffix);
        PathBuf::from(name)
    }

    /// Fails if the file has changed since it was read.
    fn still_the_same(&self) -> anyhow::Result<()> {
        if fs::read(&self.path).is_ok_and(|now| now == self.bytes) {
            return Ok(());
        }
        bail!(
            "{} changed while the command ran: run it again",
            self.path.display()
        );
    }
}

/// Adds the changed file and a backup of the original to a batch; returns the backup's path.
pub fn write(original: &Original, after: &[u8], batch: &mut Batch) -> anyhow::Result<PathBuf> {
    if original.metadata.nlink() > 1 {
        bail!(
            "{} has {} names (hard links), of which only one would change",
            original.path.display(),
            original.metadata.nlink()
        );
    }
    let (before, written) = (original.beside(BEFORE), original.beside(WRITTEN));
    // A second backend is being added: keep the backup from before the first.
    let again = before.exists() && fs::read(&written).is_ok_and(|it| it == original.bytes);
    if !again {
        batch.add(&before, &original.bytes, Some(&original.metadata))?;
    }
    batch.add(&written, after, Some(&original.metadata))?;
    batch.add(&original.path, after, Some(&original.metadata))?;
    original.still_the_same()?;
    Ok(before)
}

/// Restores the file from its backup.
pub fn undo(original: &Original, reload: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let path = original.path.display();
    let (before, written) = (original.beside(BEFORE), original.beside(WRITTEN));
    let kept = match fs::read(&before) {
        Ok(kept) => kept,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("there is nothing to undo: no {}", before.display());
        }
        Err(error) => return Err(error).with_context(|| before.display().to_string()),
    };
    if kept != original.bytes {
        let wrote = fs::read(&written).with_context(|| written.display().to_string())?;
        if wrote != original.bytes {
            bail!(
                "{path} was changed since it was written (compare it with {}): take the lines out by hand; as it was \
                 before, it is in {}",
                written.display(),
                before.display()
            );
        }
        let mut batch = Batch::default();
        batch.add(&original.path, &kept, Some(&original.metadata))?;
        original.still_the_same()?;
        batch.commit()?;
    }
    for leftover in [&before, &written] {
        fs::remove_file(leftover)
            .or_else(|error| {
                if error.kind() == std::io::ErrorKind::NotFound {
                    Ok(())
                } else {
                    Err(error)
                }
            })
            .with_context(|| leftover.display().to_string())?;
    }
    writeln!(out, "{path} is as it was. {reload}.")?;
    Ok(())
}
