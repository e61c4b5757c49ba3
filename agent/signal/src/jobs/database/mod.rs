//! Queries a database once a period, over one persistent connection, for its number of jobs or its role.

pub mod mysql;
mod postgresql;
pub(super) mod settings;
pub mod stream;

use std::{sync::Arc, time::Duration};

use plimsoll_core::role::Look;
use plimsoll_net::{Backoff, backoff};
use tokio::{
    task::{JoinError, JoinHandle},
    time::{Instant, error::Elapsed, timeout},
};

use crate::{
    jobs::{DatabaseConfig, DatabaseKind},
    source_error::SourceError,
};

/// Initial reconnect backoff.
const MIN_WAIT: Duration = Duration::from_millis(100);
/// Maximum reconnect backoff.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Timeout of a login. Password hashing on a slow machine may take longer than a query, so a login may span
/// several periods.
const MAX_LOGIN: Duration = Duration::from_secs(5);

enum Connection {
    MySql(mysql::Connection),
    PostgreSql(postgresql::Connection),
}

/// A spawned exchange with a timeout. In a separate task, a panic on malformed input from the server affects nothing
/// else, and the exchange ends on its own if it is no longer awaited.
type Task<T> = JoinHandle<Result<Result<T, String>, Elapsed>>;

enum Link {
    Closed,
    Opening(Task<Connection>),
    Open(Connection),
}

/// Connection to a database server, opened by the first query and after failures, with backoff.
pub struct Database {
    config: Arc<DatabaseConfig>,
    link: Link,
    /// Backoff; `None` while queries succeed.
    waits: Option<Backoff>,
    not_before: Instant,
    why: String,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Database");
        shown.field("config", &self.config).finish_non_exhaustive()
    }
}

impl Database {
    /// A closed connection; the first query opens it.
    pub fn new(config: DatabaseConfig) -> Self {
        Database {
            config: Arc::new(config),
            link: Link::Closed,
            waits: None,
            not_before: Instant::now(),
            why: String::new(),
        }
    }

    /// Number of active clients, not counting the agent. Errors: kind `jobs`.
    pub async fn count(&mut self) -> Result<f64, SourceError> {
        self.exchange(count).await
    }

    /// Role and replication state of the server. Errors: kind `role`; always for MySQL.
    pub async fn role(&mut self) -> Result<Look, SourceError> {
        self.exchange(role).await
    }

    async fn exchange<T, F>(
        &mut self,
        ask: fn(Arc<DatabaseConfig>, Connection) -> F,
    ) -> Result<T, SourceError>
    where
        F: Future<Output = Result<(Connection, T), String>> + Send + 'static,
        T: Send + 'static,
    {
        let connection = match std::mem::replace(&mut self.link, Link::Closed) {
            Link::Open(connection) => connection,
            Link::Opening(task) => self.opened(task).await?,
            Link::Closed if Instant::now() < self.not_before => {
                return Err(SourceError::new(self.config.table, &self.why));
            }
            Link::Closed => {
                let login = open(Arc::clone(&self.config));
                let task = tokio::spawn(timeout(MAX_LOGIN, login));
                self.opened(task).await?
            }
        };
        let limit = self.config.timeout;
        let asking = ask(Arc::clone(&self.config), connection);
        match outcome(tokio::spawn(timeout(limit, asking)).await, limit) {
            Ok((connection, answer)) => {
                self.link = Link::Open(connection);
                self.waits = None;
                Ok(answer)
            }
            Err(problem) => Err(self.lost(&problem)),
        }
    }

    async fn opened(&mut self, mut task: Task<Connection>) -> Result<Connection, SourceError> {
        let limit = self.config.timeout;
        let Ok(ended) = timeout(limit, &mut task).await else {
            self.link = Link::Opening(task);
            let limit = humantime::format_duration(limit);
            return Err(self.failed(&format!("no login within {limit}, it goes on")));
        };
        outcome(ended, MAX_LOGIN).map_err(|problem| self.lost(&problem))
    }

    fn lost(&mut self, problem: &str) -> SourceError {
        let waits = self
            .waits
            .get_or_insert_with(|| backoff(MIN_WAIT, MAX_WAIT));
        self.not_before = Instant::now() + waits.next().unwrap_or(MAX_WAIT);
        self.failed(problem)
    }

    fn failed(&mut self, problem: &str) -> SourceError {
        let DatabaseConfig { kind, address, .. } = &*self.config;
        self.why = format!("{kind} at {address}: {problem}");
        SourceError::new(self.config.table, &self.why)
    }
}

fn outcome<T>(
    ended: Result<Result<Result<T, String>, Elapsed>, JoinError>,
    limit: Duration,
) -> Result<T, String> {
    match ended {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(format!(
            "no answer within {}",
            humantime::format_duration(limit)
        )),
        Err(_) => Err("malformed answer".to_owned()),
    }
}

async fn open(config: Arc<DatabaseConfig>) -> Result<Connection, String> {
    let stream = stream::open(&config.address).await?;
    Ok(match config.kind {
        DatabaseKind::MySql => Connection::MySql(mysql::Connection::open(&config, stream).await?),
        DatabaseKind::PostgreSql { .. } => {
            Connection::PostgreSql(postgresql::Connection::open(&config, stream).await?)
        }
    })
}

async fn count(
    config: Arc<DatabaseConfig>,
    mut connection: Connection,
) -> Result<(Connection, f64), String> {
    let jobs = match &mut connection {
        Connection::MySql(connection) => connection.jobs().await?,
        Connection::PostgreSql(connection) => connection.jobs(&config).await?,
    };
    Ok((connection, jobs))
}

async fn role(
    config: Arc<DatabaseConfig>,
    mut connection: Connection,
) -> Result<(Connection, Look), String> {
    let look = match &mut connection {
        Connection::MySql(_) => return Err("unknown role".to_owned()),
        Connection::PostgreSql(connection) => connection.role(&config).await?,
    };
    Ok((connection, look))
}

/// Message for a rejected login, with the configuration keys to check.
fn not_let_in(config: &DatabaseConfig, said: &str) -> String {
    let table = config.table;
    let keys = match config.password {
        Some(_) => format!("see {table}.user and {table}.password_file"),
        None => format!("see {table}.user; there is no {table}.password_file"),
    };
    format!("user {:?} is rejected, {keys}: {said}", config.user)
}
