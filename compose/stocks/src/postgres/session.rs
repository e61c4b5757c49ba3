//! One connection to PostgreSQL: every wait is bounded, and a lost connection is reopened, with backoff and jitter
//! so that nodes do not reconnect in step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::Rng;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, NoTls};
use tracing::{info, warn};

use crate::cli::{Role, ServeArgs};
use crate::database::Unavailable;

const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Time beyond PostgreSQL's own timeout that the client waits for the end of a statement.
const GRACE: Duration = Duration::from_millis(500);

/// Durability that a session's commits wait for.
#[derive(Clone, Copy)]
pub enum Commit {
    /// Until the standbys have applied it.
    Applied,
    /// Until it is on the primary's disk.
    Local,
}

/// Address and timeouts of the database.
pub struct Settings {
    config: Config,
    /// Address without the password, for messages.
    label: String,
    /// Timeout of a statement.
    pub limit: Duration,
    pub writes: bool,
}

impl Settings {
    pub fn new(args: &ServeArgs, database: &str, commit: Commit) -> Result<Arc<Self>> {
        // The text may hold a password: it is not repeated.
        let mut config: Config = database
            .parse()
            .context("--database: not a PostgreSQL connection string")?;
        if let Some(path) = &args.database_password_file {
            let password = std::fs::read_to_string(path)
                .with_context(|| format!("--database-password-file {}", path.display()))?;
            config.password(password.trim_end_matches(['\r', '\n']));
        }
        let commit = match commit {
            Commit::Applied => "remote_apply",
            Commit::Local => "local",
        };
        let limit = args.statement_timeout;
        let options = format!(
            "{} -c statement_timeout={limit} -c idle_in_transaction_session_timeout={limit} \
             -c synchronous_commit={commit}",
            config.get_options().unwrap_or_default(),
            limit = limit.as_millis(),
        );
        let writes = args.role == Role::Master;
        config
            .options(&options)
            .application_name(&args.name)
            .connect_timeout(limit);
        if writes {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Ok(Arc::new(Self {
            label: label(&config),
            config,
            limit,
            writes,
        }))
    }
}

fn label(config: &Config) -> String {
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    let ports: Vec<String> = config.get_ports().iter().map(u16::to_string).collect();
    format!(
        "database {} at {}{}{}",
        config.get_dbname().or(config.get_user()).unwrap_or("?"),
        hosts.join(","),
        if ports.is_empty() { "" } else { " port " },
        ports.join(",")
    )
}

/// Statements that a session prepares once a connection.
pub trait Prepared: Sized {
    fn prepare(client: &Client, writes: bool) -> impl Future<Output = Result<Self, Error>>;
}

impl Prepared for () {
    async fn prepare(_: &Client, _: bool) -> Result<Self, Error> {
        Ok(())
    }
}

/// A live connection.
pub struct Open<P> {
    pub client: Client,
    pub prepared: P,
}

#[derive(Debug)]
pub enum Failure {
    /// There is no connection, it ended, or nothing came in time.
    Gone(String),
    /// PostgreSQL answered with an error.
    Refused(Error),
}

impl Failure {
    /// Whether the same may well work later: the server ends, starts, or is short of something.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Gone(_) => true,
            Self::Refused(error) => error.is_closed() || passing(error),
        }
    }
}

/// Classes of SQLSTATE: connection, wrong transaction state (a standby), rolled back, out of
/// resources, operator's intervention (of which a statement's time limit is one).
const PASSING: [&str; 5] = ["08", "25", "40", "53", "57"];

fn passing(error: &Error) -> bool {
    error
        .code()
        .map(SqlState::code)
        .is_some_and(|code| PASSING.iter().any(|class| code.starts_with(class)))
}

impl From<Failure> for anyhow::Error {
    fn from(failure: Failure) -> Self {
        let is_passing = failure.is_passing();
        match failure {
            Failure::Gone(why) => Unavailable(why).into(),
            Failure::Refused(error) if is_passing => {
                Unavailable(format!("the database refuses: {}", told(error))).into()
            }
            Failure::Refused(error) => anyhow::Error::from(error),
        }
    }
}

/// An error with its causes, which its own text leaves out.
fn told(error: Error) -> String {
    format!("{:#}", anyhow::Error::from(error))
}

pub struct Session<P> {
    settings: Arc<Settings>,
    runtime: Runtime,
    open: Option<Open<P>>,
    failures: u32,
    not_before: Instant,
    /// Why it has no connection; said once.
    why: String,
}

impl<P: Prepared> Session<P> {
    /// Connects at its first use.
    pub fn new(settings: Arc<Settings>) -> Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a database session")?;
        Ok(Self {
            settings,
            runtime,
            open: None,
            failures: 0,
            not_before: Instant::now(),
            why: String::new(),
        })
    }

    /// Does `work` on a live connection, within the time of so many statements and `more`.
    pub fn run<T>(
        &mut self,
        statements: u32,
        more: Duration,
        work: impl AsyncFnOnce(&mut Open<P>) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        let mut open = self.connected()?;
        let limit = self.settings.limit * statements + more + GRACE;
        let done = self
            .runtime
            .block_on(async { timeout(limit, work(&mut open)).await });
        match done {
            Ok(Ok(value)) => {
                self.open = Some(open);
                Ok(value)
            }
            Ok(Err(error)) if open.client.is_closed() || error.is_closed() => {
                let why = told(error);
                Err(self.lost(why))
            }
            Ok(Err(error)) => {
                self.open = Some(open);
                Err(Failure::Refused(error))
            }
            Err(_) => Err(self.lost(format!("no answer within {limit:?}"))),
        }
    }

    fn connected(&mut self) -> Result<Open<P>, Failure> {
        if let Some(open) = self.open.take() {
            // Gives the connection its turns, first to be woken and then to read, so that one that
            // ended while idle is known to have.
            self.runtime.block_on(async {
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
            });
            if !open.client.is_closed() {
                return Ok(open);
            }
        }
        if Instant::now() < self.not_before {
            return Err(Failure::Gone(self.why.clone()));
        }
        let settings = Arc::clone(&self.settings);
        let limit = settings.limit + GRACE;
        let connecting = async {
            let (client, connection) = settings.config.connect(NoTls).await?;
            // Its error is each statement's too.
            tokio::spawn(connection);
            let prepared = P::prepare(&client, settings.writes).await?;
            Ok::<_, Error>(Open { client, prepared })
        };
        let made = self
            .runtime
            .block_on(async { timeout(limit, connecting).await });
        match made {
            Ok(Ok(open)) => {
                if self.failures > 0 {
                    info!("{}: connected", self.settings.label);
                }
                self.failures = 0;
                self.why.clear();
                Ok(open)
            }
            Ok(Err(error)) => Err(self.lost(told(error))),
            Err(_) => Err(self.lost(format!("cannot connect within {limit:?}"))),
        }
    }

    fn lost(&mut self, what: String) -> Failure {
        let pause = MAX_PAUSE.min(MIN_PAUSE * 2u32.pow(self.failures.min(6)));
        let jitter = rand::rng().random_range(0.5..1.0);
        self.not_before = Instant::now() + pause.mul_f64(jitter);
        self.failures = self.failures.saturating_add(1);
        let why = format!("{}: {what}", self.settings.label);
        if why != self.why {
            warn!("{why}");
            self.why.clone_from(&why);
        }
        Failure::Gone(why)
    }

    /// Time to wait before the next attempt.
    pub fn pause(&self) -> Duration {
        self.not_before
            .saturating_duration_since(Instant::now())
            .max(MIN_PAUSE)
    }
}
