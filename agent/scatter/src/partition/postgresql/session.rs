//! Connection to a partition's PostgreSQL, with its prepared statements.

use std::{error::Error as StdError, time::Duration};

use plimsoll_net::{DatabaseAddress, DatabaseSocket, connect, host_of};
use tokio::time::{Instant, timeout};
use tokio_postgres::{
    CancelToken, Client, Config, Error, NoTls, Statement, config::SslMode, error::SqlState,
    tls::MakeTlsConnect,
};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::AbortOnDropHandle;

use crate::answer::MAX_COLUMNS;
use crate::{
    client::MAX_ROW_BYTES,
    partition::{PartitionDatabase, Trouble, kept::Statements, pool::Pooled},
};

/// Options of the connection: while a query has no rows, the server checks every 500 ms that the agent is still
/// connected; it plans each query for its actual parameters; and every transaction is read-only, whoever begins it.
const OPTIONS: &str = "-c client_connection_check_interval=500 -c plan_cache_mode=force_custom_plan \
     -c default_transaction_read_only=on";
/// Time for a cancelled query to end before the connection is dropped.
const CANCEL_WAIT: Duration = Duration::from_secs(2);
/// Timeout for closing a connection gracefully.
const CLOSE_WAIT: Duration = Duration::from_millis(100);
/// Interval of cancel requests: the query may not have begun at the first one.
const CANCEL_PAUSE: Duration = Duration::from_millis(100);
/// Timeout for ending a transaction.
const RESET_WAIT: Duration = Duration::from_secs(1);
/// Statements that reset a session; a rollback does not release advisory locks.
const RESET: &str = "ROLLBACK; SELECT pg_catalog.pg_advisory_unlock_all()";

/// Connection with its prepared statements.
#[derive(Debug)]
pub struct Session {
    /// Client of the connection.
    pub client: Client,
    driver: Driver,
    statements: Statements<Prepared>,
    is_used: bool,
}

/// Prepared query that returns its rows as JSON lines.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Statement, with the query's parameters followed by the limit.
    pub statement: Statement,
    /// Columns of the query.
    pub columns: Vec<String>,
    /// Number of parameters of the query.
    pub parameters: usize,
    is_kept: bool,
}

/// Task that drives the connection, aborted when dropped.
pub type Driver = AbortOnDropHandle<Result<(), Error>>;

/// Connects and logs in with this application name and these options.
pub async fn login(
    database: &PartitionDatabase,
    application: &str,
    options: &str,
) -> Result<(Client, Driver), Trouble> {
    let mut login = Config::new();
    login.user(&database.user).dbname(&database.name);
    login.application_name(application).options(options);
    if let Some(password) = &database.password {
        login.password(password.text());
    }
    let told = |error: Error| told(&error);
    let tls = secure(database)?;
    let socket = connect(&database.address).await.map_err(Trouble::Down)?;
    let (client, driver) = match tls {
        Some(tls) => {
            login.ssl_mode(SslMode::Require);
            let (client, driver) = login.connect_raw(socket, tls).await.map_err(told)?;
            (client, tokio::spawn(driver))
        }
        None => {
            let (client, driver) = login.connect_raw(socket, NoTls).await.map_err(told)?;
            (client, tokio::spawn(driver))
        }
    };
    Ok((client, Driver::new(driver)))
}

type RustlsConnect = <MakeRustlsConnect as MakeTlsConnect<DatabaseSocket>>::TlsConnect;

/// TLS by the certificates in force, if the database is asked by it.
fn secure(database: &PartitionDatabase) -> Result<Option<RustlsConnect>, Trouble> {
    let (Some(tls), DatabaseAddress::Tcp(address)) = (&database.tls, &database.address) else {
        return Ok(None);
    };
    let mut maker = MakeRustlsConnect::new((*tls.config()).clone());
    let tls = MakeTlsConnect::<DatabaseSocket>::make_tls_connect(&mut maker, host_of(address));
    tls.map(Some)
        .map_err(|error| Trouble::Down(format!("TLS: {error}")))
}

