//! Whether an object set is written at two nodes at once, or at one that was its primary before.
//! Nodes of one machine see each other's claims through the file system: a locked file for each set
//! that is being written, with the node's name in it. The kernel gives the claims of a dead node
//! up. What a set was written by stays in its file, where writes tell that.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use axum::http::HeaderMap;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::fence::{Record, fence};

/// The header that names the object set of a write.
pub const HEADER: &str = "x-object-set";
const MAX_NAME: usize = 128;

/// The object set that a request names, or what is wrong with it.
fn object_set(headers: &HeaderMap) -> Result<&str, String> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else {
        return Err(format!(
            "{HEADER}: missing, and --witness-directory asks for it"
        ));
    };
    if values.next().is_some() {
        return Err(format!("{HEADER}: named more than once"));
    }
    value
        .to_str()
        .ok()
        .filter(|name| (1..=MAX_NAME).contains(&name.len()))
        .filter(|name| name.bytes().all(|b| b.is_ascii_graphic()))
        .ok_or_else(|| format!("{HEADER}: must be 1 to {MAX_NAME} visible ASCII characters"))
}

/// Claims object sets for one node.
pub struct Witness(Arc<Claims>);

struct Claims {
    directory: PathBuf,
    node: String,
    held: Mutex<HashMap<Arc<str>, Held>>,
}

/// A set that this node writes: by how many requests, and the locked file.
struct Held {
    requests: usize,
    file: File,
    record: Record,
}

/// One request's part in a claim on a set, which ends with its last part.
pub struct Claim {
    claims: Arc<Claims>,
    set: Arc<str>,
}

#[derive(Debug)]
pub enum Denied {
    /// The request's object set or token is malformed; with the error.
    Unreadable(String),
    /// Another node writes the set now.
    Violation {
        set: String,
        node: String,
        holder: String,
    },
    /// Another node has written the set since by a newer table: this one was its primary.
    Late {
        set: String,
        fence: String,
        newest: Record,
    },
    Io {
        path: PathBuf,
        error: io::Error,
    },
}

