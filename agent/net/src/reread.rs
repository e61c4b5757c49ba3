//! What is made of files, and made anew when they change.

use std::{
    fmt::Display,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tracing::{error, info};

/// Time between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

type Make<T> = dyn Fn() -> Result<T, String> + Send + Sync;

/// A value made of files. While they cannot be used the last good value stays.
pub struct Reread<T> {
    files: Vec<PathBuf>,
    make: Box<Make<T>>,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    seen: Vec<Option<Stamp>>,
    looked: Instant,
}

/// Changes with a file, also where a link leads to another one.
type Stamp = (u64, u64, u64, i64, i64);

fn stamp(file: &Path) -> Option<Stamp> {
    let it = std::fs::metadata(file).ok()?;
    Some((it.dev(), it.ino(), it.size(), it.mtime(), it.mtime_nsec()))
}

fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    files.iter().map(|file| stamp(file)).collect()
}

impl<T> Reread<T> {
    /// Makes the value.
    ///
    /// # Errors
    ///
    /// A file that cannot be used.
    pub fn new<P: Display>(
        files: Vec<PathBuf>,
        make: impl Fn() -> Result<T, P> + Send + Sync + 'static,
    ) -> Result<Self, P> {
        // Before they are read: a change meanwhile is seen at the next look.
        let seen = stamps(&files);
        let value = Arc::new(make()?);
        let state = State {
            value,
            seen,
            looked: Instant::now(),
        };
        Ok(Reread {
            files,
            make: Box::new(move || make().map_err(|problem| problem.to_string())),
            state: Mutex::new(state),
        })
    }

    /// The value, made anew if the files have changed.
    pub fn current(&self) -> Arc<T> {
        let mut state = self.lock();
        if state.looked.elapsed() >= LOOK_EVERY {
            state.looked = Instant::now();
            let found = stamps(&self.files);
            if found != state.seen {
                state.seen = found;
                self.make_anew(&mut state);
            }
        }
        Arc::clone(&state.value)
    }

    fn make_anew(&self, state: &mut State<T>) {
        match (self.make)() {
            Ok(value) => {
                state.value = Arc::new(value);
                info!(files = ?self.files, "certificates and keys read anew");
            }
            Err(problem) => {
                error!("{problem}; the certificates and keys in use stay");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn number(file: &Path) -> Result<u32, &'static str> {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.trim().parse().map_err(|_| "no number")
    }

    fn look(reread: &Reread<u32>) -> u32 {
        let mut state = reread.lock();
        state.looked = state.looked.checked_sub(LOOK_EVERY).unwrap();
        drop(state);
        *reread.current()
    }

    #[test]
    fn the_last_good_value_stays_until_the_files_have_another() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("number");
        std::fs::write(&file, "1").unwrap();
        let made_of = file.clone();
        let reread = Reread::new(vec![file.clone()], move || number(&made_of)).unwrap();
        assert_eq!(look(&reread), 1);
        std::fs::write(&file, "none").unwrap();
        assert_eq!(look(&reread), 1);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(look(&reread), 1);
        // A link, as Kubernetes swaps them.
        let other = directory.path().join("other");
        std::fs::write(&other, "2").unwrap();
        std::os::unix::fs::symlink(&other, &file).unwrap();
        assert_eq!(look(&reread), 2);
        let last = directory.path().join("last");
        std::fs::write(directory.path().join("3"), "3").unwrap();
        std::os::unix::fs::symlink("3", &last).unwrap();
        std::fs::rename(&last, &file).unwrap();
        assert_eq!(look(&reread), 3);
    }
}
