//! Writes several files as one transaction: all of them, or none.

use std::{
    fs::{self, File, Metadata, Permissions},
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

use anyhow::Context;
use tempfile::NamedTempFile;

/// Mode of new files: readable by all, since agents run as a user of their own.
const NEW_MODE: u32 = 0o644;

/// New files, complete on disk next to the files they replace.
#[derive(Default)]
pub struct Batch {
    files: Vec<Staged>,
}

struct Staged {
    path: PathBuf,
    new: NamedTempFile,
    /// Copy of the replaced file, so that restoring it needs no free space.
    old: Option<NamedTempFile>,
}

/// A file that has been moved into place.
struct Placed {
    path: PathBuf,
    old: Option<NamedTempFile>,
}

impl Batch {
    /// Adds a file with the owner and mode of `like`, or of the file it replaces. A symbolic link is followed, and
    /// its target replaced.
    pub fn add(
        &mut self,
        path: &Path,
        bytes: &[u8],
        like: Option<&Metadata>,
    ) -> anyhow::Result<()> {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let staged = stage(path.clone(), bytes, like).with_context(|| unwritten(&path))?;
        self.files.push(staged);
        Ok(())
    }

    /// Moves all files into place. On error every file is restored.
    pub fn commit(self) -> anyhow::Result<()> {
        let mut placed: Vec<Placed> = Vec::new();
        for Staged { path, new, old } in self.files {
            let done = new.persist(&path).map_err(|error| error.error);
            let done = match done {
                Ok(_) => {
                    placed.push(Placed {
                        path: path.clone(),
                        old,
                    });
                    File::open(directory(&path)).and_then(|it| it.sync_all())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                let message = put_back(placed).unwrap_or_else(|| unwritten(&path));
                return Err(error).context(message);
            }
        }
        Ok(())
    }
}

fn unwritten(path: &Path) -> String {
    format!("cannot write {}; no file was changed", path.display())
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn stage(path: PathBuf, bytes: &[u8], like: Option<&Metadata>) -> std::io::Result<Staged> {
    let found = fs::metadata(&path).ok().filter(Metadata::is_file);
    let like = like.or(found.as_ref());
    let new = temporary(directory(&path), bytes, like)?;
    let old = match &found {
        Some(metadata) => Some(temporary(
            directory(&path),
            &fs::read(&path)?,
            Some(metadata),
        )?),
        None => None,
    };
    Ok(Staged { path, new, old })
}

fn temporary(
    directory: &Path,
    bytes: &[u8],
    like: Option<&Metadata>,
) -> std::io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new_in(directory)?;
    file.write_all(bytes)?;
    if let Some(like) = like {
        let own = file.as_file().metadata()?;
        if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
            fchown(file.as_file(), Some(like.uid()), Some(like.gid()))?;
        }
    }
    // After the owner, since changing the owner clears mode bits.
    let mode = like.map_or(Permissions::from_mode(NEW_MODE), Metadata::permissions);
    file.as_file().set_permissions(mode)?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Restores the previous files, last one first; returns what could not be restored.
fn put_back(placed: Vec<Placed>) -> Option<String> {
    let mut failed = Vec::new();
    for Placed { path, old } in placed.into_iter().rev() {
        match old {
            None => {
                if let Err(error) = fs::remove_file(&path) {
                    failed.push(format!("{} is new ({error})", path.display()));
                }
            }
            Some(old) => {
                if let Err(error) = old.persist(&path) {
                    let kept = error.file.keep().map_or_else(
                        |error| error.error.to_string(),
                        |(_, kept)| kept.display().to_string(),
                    );
                    failed.push(format!("{}, which was {kept}", path.display()));
                }
            }
        }
    }
    if failed.is_empty() {
        return None;
    }
    Some(format!("could not be put back: {}", failed.join("; ")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_failure_half_way_puts_back_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("a"), "old").unwrap();
        fs::set_permissions(at("a"), Permissions::from_mode(0o600)).unwrap();
        fs::create_dir(at("c")).unwrap();
        let mut batch = Batch::default();
        for name in ["a", "b", "c", "d"] {
            batch.add(&at(name), b"new", None).unwrap();
        }
        let error = format!("{:#}", batch.commit().unwrap_err());
        let expected = format!("cannot write {}; no file", at("c").display());
        assert!(error.contains(&expected), "{error}");
        assert_eq!(fs::read(at("a")).unwrap(), b"old");
        assert_eq!(fs::metadata(at("a")).unwrap().mode() & 0o777, 0o600);
        assert_eq!(names(directory.path()), ["a", "c"]);
    }

    #[test]
    fn all_files_are_written_with_their_modes() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("a"), "old").unwrap();
        fs::set_permissions(at("a"), Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(at("a"), at("link")).unwrap();
        let mut batch = Batch::default();
        batch.add(&at("link"), b"new", None).unwrap();
        batch.add(&at("b"), b"new", None).unwrap();
        batch.commit().unwrap();
        let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o777;
        assert_eq!((mode("a"), mode("b")), (0o640, NEW_MODE));
        assert_eq!(fs::read(at("a")).unwrap(), b"new");
        assert_eq!(names(directory.path()), ["a", "b", "link"]);
    }
}