impl Denied {
    /// In one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable",
            Self::Violation { .. } => "violation",
            Self::Late { .. } => "late",
            Self::Io { .. } => "io",
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(text) => f.write_str(text),
            Self::Violation { set, node, holder } => write!(
                f,
                "object set {set} has two primaries at once: {node} and {holder}"
            ),
            Self::Late { set, fence, newest } => write!(
                f,
                "object set {set} has been written at {} by table {:?} since, and this write was \
                 placed by {fence:?}: nothing was changed",
                newest.node, newest.fence
            ),
            Self::Io { path, error } => {
                write!(
                    f,
                    "{}: cannot claim the object set: {error}",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for Denied {}

impl Witness {
    pub fn open(directory: &Path, node: &str) -> Result<Self> {
        std::fs::create_dir_all(directory).with_context(|| {
            format!(
                "--witness-directory {}: cannot make it",
                directory.display()
            )
        })?;
        Ok(Self(Arc::new(Claims {
            directory: directory.to_owned(),
            node: node.to_owned(),
            held: Mutex::default(),
        })))
    }

    /// Claims the set that a request names.
    pub fn claim_for(&self, headers: &HeaderMap) -> Result<Claim, Denied> {
        let set = object_set(headers).map_err(Denied::Unreadable)?;
        self.claim(set, fence(headers).map_err(Denied::Unreadable)?)
    }

    /// Claims a set for one request, until that is dropped. `fence` is empty where it has none.
    fn claim(&self, set: &str, fence: &str) -> Result<Claim, Denied> {
        let set: Arc<str> = set.into();
        let io = |error| Denied::Io {
            path: self.0.path(&set),
            error,
        };
        match self.0.lock().entry(Arc::clone(&set)) {
            Entry::Occupied(mut held) => {
                let held = held.get_mut();
                // The claim is this node's, so the token is not too old.
                if let Some(next) = held.record.next(&self.0.node, fence)
                    && next != held.record
                {
                    next.write(&held.file).map_err(io)?;
                    held.record = next;
                }
                held.requests += 1;
            }
            Entry::Vacant(free) => {
                let (file, record) = self.0.lock_file(&set, fence)?;
                let requests = 1;
                free.insert(Held {
                    requests,
                    file,
                    record,
                });
            }
        }
        let claims = Arc::clone(&self.0);
        Ok(Claim { claims, set })
    }
}

impl Claims {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Held>> {
        // Each change leaves the map whole, so a panicked holder spoils nothing.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name may hold anything visible, so that a slash is the only character to replace, and a
    /// blank is free for it.
    fn path(&self, set: &str) -> PathBuf {
        self.directory.join(format!("={}", set.replace('/', " ")))
    }

    fn lock_file(&self, set: &str, fence: &str) -> Result<(File, Record), Denied> {
        let path = self.path(set);
        let io = |error| Denied::Io {
            path: path.clone(),
            error,
        };
        let (file, is_locked) = try_lock(&path).map_err(io)?;
        let found = Record::read(&file).map_err(io)?;
        let Some(next) = found.next(&self.node, fence) else {
            return Err(Denied::Late {
                set: set.to_owned(),
                fence: fence.to_owned(),
                newest: found,
            });
        };
        if !is_locked {
            return Err(Denied::Violation {
                set: set.to_owned(),
                node: self.node.clone(),
                holder: found.node,
            });
        }
        next.write(&file).map_err(io)?;
        Ok((file, next))
    }
}

/// The file, and whether it is locked for this node now; else another one has it.
fn try_lock(path: &Path) -> io::Result<(File, bool)> {
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let is_locked = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => true,
            Err(Errno::WOULDBLOCK) => false,
            Err(error) => return Err(error.into()),
        };
        // The node that ends a claim may have removed its file, so this one may be stale.
        let opened = file.metadata()?;
        match path.metadata() {
            Ok(there) if (there.dev(), there.ino()) == (opened.dev(), opened.ino()) => {
                return Ok((file, is_locked));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut held = self.claims.lock();
        if let Entry::Occupied(mut entry) = held.entry(Arc::clone(&self.set)) {
            entry.get_mut().requests -= 1;
            if entry.get().requests == 0 {
                let held = entry.remove();
                // Unlocked by closing, after its name is gone; a name that stays does no harm.
                if held.record.fence.is_empty() {
                    let _ = std::fs::remove_file(self.claims.path(&self.set));
                }
                drop(held.file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn is_violation(denied: &Denied) -> bool {
        matches!(denied, Denied::Violation { .. })
    }

    fn files(directory: &Path) -> usize {
        std::fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn one_node_has_a_set_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let a = Witness::open(directory.path(), "a").unwrap();
        let b = Witness::open(directory.path(), "b").unwrap();
        let first = a.claim("G00", "").unwrap();
        let second = a.claim("G00", "").unwrap();
        let other = b.claim("G01", "").unwrap();
        drop(first);
        let denied = b.claim("G00", "").err().unwrap();
        assert!(is_violation(&denied));
        assert_eq!(
            denied.to_string(),
            "object set G00 has two primaries at once: b and a"
        );
        drop(second);
        let taken = b.claim("G00", "").unwrap();
        assert!(is_violation(&a.claim("G00", "").err().unwrap()));
        assert_eq!(files(directory.path()), 2);
        drop((taken, other));
        assert_eq!(files(directory.path()), 0);
    }

    #[test]
    fn hostile_names_stay_in_the_directory_and_apart() {
        let directory = tempfile::tempdir().unwrap();
        let claims = directory.path().join("claims");
        let a = Witness::open(&claims, "a").unwrap();
        let longest = "/".repeat(MAX_NAME);
        let names = [
            "..",
            ".",
            "../x",
            "/etc/passwd",
            "=",
            "a/b",
            "a%2Fb",
            &longest,
        ];
        let held: Vec<Claim> = names
            .iter()
            .map(|name| a.claim(name, "").unwrap())
            .collect();
        assert_eq!(files(&claims), names.len());
        assert_eq!(files(directory.path()), 1);
        drop(held);
        assert_eq!(files(&claims), 0);
    }

    #[test]
    fn malformed_set_names_are_refused() {
        let named = |values: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(HEADER, axum::http::HeaderValue::from_bytes(value).unwrap());
            }
            object_set(&headers).map(str::to_owned)
        };
        assert_eq!(named(&[b"G00"]).unwrap(), "G00");
        assert!(named(&[]).unwrap_err().contains("missing"));
        assert!(named(&[b"a", b"b"]).unwrap_err().contains("more than once"));
        let long = [b'x'; MAX_NAME + 1];
        for bad in [&b""[..], b"a b", &[0xc3, 0xa4], &long] {
            assert!(named(&[bad]).unwrap_err().contains("visible"), "{bad:?}");
        }
    }

    /// Many claims and releases from both sides: at no moment are there two holders.
    #[test]
    fn claims_that_come_and_go_never_overlap() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let directory = tempfile::tempdir().unwrap();
        let inside = [AtomicUsize::new(0), AtomicUsize::new(0)];
        std::thread::scope(|scope| {
            for me in [0, 1] {
                let (inside, directory) = (&inside, directory.path());
                scope.spawn(move || {
                    let witness = Witness::open(directory, &me.to_string()).unwrap();
                    for _ in 0..2000 {
                        match witness.claim("G00", "") {
                            Ok(claim) => {
                                inside[me].fetch_add(1, Ordering::SeqCst);
                                assert_eq!(inside[1 - me].load(Ordering::SeqCst), 0);
                                inside[me].fetch_sub(1, Ordering::SeqCst);
                                drop(claim);
                            }
                            Err(denied) => assert!(is_violation(&denied), "{denied}"),
                        }
                    }
                });
            }
        });
        assert_eq!(files(directory.path()), 0);
    }
}
