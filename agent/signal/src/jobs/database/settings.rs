//! `[service.jobs]` of kinds `mysql` and `postgresql`, and the keys of a database anywhere.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use plimsoll_net::DatabaseAddress;
use plimsoll_settings::{
    Checked, MAX_NAME, READ_TIMEOUT, Secret, at, only_for, required, secret, section, wrong,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// A database to query for its number of active clients, or for its role.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseConfig {
    /// Configuration table it belongs to, `jobs` or `role`; also the kind of its errors.
    pub table: &'static str,
    /// Protocol of the database.
    pub kind: DatabaseKind,
    /// TCP address or unix socket.
    pub address: DatabaseAddress,
    /// User to log in as.
    pub user: String,
    /// Password of `user`.
    pub password: Option<Secret>,
    /// Timeout of each query.
    pub timeout: Duration,
}

/// Supported database protocols.
#[derive(Clone, Debug, PartialEq)]
pub enum DatabaseKind {
    /// MySQL or MariaDB.
    MySql,
    /// PostgreSQL.
    PostgreSql {
        /// Database to connect to. Clients of all databases of the server count.
        database: String,
    },
}

impl std::fmt::Display for DatabaseKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DatabaseKind::MySql => "mysql",
            DatabaseKind::PostgreSql { .. } => "postgresql",
        })
    }
}

/// The active clients of a database.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[service.jobs] kind = \"mysql\" or \"postgresql\"")]
pub struct Section {
    /// Address of the database (MySQL, MariaDB; PostgreSQL); no TLS. A path is that of the socket itself, such as
    /// `unix:///run/postgresql/.s.PGSQL.5432`.
    #[schemars(extend("x-values" = "host:port, `unix:///path`", "x-default" = "required"))]
    address: Option<String>,
    /// Database user for one query per period. In MySQL it needs no privilege except to log in, in PostgreSQL the role
    /// `pg_monitor` or `pg_read_all_stats`.
    #[schemars(extend("x-values" = "1 to 120 bytes", "x-default" = "required"))]
    user: Option<String>,
    /// File with the password, read at start and reload.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    password_file: Option<PathBuf>,
    /// With `postgresql`: the database to connect to. Active clients of all databases count.
    #[schemars(extend("x-values" = "1 to 120 bytes", "x-default" = "`\"postgres\"`"))]
    database: Option<String>,
}

/// Checks the keys of this kind; `path` prefixes them in errors.
pub fn check(
    path: &str,
    kind: &str,
    keys: toml::Table,
    period: Duration,
) -> Checked<DatabaseConfig> {
    let raw: Section = section(path, keys)?;
    if kind != "postgresql" {
        only_for(path, kind, &[("database", raw.database.is_some())])?;
    }
    let login = Login {
        table: "jobs",
        kind,
        address: raw.address.as_ref(),
        user: raw.user.as_ref(),
        password_file: raw.password_file.as_deref(),
        database: raw.database.as_deref(),
    };
    database(path, login, period)
}

/// Unchecked keys of a database to query.
pub struct Login<'a> {
    /// Configuration table, `jobs` or `role`.
    pub table: &'static str,
    /// `mysql` or `postgresql`.
    pub kind: &'a str,
    /// `address` key.
    pub address: Option<&'a String>,
    /// `user` key.
    pub user: Option<&'a String>,
    /// `password_file` key: file with the password.
    pub password_file: Option<&'a Path>,
    /// `database` key, PostgreSQL only.
    pub database: Option<&'a str>,
}

/// Checks the keys of a database and reads its password file.
pub fn database(path: &str, raw: Login<'_>, period: Duration) -> Checked<DatabaseConfig> {
    let kind = raw.kind;
    let text = |key: &str, text: &str| {
        // Both protocols terminate it with a zero byte.
        if text.is_empty() || text.len() > MAX_NAME || text.contains('\0') {
            let problem = format!("must have 1 to {MAX_NAME} bytes, none of them zero");
            return wrong(format!("{path}.{key}"), problem);
        }
        Ok(text.to_owned())
    };
    let address = required(format!("{path}.address"), raw.address, kind)?;
    let user = required(format!("{path}.user"), raw.user, kind)?;
    let password = raw.password_file;
    let password = password.map(|file| secret(&format!("{path}.password_file"), file));
    Ok(DatabaseConfig {
        table: raw.table,
        kind: match kind {
            "mysql" => DatabaseKind::MySql,
            _ => DatabaseKind::PostgreSql {
                database: text("database", raw.database.unwrap_or("postgres"))?,
            },
        },
        address: at(
            &format!("{path}.address"),
            plimsoll_net::database_address(address),
        )?,
        user: text("user", user)?,
        password: password.transpose()?.map(Secret::new),
        timeout: period.min(READ_TIMEOUT),
    })
}
