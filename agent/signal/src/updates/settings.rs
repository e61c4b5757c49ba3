//! `[service.updates]`: temporal data with adaptive update periods.

use std::time::Duration;

use plimsoll_core::{
    Cost, Seconds,
    freshness::{FreshnessSettings, PERIODS},
};
use plimsoll_net::HttpUrl;
use plimsoll_settings::{Checked, MILLI, READ_TIMEOUT, TableReference, at, duration, number};
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

/// `[service.updates]` as in the file, unchecked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdatesSection {
    url: String,
    #[serde(default, with = "humantime_serde")]
    longest: Option<Duration>,
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

/// Reference of the keys of `[service.updates]`.
pub const REFERENCE: TableReference = (
    "[service.updates]",
    "Temporal data of the service, which is updated less often under overload: docs/freshness.md. The feed gets the update periods from `GET /v1/updates`.",
    &[
        (
            "url",
            "`http://host[:port]/path`",
            "required",
            "URL of a JSON list of the items, with their own update periods and read counts. Requested once per period, with a timeout of 500 ms or the period, if that is shorter. No TLS; at most 16 MiB.",
        ),
        (
            "longest",
            "duration, 1ms to 1day",
            "`\"5s\"`",
            "Maximum update period, *P_max*. Items whose own period is longer keep it.",
        ),
        (
            "update_cost",
            "above 0, to 1e9, cost units",
            "`1`",
            "Cost of one update: its processing time divided by that of one cost unit of a request.",
        ),
    ],
);
