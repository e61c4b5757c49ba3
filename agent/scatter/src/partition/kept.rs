//! Caches of idle connections and prepared statements.

use std::{num::NonZeroUsize, time::Duration};

use lru::LruCache;
use tokio::time::Instant;

/// Time that an idle connection is kept.
const IDLE: Duration = Duration::from_secs(60);
/// Maximum idle connections to a partition.
const MAX_IDLE: usize = 16;
/// Maximum prepared statements of a connection.
const MAX_STATEMENTS: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Maximum age of a prepared statement, as tables may change.
const STATEMENT_AGE: Duration = Duration::from_secs(60);

/// Idle connections.
#[derive(Debug)]
pub struct Idle<T> {
    /// Connections and when they became idle, the most recently used last.
    kept: Vec<(Instant, T)>,
    is_swept: bool,
}

impl<T> Idle<T> {
    pub fn new() -> Self {
        Idle {
            kept: Vec::new(),
            is_swept: false,
        }
    }

    /// Takes the most recently used connection.
    pub fn take(&mut self) -> Option<T> {
        self.kept.pop().map(|(_, it)| it)
    }

    /// Removes all connections.
    pub fn clear(&mut self) -> Vec<T> {
        self.kept.drain(..).map(|(_, it)| it).collect()
    }

    /// Adds a connection. Returns whether the caller must start to [`sweep`](Self::sweep); returns the connection as an
    /// error if there is no room.
    pub fn put(&mut self, it: T, now: Instant) -> Result<bool, T> {
        if self.kept.len() >= MAX_IDLE {
            return Err(it);
        }
        self.kept.push((now, it));
        Ok(!std::mem::replace(&mut self.is_swept, true))
    }

    /// Removes the connections that were idle for too long. Returns them, and the time of the next sweep, if any is
    /// needed.
    pub fn sweep(&mut self, now: Instant) -> (Vec<T>, Option<Instant>) {
        let old = self.kept.partition_point(|(at, _)| *at + IDLE <= now);
        let old = self.kept.drain(..old).map(|(_, it)| it).collect();
        let next = self.kept.first().map(|(at, _)| *at + IDLE);
        self.is_swept = next.is_some();
        (old, next)
    }
}

/// Prepared statements of one connection, by SQL.
#[derive(Debug)]
pub struct Statements<T>(LruCache<String, (Instant, T)>);

impl<T> Statements<T> {
    pub fn new() -> Self {
        Statements(LruCache::new(MAX_STATEMENTS))
    }

    /// The statement, unless it is too old.
    pub fn get(&self, sql: &str, now: Instant) -> Option<&T> {
        let (at, statement) = self.0.peek(sql)?;
        (now.duration_since(*at) < STATEMENT_AGE).then_some(statement)
    }

    /// Adds a statement prepared at `now`; if there is no room, it replaces the oldest.
    pub fn keep(&mut self, sql: &str, statement: T, now: Instant) {
        self.0.put(sql.to_owned(), (now, statement));
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn no_more_than_16_connections_stay_idle() {
        let (mut idle, now) = (Idle::new(), Instant::now());
        assert_eq!(idle.put(1, now), Ok(true));
        for connection in 2..=16 {
            assert_eq!(idle.put(connection, now), Ok(false));
        }
        assert_eq!(idle.put(17, now), Err(17));
        assert_eq!((idle.take(), idle.take()), (Some(16), Some(15)));
        assert_eq!(idle.put(17, now), Ok(false));
        assert_eq!(idle.clear().len(), 15);
        assert_eq!(idle.take(), None);
    }

    #[test]
    fn a_connection_stays_idle_for_60_s() {
        let (mut idle, begun) = (Idle::new(), Instant::now());
        let at = |seconds: u32| begun + seconds * SECOND;
        assert_eq!(idle.put("a", at(0)), Ok(true));
        assert_eq!(idle.sweep(at(0)), (vec![], Some(at(60))));
        assert_eq!(idle.put("b", at(20)), Ok(false));
        assert_eq!(idle.put("c", at(40)), Ok(false));
        assert_eq!(idle.sweep(at(59)), (vec![], Some(at(60))));
        assert_eq!(idle.sweep(at(60)), (vec!["a"], Some(at(80))));
        // A query restarts its idle time.
        assert_eq!(idle.take(), Some("c"));
        assert_eq!(idle.put("c", at(70)), Ok(false));
        assert_eq!(idle.sweep(at(80)), (vec!["b"], Some(at(130))));
        assert_eq!(idle.sweep(at(130)), (vec!["c"], None));
        // No sweep has run since then.
        assert_eq!(idle.put("d", at(200)), Ok(true));
        // Cleared connections leave nothing to sweep.
        assert_eq!(idle.clear(), ["d"]);
        assert_eq!(idle.put("e", at(210)), Ok(false));
        assert_eq!(idle.sweep(at(260)), (vec![], Some(at(270))));
    }

    #[test]
    fn a_connection_keeps_64_statements() {
        let (mut statements, begun) = (Statements::new(), Instant::now());
        let at = |number: u32| begun + number * SECOND / 100;
        for number in 0..64 {
            statements.keep(&number.to_string(), number, at(number));
        }
        assert_eq!(statements.get("0", at(64)), Some(&0));
        // Prepared anew it is no more than it was.
        statements.keep("0", 100, at(64));
        assert_eq!(statements.get("1", at(64)), Some(&1));
        statements.keep("64", 64, at(65));
        assert_eq!(statements.get("1", at(65)), None);
        for (sql, number) in [("0", 100), ("2", 2), ("64", 64)] {
            assert_eq!(statements.get(sql, at(65)), Some(&number));
        }
        assert_eq!(statements.0.len(), 64);
        statements.clear();
        assert_eq!(statements.get("0", at(65)), None);
    }

    #[test]
    fn a_statement_is_used_for_60_s() {
        let (mut statements, begun) = (Statements::new(), Instant::now());
        statements.keep("a", 1, begun);
        assert_eq!(statements.get("a", begun + 59 * SECOND), Some(&1));
        assert_eq!(statements.get("a", begun + 60 * SECOND), None);
        statements.keep("a", 2, begun + 60 * SECOND);
        assert_eq!(statements.get("a", begun + 119 * SECOND), Some(&2));
    }
}
