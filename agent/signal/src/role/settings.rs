//! `[service.role]`: role of the node's database, which decides whether it takes writes and reads.

use std::{path::PathBuf, time::Duration};

use plimsoll_core::{Seconds, role::RoleSettings};
use plimsoll_net::HttpUrl;
use plimsoll_settings::{Checked, READ_TIMEOUT, at, duration};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::jobs::{DatabaseConfig, Login, database};

const MAX_LAG: Duration = Duration::from_secs(10);
/// Default of `without_primary`: Patroni's default `ttl`.
const WITHOUT_PRIMARY: Duration = Duration::from_secs(30);
/// Control periods until a proxy notices a change: from one check to the next, and until the proxy asks.
const NOTICE_PERIODS: u32 = 2;
/// One more if the proxy asks the agent of another node, which asks this one once a period.
const PEER_PERIODS: u32 = 1;
/// Minimum of `max_lag` in control periods: a lower one leaves no room between fresh and stale.
const MIN_LAG_PERIODS: u32 = 5;
const HOLD_PERIODS: u32 = 3;

/// Checked configuration of the database's role.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleConfig {
    /// Database to query.
    pub database: DatabaseConfig,
    /// URL that responds with 200 while this node holds the leader's lock.
    pub lock: Option<HttpUrl>,
    /// Timeout of a request to `lock`.
    pub timeout: Duration,
    /// Limits on lag, and how long a result holds.
    pub settings: RoleSettings,
}

/// Replication role of this node's PostgreSQL: only the primary accepts writes (`GET /v1/role`), and a standby that
/// lags too far behind accepts no reads: docs/failover.md.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[service.role]")]
pub struct RoleSection {
    /// Address of PostgreSQL; no TLS. A path is that of the socket itself.
    #[schemars(extend("x-values" = "host:port, `unix:///path`", "x-default" = "required"))]
    address: String,
    /// Database user for one query per period; needs the role `pg_monitor` or `pg_read_all_stats`.
    #[schemars(extend("x-values" = "1 to 120 bytes", "x-default" = "required"))]
    user: String,
    /// File with the password, read at start and reload.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    password_file: Option<PathBuf>,
    /// The database to connect to.
    #[schemars(extend("x-values" = "1 to 120 bytes", "x-default" = "`\"postgres\"`"))]
    database: Option<String>,
    /// URL that returns 200 while this node holds the leader lock, such as Patroni's `http://127.0.0.1:8008/primary`.
    /// Otherwise the node accepts no writes, even if its PostgreSQL would. No TLS.
    #[schemars(extend("x-values" = "`http://host[:port]/path`", "x-default" = "none"))]
    lock_url: Option<String>,
    /// A standby that may lag further behind its primary accepts no reads. It stops two periods earlier, three if
    /// `envoy.peers` is set, and resumes after three samples at half of this or less.
    #[schemars(with = "String", extend("x-values" = "duration, 5 periods to 1day", "x-default" = "`\"10s\"`, at least 5 periods"))]
    #[serde(default, with = "humantime_serde")]
    max_lag: Option<Duration>,
    /// Replaces `max_lag`, if larger, for a standby that was fresh when its primary stopped replicating, so that
    /// reads continue while there is no primary. Should exceed Patroni's `ttl` by some seconds.
    #[schemars(with = "String", extend("x-values" = "duration, 0s to 1day", "x-default" = "`\"30s\"`"))]
    #[serde(default, with = "humantime_serde")]
    without_primary: Option<Duration>,
}

/// Checks `[service.role]`. `path` prefixes the keys in errors. `period` is the control period; `has_peers` is true
/// if agents of other nodes forward the role to proxies.
pub fn role(
    path: &str,
    raw: &RoleSection,
    period: Duration,
    has_peers: bool,
) -> Checked<RoleConfig> {
    let login = Login {
        table: "role",
        kind: "postgresql",
        address: Some(&raw.address),
        user: Some(&raw.user),
        password_file: raw.password_file.as_deref(),
        database: raw.database.as_deref(),
    };
    let least = MIN_LAG_PERIODS * period;
    let max_lag = duration(
        &format!("{path}.max_lag"),
        raw.max_lag,
        MAX_LAG.max(least),
        least,
    )?;
    let without_primary = duration(
        &format!("{path}.without_primary"),
        raw.without_primary,
        WITHOUT_PRIMARY,
        Duration::ZERO,
    )?;
    let notice = NOTICE_PERIODS + if has_peers { PEER_PERIODS } else { 0 };
    let lock = raw.lock_url.as_deref();
    let lock = lock.map(|url| at(&format!("{path}.lock_url"), plimsoll_net::http_url(url)));
    Ok(RoleConfig {
        database: database(path, login, period)?,
        lock: lock.transpose()?,
        timeout: period.min(READ_TIMEOUT),
        settings: RoleSettings {
            max_lag: Seconds::from(max_lag),
            without_primary: Seconds::from(without_primary),
            notice: Seconds::from(notice * period),
            hold: Seconds::from(HOLD_PERIODS * period),
        },
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_asks_another_nodes_agent_hears_a_period_later() {
        let table = "address = \"127.0.0.1:5432\"\nuser = \"plimsoll\"";
        let raw: RoleSection = toml::from_str(table).unwrap();
        let period = Duration::from_millis(500);
        let notice = |has_peers| {
            let config = role("service[0].role", &raw, period, has_peers);
            config.unwrap().settings.notice
        };
        assert_eq!((notice(false), notice(true)), (Seconds(1.0), Seconds(1.5)));
    }
}
