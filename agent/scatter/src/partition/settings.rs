//! Settings `[[partition]]`: databases and services of this node with a part of the data.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use plimsoll_net::{Caller, ClientTls, DatabaseAddress, HttpUrl};
use plimsoll_settings::{
    Checked, ConfigError, MAX_NAME, Secret, SharedTls, TlsSection, at, secret, wrong,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Partition of this node and its queries.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionConfig {
    /// Name of the partition.
    pub name: String,
    /// Service whose bound its queries count towards.
    pub service: Option<String>,
    /// Server that holds the data.
    pub server: PartitionServer,
    /// Named queries: SQL, or the service's names for them.
    pub queries: BTreeMap<String, String>,
    /// Whether any other read-only query is answered.
    pub free_sql: bool,
}

/// Server of a partition.
#[derive(Clone, Debug, PartialEq)]
pub enum PartitionServer {
    /// A database.
    PostgreSql(PartitionDatabase),
    /// A service with an agent's protocol.
    Http(PartitionService),
}

/// A PostgreSQL database with a part of the data.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionDatabase {
    /// Address of the server.
    pub address: DatabaseAddress,
    /// User name.
    pub user: String,
    /// Password.
    pub password: Option<Secret>,
    /// Name of the database.
    pub name: String,
    /// TLS, if the connection has any.
    pub tls: Option<ClientTls>,
}

/// A service with a part of the data.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionService {
    /// URL for queries.
    pub url: HttpUrl,
    /// Credentials for the service.
    pub caller: Caller,
}

/// A part of the data, in a PostgreSQL database of this node or, with `url`, in a service with an agent's protocol;
/// `POST /v1/partition-query` queries it: docs/scatter.md.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[[partition]]")]
pub struct PartitionSection {
    /// The partition's name; unique.
    #[schemars(extend("x-values" = "1 to 120 visible ASCII characters", "x-default" = "required"))]
    name: String,
    /// Address of the PostgreSQL server.
    #[schemars(extend("x-values" = "`host:port` or `unix:///path`", "x-default" = "required, or `url`"))]
    address: Option<String>,
    /// User to log in as; should only have the right to read what is queried.
    #[schemars(extend("x-values" = "1 to 120 visible ASCII characters", "x-default" = "required, or `url`"))]
    user: Option<String>,
    /// File with the password, read at start and reload.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    password_file: Option<PathBuf>,
    /// Name of the database.
    #[schemars(extend("x-values" = "1 to 120 visible ASCII characters", "x-default" = "required, or `url`"))]
    database: Option<String>,
    /// Whether to use TLS, with the files of `[tls]`; the server's certificate must be valid for the host in `address`.
    #[schemars(extend("x-values" = "`true`, `false`", "x-default" = "`false`"))]
    #[serde(default)]
    tls: bool,
    /// Service to query in place of a database; excludes the keys above, except `name`, and `free_sql`.
    #[schemars(extend("x-values" = "`http://host[:port]/path`, or with `https://`", "x-default" = "none"))]
    url: Option<String>,
    /// With `url`: file with a token for the service, sent as `Authorization: Bearer …`: 16 to 4096 printable
    /// characters, read at start and reload.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    token_file: Option<PathBuf>,
    /// Service whose backlog and bound the queries count towards, of `source.kind = "partitions"`. Without it they
    /// count towards none.
    #[schemars(extend("x-values" = "a `name` of `[[service]]`", "x-default" = "none"))]
    service: Option<String>,
    /// Queries that callers may request by name: their SQL, with `$1`, `$2`… for parameters, or the service's name for
    /// each. At least one, or `free_sql`.
    #[schemars(extend("x-values" = "table of name and SQL; with `url`, of name and 1 to 120 visible ASCII characters", "x-default" = "none"))]
    #[serde(default)]
    queries: BTreeMap<String, String>,
    /// Whether callers may send any SQL query that only reads; needs `http.token_file` or `[http.tokens]`. Functions
    /// that `user` may call can still do more than read.
    #[schemars(extend("x-values" = "`true`, `false`", "x-default" = "`false`"))]
    #[serde(default)]
    free_sql: bool,
}

/// File with databases only.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DatabasesFile {
    #[serde(default)]
    tls: TlsSection,
    partition: Vec<PartitionSection>,
}

/// Databases by name, from a file with only `[[partition]]` tables, whose queries are optional.
pub fn databases(path: &Path) -> Result<Vec<(String, PartitionDatabase)>, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError::whole_file(path, error.to_string()))?;
    let file: DatabasesFile = plimsoll_settings::deserialize(path, &text)?;
    let tls = SharedTls::new(&file.tls)
        .map_err(|wrong| plimsoll_settings::point_at(path, &text, wrong))?;
    let database = |path: &str, raw| {
        let PartitionConfig { name, server, .. } = partition(path, raw, &tls)?;
        match server {
            PartitionServer::PostgreSql(database) => Ok((name, database)),
            PartitionServer::Http(_) => {
                let problem = "must be a database: what a service has is not loaded or checked";
                wrong(format!("{path}.url"), problem)
            }
        }
    };
    named(file.partition, database).map_err(|wrong| plimsoll_settings::point_at(path, &text, wrong))
}