/// Asks a database to cancel a query; who calls it tries again.
async fn cancel(token: &CancelToken, database: &PartitionDatabase) {
    let Ok(tls) = secure(database) else { return };
    let Ok(socket) = connect(&database.address).await else {
        return;
    };
    let _ = match tls {
        Some(tls) => token.cancel_query_raw(socket, tls).await,
        None => token.cancel_query_raw(socket, NoTls).await,
    };
}

impl Pooled for Session {
    type Server = PartitionDatabase;

    async fn open(database: &PartitionDatabase) -> Result<Self, Trouble> {
        let opened = login(database, "plimsoll-partition", OPTIONS).await;
        let (client, driver) = opened.map_err(|trouble| Trouble::Down(trouble.to_string()))?;
        Ok(Session {
            client,
            driver,
            statements: Statements::new(),
            is_used: false,
        })
    }

    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Terminates the session properly, as the server would log it otherwise.
    async fn close(self) {
        let Session {
            client,
            mut driver,
            statements,
            ..
        } = self;
        drop((client, statements));
        let _ = timeout(CLOSE_WAIT, &mut driver).await;
    }
}

/// Number of tables that the user may write to, with those of superusers, who may write to all.
const WRITABLE: &str = "SELECT count(*) FROM pg_catalog.pg_class AS c \
     JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
     WHERE c.relkind IN ('r', 'p', 'f') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' \
     AND pg_catalog.has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')";

/// Tries a database as queries use it.
///
/// # Errors
///
/// It does not answer, or its user may write.
pub async fn probe(database: &PartitionDatabase) -> Result<String, String> {
    let opened = login(database, "plimsoll-partition", OPTIONS).await;
    let (client, _driver) = opened.map_err(|trouble| trouble.to_string())?;
    let found = client.query_one(WRITABLE, &[]).await;
    let tables: i64 = found
        .and_then(|row| row.try_get(0))
        .map_err(|it| told(&it).to_string())?;
    match tables {
        0 => Ok("answers, and its user writes to no table".to_owned()),
        _ => {
            let user = &database.user;
            Err(format!(
                "{user} may write to {tables} of its tables; give it no right but to read"
            ))
        }
    }
}

impl Session {
    /// Whether the connection has run a query.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// Begins a read-only transaction.
    pub async fn begin(&mut self, limit: Duration) -> Result<(), Error> {
        self.is_used = true;
        let limit = limit.as_millis().max(1);
        let begin = format!("BEGIN READ ONLY; SET LOCAL statement_timeout = {limit}");
        self.client.batch_execute(&begin).await
    }

    /// Statement of a query, from the cache or newly prepared.
    pub async fn prepared(&mut self, sql: &str, keep: bool) -> Result<Prepared, Broken> {
        let now = Instant::now();
        if let Some(kept) = self.statements.get(sql, now) {
            let is_kept = true;
            return Ok(Prepared {
                is_kept,
                ..kept.clone()
            });
        }
        let prepared = self.prepare(sql).await?;
        if keep {
            self.statements.keep(sql, prepared.clone(), now);
        }
        Ok(prepared)
    }

    async fn prepare(&self, sql: &str) -> Result<Prepared, Broken> {
        // Prepare it alone first, so that it is one complete statement and not a fragment.
        let plain = self.client.prepare(sql).await?;
        let columns: Vec<String> = plain
            .columns()
            .iter()
            .map(|it| it.name().to_owned())
            .collect();
        if !(1..=MAX_COLUMNS).contains(&columns.len()) {
            let count = columns.len();
            return Err(Broken::at_rest(format!(
                "the query has {count} columns: must have 1 to {MAX_COLUMNS}"
            )));
        }
        let parameters = plain.params().len();
        let as_lines = as_lines(sql, columns.len(), parameters + 1);
        Ok(Prepared {
            statement: self.client.prepare(&as_lines).await?,
            columns,
            parameters,
            is_kept: false,
        })
    }

