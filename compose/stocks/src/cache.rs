//! Bounded cache of rows, least recently used out first, shared by the workers.
//!
//! A reader must not put a row back that a writer has replaced meanwhile. So every committed
//! write raises `version`, and a row that can change is only taken in if no write was made known
//! since the reader looked it up, which was before it opened its snapshot.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use crate::rows::{Key, Row};

pub struct RowCache {
    /// `None` when the cache is turned off.
    rows: Option<Mutex<Rows>>,
}

struct Rows {
    by_key: LruCache<Key, Row>,
    version: u64,
}

impl RowCache {
    pub fn new(capacity: usize) -> Self {
        Self {
            rows: NonZeroUsize::new(capacity).map(|capacity| {
                Mutex::new(Rows {
                    by_key: LruCache::new(capacity),
                    version: 0,
                })
            }),
        }
    }

    fn lock(&self) -> Option<MutexGuard<'_, Rows>> {
        // Each update leaves the map whole, so a panicked holder spoils nothing.
        self.rows
            .as_ref()
            .map(|rows| rows.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The cached rows, and the version to hand to `insert`.
    pub fn get(&self, keys: &[Key]) -> (Vec<Option<Row>>, u64) {
        match self.lock() {
            Some(mut rows) => {
                let found = keys
                    .iter()
                    .map(|key| rows.by_key.get(key).cloned())
                    .collect();
                (found, rows.version)
            }
            None => (vec![None; keys.len()], 0),
        }
    }

    /// Takes in rows read from a snapshot that was opened after `get` returned `as_of`.
    pub fn insert(&self, fresh: impl Iterator<Item = (Key, Row)>, as_of: u64) {
        let Some(mut rows) = self.lock() else { return };
        let current = rows.version == as_of;
        for (key, row) in fresh {
            if current || key.is_immutable() {
                rows.by_key.put(key, row);
            }
        }
    }

    /// Makes committed rows known: cached ones are replaced in place, `None` removes.
    pub fn committed(&self, changed: impl Iterator<Item = (Key, Option<Row>)>) {
        let Some(mut rows) = self.lock() else { return };
        rows.version += 1;
        for (key, row) in changed {
            match row {
                Some(row) => {
                    if let Some(old) = rows.by_key.peek_mut(&key) {
                        *old = row;
                    }
                }
                None => {
                    rows.by_key.pop(&key);
                }
            }
        }
    }

    /// Forgets what a snapshot from the master replaced.
    pub fn clear(&self) {
        if let Some(mut rows) = self.lock() {
            rows.version += 1;
            rows.by_key.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn account(cash_cents: i64) -> Row {
        Row::Account {
            account: 1,
            cash_cents,
        }
    }

    fn cash(cache: &RowCache) -> Option<i64> {
        match cache.get(&[Key::Account(1)]).0.pop().unwrap() {
            Some(Row::Account { cash_cents, .. }) => Some(cash_cents),
            None => None,
            Some(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_row_read_before_a_write_is_not_taken_in() {
        let cache = RowCache::new(10);
        let (_, as_of) = cache.get(&[Key::Account(1)]);
        cache.committed([(Key::Account(1), Some(account(7)))].into_iter());
        cache.insert([(Key::Account(1), account(5))].into_iter(), as_of);
        assert_eq!(cash(&cache), None);
    }

    #[test]
    fn a_write_replaces_the_cached_row() {
        let cache = RowCache::new(10);
        let (_, as_of) = cache.get(&[]);
        cache.insert([(Key::Account(1), account(5))].into_iter(), as_of);
        cache.committed([(Key::Account(1), Some(account(7)))].into_iter());
        assert_eq!(cash(&cache), Some(7));
    }

    #[test]
    fn holds_no_more_than_its_capacity() {
        let cache = RowCache::new(2);
        let (_, as_of) = cache.get(&[]);
        for id in 1..=3 {
            cache.insert([(Key::Account(id), account(0))].into_iter(), as_of);
        }
        let (found, _) = cache.get(&[Key::Account(1), Key::Account(2), Key::Account(3)]);
        assert_eq!(found.iter().flatten().count(), 2);
        assert!(found[0].is_none());
    }
}
