//! `[service.updates]`: temporal data whose update periods adapt.

use std::time::Duration;

use plimsoll_core::{
    Cost, Seconds,
    freshness::{FreshnessSettings, PERIODS},
};
use plimsoll_settings::{Checked, MILLI, at, duration, number};

use super::{UpdatesConfig, raw, resolve::READ_TIMEOUT};

/// `P_max` of the paper.
const LONGEST: Duration = Duration::from_secs(5);

pub fn updates(path: &str, raw: &raw::Updates, period: Duration) -> Checked<UpdatesConfig> {
    let longest = duration(&format!("{path}.longest"), raw.longest, LONGEST, MILLI)?;
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