/// Validated partitions of a file.
pub fn partitions(
    raw: Vec<PartitionSection>,
    has_token: bool,
    tls: &SharedTls,
) -> Checked<Vec<Arc<PartitionConfig>>> {
    let checked = named(raw, |path, raw| {
        if raw.queries.is_empty() && !raw.free_sql {
            let problem = match raw.url {
                Some(_) => "must have a query",
                None => "must have a query, or free_sql = true",
            };
            return wrong(format!("{path}.queries"), problem);
        }
        if raw.free_sql && !has_token {
            let problem = "needs http.token_file or [http.tokens]: not everybody may ask anything";
            return wrong(format!("{path}.free_sql"), problem);
        }
        partition(path, raw, tls)
    });
    Ok(checked?.into_iter().map(Arc::new).collect())
}

fn named<T>(
    raw: Vec<PartitionSection>,
    check: impl Fn(&str, PartitionSection) -> Checked<T>,
) -> Checked<Vec<T>> {
    let mut names = BTreeSet::new();
    let mut partitions = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let path = format!("partition[{index}]");
        if !names.insert(raw.name.clone()) {
            let problem = format!("there are two partitions {:?}", raw.name);
            return wrong(format!("{path}.name"), problem);
        }
        partitions.push(check(&path, raw)?);
    }
    Ok(partitions)
}

fn partition(path: &str, raw: PartitionSection, tls: &SharedTls) -> Checked<PartitionConfig> {
    for (query, sql) in &raw.queries {
        if raw.url.is_none() && (sql.trim().is_empty() || sql.contains('\0')) {
            return wrong(format!("{path}.queries.{query}"), "must be an SQL query");
        }
    }
    let server = match &raw.url {
        Some(url) => PartitionServer::Http(service(path, &raw, url, tls)?),
        None => PartitionServer::PostgreSql(database(path, &raw, tls)?),
    };
    Ok(PartitionConfig {
        name: name(format!("{path}.name"), &raw.name)?,
        service: raw.service,
        server,
        queries: raw.queries,
        free_sql: raw.free_sql,
    })
}

fn database(path: &str, raw: &PartitionSection, tls: &SharedTls) -> Checked<PartitionDatabase> {
    if raw.token_file.is_some() {
        return wrong(format!("{path}.token_file"), "needs url");
    }
    let required = |key: &str, value: &Option<String>| match value {
        Some(value) => Ok(value.clone()),
        None => wrong(format!("{path}.{key}"), "is required, or url"),
    };
    let address = required("address", &raw.address)?;
    let named = |key: &str, value| name(format!("{path}.{key}"), &required(key, value)?);
    let key = format!("{path}.password_file");
    let password = raw.password_file.as_deref().map(|file| secret(&key, file));
    let address = plimsoll_net::database_address(&address);
    let address = at(&format!("{path}.address"), address)?;
    if raw.tls && matches!(address, DatabaseAddress::Unix(_)) {
        return wrong(format!("{path}.tls"), "is for an address of host and port");
    }
    Ok(PartitionDatabase {
        address,
        tls: raw.tls.then(|| tls.get()).transpose()?,
        user: named("user", &raw.user)?,
        password: password.transpose()?.map(Secret::new),
        name: named("database", &raw.database)?,
    })
}

fn service(
    path: &str,
    raw: &PartitionSection,
    url: &str,
    tls: &SharedTls,
) -> Checked<PartitionService> {
    let of_databases = [
        ("address", raw.address.is_some()),
        ("user", raw.user.is_some()),
        ("password_file", raw.password_file.is_some()),
        ("database", raw.database.is_some()),
        ("tls", raw.tls),
        ("free_sql", raw.free_sql),
    ];
    if let Some((key, _)) = of_databases.iter().find(|(_, is_set)| *is_set) {
        let problem = "is for a database, and there is a url";
        return wrong(format!("{path}.{key}"), problem);
    }
    for (query, text) in &raw.queries {
        name(format!("{path}.queries.{query}"), text)?;
    }
    let url = at(&format!("{path}.url"), plimsoll_net::http_or_https_url(url))?;
    let key = format!("{path}.token_file");
    let caller = tls.caller(&key, raw.token_file.as_deref(), [&url])?;
    Ok(PartitionService { url, caller })
}

fn name(key: String, text: &str) -> Checked<String> {
    let fine = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.is_empty() || text.len() > MAX_NAME || !fine {
        let problem = format!("must be 1 to {MAX_NAME} visible ASCII characters");
        return wrong(key, problem);
    }
    Ok(text.to_owned())
}
