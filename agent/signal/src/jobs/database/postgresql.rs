//! Queries PostgreSQL for its active client backends and its role.

use plimsoll_core::{Seconds, role::Look};
use tokio_postgres::{
    Client, Config, Error, NoTls, SimpleQueryMessage, SimpleQueryRow,
    error::{DbError, SqlState},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    not_let_in,
    stream::{Budget, Stream},
};
use crate::jobs::{DatabaseConfig, DatabaseKind};

/// Without `pg_read_all_stats` the state of other sessions is null, and the count would be too low.
const QUESTION: &str = "SELECT pg_catalog.count(*) FILTER (WHERE state = 'active' \
     AND backend_type = 'client backend' AND pid <> pg_catalog.pg_backend_pid()), \
     pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') FROM pg_catalog.pg_stat_activity";

/// Columns: is a standby; is streaming; age in seconds of the sender's last message, if all WAL received by then
/// is replayed; age in seconds of the last replayed transaction; has `pg_read_all_stats`, without which the
/// columns of the receiver are null.
const ROLE: &str = "SELECT pg_catalog.pg_is_in_recovery(), \
     coalesce(status = 'streaming' AND latest_end_lsn IS NOT NULL, false), \
     CASE WHEN status = 'streaming' AND pg_catalog.pg_last_wal_replay_lsn() >= latest_end_lsn \
     THEN extract(epoch FROM pg_catalog.clock_timestamp() - last_msg_send_time) END, \
     extract(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp()), \
     pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') \
     FROM (SELECT) AS one LEFT JOIN pg_catalog.pg_stat_wal_receiver ON true";

/// A logged-in connection.
pub struct Connection {
    client: Client,
    budget: Budget,
    /// I/O task, aborted with the connection so that it cannot wait for a reply forever.
    driver: AbortOnDropHandle<Result<(), Error>>,
}

impl Connection {
    /// Logs in.
    pub async fn open(config: &DatabaseConfig, stream: Stream) -> Result<Self, String> {
        let mut login = Config::new();
        login.user(&config.user).application_name("plimsoll");
        if let DatabaseKind::PostgreSql { database } = &config.kind {
            login.dbname(database);
        }
        if let Some(password) = &config.password {
            login.password(password.text());
        }
        let budget = stream.budget();
        let connected = login.connect_raw(stream, NoTls).await;
        let (client, driver) = connected.map_err(|error| told(config, &error))?;
        let driver = AbortOnDropHandle::new(tokio::spawn(driver));
        Ok(Connection {
            client,
            budget,
            driver,
        })
    }

    /// Number of active client backends other than this one.
    pub async fn jobs(&mut self, config: &DatabaseConfig) -> Result<f64, String> {
        let row = self.row(config, QUESTION, "count").await?;
        let (Ok(Some(count)), Ok(Some(sees_all))) = (row.try_get(0), row.try_get(1)) else {
            return Err("an answer without the count".to_owned());
        };
        if sees_all != "t" {
            return Err(blind(config, "others' sessions"));
        }
        let count: u32 = count
            .parse()
            .map_err(|_| format!("{count:?} is not a number of backends"))?;
        Ok(f64::from(count))
    }

    /// Role and replication state of the server.
    pub async fn role(&mut self, config: &DatabaseConfig) -> Result<Look, String> {
        let row = self.row(config, ROLE, "role").await?;
        let is = |column| match row.try_get(column) {
            Ok(Some(truth @ ("t" | "f"))) => Ok(truth == "t"),
            _ => Err("an answer without the role".to_owned()),
        };
        let age = |column| match row.try_get(column) {
            Ok(None) => Ok(None),
            Ok(Some(age)) => age
                .parse()
                .map(|age| Some(Seconds(age)))
                .map_err(|_| format!("{age:?} is not a number of seconds")),
            Err(_) => Err("an answer without the lag".to_owned()),
        };
        if !is(0)? {
            return Ok(Look::Primary);
        }
        if !is(4)? {
            return Err(blind(config, "what the standby receives"));
        }
        Ok(Look::Standby {
            is_fed: is(1)?,
            level_age: age(2)?,
            shown_age: age(3)?,
        })
    }

    async fn row(
        &mut self,
        config: &DatabaseConfig,
        question: &str,
        what: &str,
    ) -> Result<SimpleQueryRow, String> {
        self.budget.renew();
        let answer = match self.client.simple_query(question).await {
            Ok(answer) => answer,
            // The I/O task has the reason why the connection is closed.
            Err(error) if error.is_closed() => match (&mut self.driver).await {
                Ok(Err(error)) => return Err(told(config, &error)),
                _ => return Err(told(config, &error)),
            },
            Err(error) => return Err(told(config, &error)),
        };
        let row = answer.into_iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        row.ok_or_else(|| format!("an answer without the {what}"))
    }
}

fn blind(config: &DatabaseConfig, what: &str) -> String {
    let user = &config.user;
    format!("user {user:?} cannot see {what}: GRANT pg_monitor TO {user:?}")
}

fn told(config: &DatabaseConfig, error: &Error) -> String {
    let Some(said) = error.as_db_error() else {
        // The error's own text omits the cause.
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
        return format!("{error}{}", cause.unwrap_or_default());
    };
    let refused = [
        SqlState::INVALID_PASSWORD,
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
    ];
    let text = text(said);
    if refused.contains(said.code()) {
        not_let_in(config, &text)
    } else if *said.code() == SqlState::UNDEFINED_DATABASE {
        format!("see {}.database: {text}", config.table)
    } else {
        text
    }
}

fn text(said: &DbError) -> String {
    format!("{} ({})", said.message(), said.code().code())
}
