//! PostgreSQL's active client backends.

use tokio::task::JoinHandle;
use tokio_postgres::{
    Client, Config, Error, NoTls, SimpleQueryMessage,
    error::{DbError, SqlState},
};

use super::{
    not_let_in,
    stream::{Budget, Stream},
};
use crate::config::{DatabaseConfig, DatabaseKind};

/// Without the right to see others' sessions their state is null, and the count would be too low.
const QUESTION: &str = "SELECT pg_catalog.count(*) FILTER (WHERE state = 'active' \
     AND backend_type = 'client backend' AND pid <> pg_catalog.pg_backend_pid()), \
     pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') FROM pg_catalog.pg_stat_activity";

/// A login.
pub struct Connection {
    client: Client,
    budget: Budget,
    /// Reads and writes; goes with the connection, lest it wait for an answer for ever.
    driver: JoinHandle<Result<(), Error>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
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
        let driver = tokio::spawn(driver);
        Ok(Connection {
            client,
            budget,
            driver,
        })
    }

    /// Active clients other than this one.
    pub async fn jobs(&mut self, config: &DatabaseConfig) -> Result<f64, String> {
        self.budget.renew();
        let answer = self.client.simple_query(QUESTION).await;
        let answer = match answer {
            Ok(answer) => answer,
            // Why it is closed is known to whoever read last.
            Err(error) if error.is_closed() => match (&mut self.driver).await {
                Ok(Err(error)) => return Err(told(config, &error)),
                _ => return Err(told(config, &error)),
            },
            Err(error) => return Err(told(config, &error)),
        };
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let cells = row.map(|row| (row.try_get(0), row.try_get(1)));
        let Some((Ok(Some(count)), Ok(Some(sees_all)))) = cells else {
            return Err("an answer without the count".to_owned());
        };
        if sees_all != "t" {
            return Err(format!(
                "user {0:?} cannot see others' sessions: GRANT pg_monitor TO {0:?}",
                config.user
            ));
        }
        let count: u32 = count
            .parse()
            .map_err(|_| format!("{count:?} is no number of backends"))?;
        Ok(f64::from(count))
    }
}

fn told(config: &DatabaseConfig, error: &Error) -> String {
    let Some(said) = error.as_db_error() else {
        // Its own text leaves out the cause.
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
        format!("see jobs.database: {text}")
    } else {
        text
    }
}

fn text(said: &DbError) -> String {
    format!("{} ({})", said.message(), said.code().code())
}
