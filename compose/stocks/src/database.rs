//! Common types of the databases: opened databases and errors.

use anyhow::{Context, Result};

use crate::catalog::Catalog;

/// Moves the quotes of stocks by the given hundredths of a percent, in one transaction, and returns the number
/// moved. Errors are permanent.
pub type PriceUpdate = Box<dyn FnMut(&[(u32, i64)]) -> Result<usize> + Send>;

/// A node's database, opened and filled.
pub struct Opened<Store, Source> {
    pub store: Store,
    pub catalog: Catalog,
    /// One connection per worker.
    pub sources: Vec<Source>,
    /// Present if this node moves the quotes.
    pub prices: Option<PriceUpdate>,
}

impl<Store, Source> Opened<Store, Source> {
    pub fn map<S, R>(self, store: fn(Store) -> S, source: fn(Source) -> R) -> Opened<S, R> {
        Opened {
            store: store(self.store),
            catalog: self.catalog,
            sources: self.sources.into_iter().map(source).collect(),
            prices: self.prices,
        }
    }
}

/// Error: the database is unavailable, and nothing was changed.
#[derive(Debug)]
pub struct Unavailable(pub String);

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// The database went away during a commit: it may have made the transaction or not.
#[derive(Debug)]
pub struct InDoubt(pub String);

impl std::fmt::Display for InDoubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "whether the transaction was made is not known: {}",
            self.0
        )
    }
}

impl std::error::Error for InDoubt {}

/// A thread of a database, or of the quotes' feed.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .with_context(|| format!("cannot start the {name} thread"))?;
    Ok(())
}
