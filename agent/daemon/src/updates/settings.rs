//! `[service.updates]`: temporal data whose update periods adapt.

use std::time::Duration;

use plimsoll_core::{
    Cost, Seconds,
    freshness::{FreshnessSettings, PERIODS},
};
use plimsoll_net::HttpUrl;
use plimsoll_settings::{Checked, MILLI, READ_TIMEOUT, at, duration, number};
use serde::Deserialize;

/// `P_max` of the paper.
const MAX_PERIOD: Duration = Duration::from_secs(5);

/// Adaptive update periods.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdatesConfig {
    /// What lists the items.
    pub url: HttpUrl,
    /// For reading the list.
    pub timeout: Duration,
    /// `P_max` and what an update costs.
    pub settings: FreshnessSettings,
}

/// As it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdatesSection {
    url: String,
    #[serde(default, with = "humantime_serde")]
    longest: Option<Duration>,
    update_cost: Option<f64>,
}

/// Checks it.
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
