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
    "Temporal data of the service, whose updates give way under overload: docs/freshness.md. The feed asks `GET /v1/updates` for the periods.",
    &[
        (
            "url",
            "`http://host[:port]/path`",
            "required",
            "What lists the items with their own periods and how often they were read, as JSON; got once a period, within 500 ms, at most the period. No TLS; at most 16 MiB.",
        ),
        (
            "longest",
            "duration, 1ms to 1day",
            "`\"5s\"`",
            "The longest period that is ever asked for, *P_max*. Items whose own period is longer keep theirs.",
        ),
        (
            "update_cost",
            "above 0, to 1e9, cost units",
            "`1`",
            "What one update costs the node: its time over the time that a cost unit of a request takes.",
        ),
    ],
);
