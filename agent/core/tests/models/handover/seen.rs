//! States of agent/core's own types, compared by a digest of all they contain, as they hold floats and maps.

use std::{
    collections::hash_map::DefaultHasher,
    fmt::{Debug, Formatter, Write},
    hash::{Hash, Hasher},
    sync::Arc,
};

/// A value, and a digest of its debug output: 0 while that is to be computed.
#[derive(Clone)]
pub struct Seen<T> {
    value: Arc<T>,
    digest: u64,
}

struct Digest(DefaultHasher);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl<T: Clone + Debug> Seen<T> {
    pub fn new(value: T) -> Self {
        Seen {
            value: Arc::new(value),
            digest: 0,
        }
    }

    pub fn get(&self) -> &T {
        &self.value
    }

    pub fn change(&mut self) -> &mut T {
        self.digest = 0;
        Arc::make_mut(&mut self.value)
    }

    /// Returns whether the value may have changed since the last call.
    pub fn refresh(&mut self) -> bool {
        if self.digest != 0 {
            return false;
        }
        let mut digest = Digest(DefaultHasher::new());
        write!(digest, "{:?}", self.value).unwrap();
        self.digest = digest.0.finish().max(1);
        true
    }
}

impl<T> PartialEq for Seen<T> {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl<T> Hash for Seen<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl<T> Debug for Seen<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}", self.digest)
    }
}