    /// Ends the transaction. Returns whether the session was reset.
    pub async fn reset(&self) -> bool {
        let reset = timeout(RESET_WAIT, self.client.batch_execute(RESET)).await;
        matches!(reset, Ok(Ok(())))
    }

    /// The same, and discards the prepared statements.
    pub async fn renew(&mut self) -> bool {
        self.statements.clear();
        self.reset().await
    }

    /// Cancels the query repeatedly until the server has closed the connection.
    pub async fn cancel(self, database: &PartitionDatabase) {
        let Session {
            client,
            mut driver,
            statements,
            ..
        } = self;
        let token = client.cancel_token();
        drop((client, statements));
        let ended = async {
            loop {
                cancel(&token, database).await;
                if timeout(CANCEL_PAUSE, &mut driver).await.is_ok() {
                    return;
                }
            }
        };
        let _ = timeout(CANCEL_WAIT, ended).await;
    }
}

/// Failure of a query before its last row.
#[derive(Debug)]
pub struct Broken {
    /// Reason for the caller.
    pub trouble: Trouble,
    /// Whether the server has ended the query, and is ready for another.
    pub is_at_rest: bool,
    /// Whether a statement prepared for an older schema may be the cause.
    pub is_stale: bool,
}

impl Broken {
    /// Failure without a running query.
    pub fn at_rest(problem: String) -> Self {
        Broken {
            trouble: Trouble::Refused(problem),
            is_at_rest: true,
            is_stale: false,
        }
    }

    /// Failure after which the query may still be running.
    pub fn amid(trouble: Trouble) -> Self {
        Broken {
            trouble,
            is_at_rest: false,
            is_stale: false,
        }
    }

    /// Marks the failure as not stale if the statement was newly prepared.
    pub fn of(self, prepared: &Prepared) -> Self {
        Broken {
            is_stale: self.is_stale && prepared.is_kept,
            ..self
        }
    }

    /// Whether the server is unavailable.
    pub fn is_down(&self) -> bool {
        matches!(self.trouble, Trouble::Down(_))
    }
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        let trouble = told(&error);
        let code = error.code().map_or("", SqlState::code);
        let is_down = matches!(trouble, Trouble::Down(_));
        Broken {
            is_at_rest: error.as_db_error().is_some() && !is_down,
            // Feature not supported, invalid statement name, syntax error or access violation.
            is_stale: ["0A", "26", "42"]
                .iter()
                .any(|class| code.starts_with(class)),
            trouble,
        }
    }
}

/// SQL that returns each row as one JSON array, or null if it is too long. Without the optimization fence the array
/// would be built twice.
fn as_lines(sql: &str, columns: usize, limit: usize) -> String {
    let names: Vec<String> = (0..columns).map(|at| format!("c{at}")).collect();
    let names = names.join(", ");
    let sql = sql.trim_end().trim_end_matches(';');
    format!(
        "SELECT CASE WHEN pg_catalog.octet_length(line) <= {MAX_ROW_BYTES} THEN line END FROM \
         (SELECT pg_catalog.json_build_array({names})::text FROM (\n{sql}\n) AS asked ({names}) \
         OFFSET 0 LIMIT ${limit}::pg_catalog.int8) AS lines (line)"
    )
}

fn told(error: &Error) -> Trouble {
    let Some(said) = error.as_db_error() else {
        // The error's own message omits the cause.
        let cause = error.source().map(|cause| format!(": {cause}"));
        return Trouble::Down(format!("{error}{}", cause.unwrap_or_default()));
    };
    let code = said.code();
    if *code == SqlState::QUERY_CANCELED {
        return Trouble::Late;
    }
    let text = format!("{} ({})", said.message(), code.code());
    // Connections, resources, operators, the system.
    match ["08", "53", "57", "58", "XX"]
        .iter()
        .any(|class| code.code().starts_with(class))
    {
        true => Trouble::Down(text),
        false => Trouble::Refused(text),
    }
}
