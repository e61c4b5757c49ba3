//! `[service.updates]`: temporal data with adaptive update periods.

use std::time::Duration;

use plimsoll_core::{
    Cost, Seconds,
    freshness::{FreshnessSettings, PERIODS},
};
use plimsoll_net::HttpUrl;
use plimsoll_settings::{Checked, MILLI, READ_TIMEOUT, at, duration, number};
use schemars::JsonSchema;
use serde::Deserialize;

/// Default of `longest`, the paper's `P_max`.
const MAX_PERIOD: Duration = Duration::from_secs(5);

/// Checked configuration of adaptive update periods.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdatesConfig {
    /// URL of the list of items.
    pub url: HttpUrl,
    /// Timeout of a fetch of the list.
    pub timeout: Duration,
    /// `P_max` and the cost of one update.
    pub settings: FreshnessSettings,
}

/// Temporal data of the service, which is updated less often under overload: docs/freshness.md. The feed gets the
/// update periods from `GET /v1/updates`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[service.updates]")]
pub struct UpdatesSection {
    /// URL of a JSON list of the items, with their own update periods and read counts. Requested once per period,
    /// with a timeout of 500 ms or the period, if that is shorter. No TLS; at most 16 MiB.
    #[schemars(extend("x-values" = "`http://host[:port]/path`", "x-default" = "required"))]
    url: String,
    /// Maximum update period, *P_max*. Items whose own period is longer keep it.
    #[schemars(with = "String", extend("x-values" = "duration, 1ms to 1day", "x-default" = "`\"5s\"`"))]
    #[serde(default, with = "humantime_serde")]
    longest: Option<Duration>,
    /// Cost of one update: its processing time divided by that of one cost unit of a request.
    #[schemars(extend("x-values" = "above 0, to 1e9, cost units", "x-default" = "`1`"))]
    update_cost: Option<f64>,
}

/// Checks `[service.updates]`. `path` prefixes the keys in errors; `period` caps the timeout.
pub fn updates(path: &str, raw: &UpdatesSection, period: Duration) -> Checked<UpdatesConfig> {
    let longest = duration(&format!("{path}.longest"), raw.longest, MAX_PERIOD, MILLI)?;
    let update_cost = number(
        &format!("{path}.update_cost"),
        raw.update_cost.unwrap_or(1.0),
        f64::MIN_POSITIVE..=1e9,
    )?;
    Ok(UpdatesConfig {
        url: at(&format!("{path}.url"), plimsoll_net::http_url(&raw.url))?,
        timeout: period.min(READ_TIMEOUT),
        settings: FreshnessSettings {
            longest: Seconds(longest.as_secs_f64().min(PERIODS.1.get())),
            update_cost: Cost(update_cost),
        },
    })
}
