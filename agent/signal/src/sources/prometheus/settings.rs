//! `[service.source]` of kind `prometheus`.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_exposition::Labels;
use plimsoll_net::{HttpUrl, http_url};
use plimsoll_settings::{
    Checked, KeyReference, MILLI, READ_TIMEOUT, at, bytes, duration, metric_name, required,
    section, wrong,
};
use serde::Deserialize;

/// Configuration of a scrape.
#[derive(Clone, Debug, PartialEq)]
pub struct PrometheusConfig {
    /// URL to scrape.
    pub url: HttpUrl,
    /// Name of the delay histogram without `_bucket`. Its unit is seconds.
    pub histogram: String,
    /// Labels that the series of `histogram`, `failed` and `cost` must have.
    pub labels: Labels,
    /// Name of the counter of failed requests.
    pub failed: Option<String>,
    /// Name of the counter of finished cost, in items.
    pub cost: Option<String>,
    /// Name of the gauge of the oldest unfinished request's age, in seconds.
    pub oldest_age: Option<String>,
    /// Timeout of the whole scrape, at most the period.
    pub timeout: Duration,
    /// Maximum size of the body in bytes, 1 KiB to 64 MiB.
    pub max_body: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    url: Option<String>,
    histogram: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    failed: Option<String>,
    cost: Option<String>,
    oldest_age: Option<String>,
    #[serde(default, with = "humantime_serde")]
    timeout: Option<Duration>,
    max_body: Option<String>,
}

/// Checks the keys. `path` prefixes them in errors; `period` is the control period.
pub fn check(path: &str, keys: toml::Table, period: Duration) -> Checked<PrometheusConfig> {
    let raw: Section = section(path, keys)?;
    let url = required(format!("{path}.url"), raw.url.as_ref(), "prometheus")?;
    let histogram = required(
        format!("{path}.histogram"),
        raw.histogram.as_ref(),
        "prometheus",
    )?;
    let names = [
        ("histogram", Some(histogram)),
        ("failed", raw.failed.as_ref()),
        ("cost", raw.cost.as_ref()),
        ("oldest_age", raw.oldest_age.as_ref()),
    ];
    for (key, name) in names {
        if let Some(name) = name {
            metric_name(&format!("{path}.{key}"), name)?;
        }
    }
    for part in ["_bucket", "_sum", "_count"] {
        if let Some(base) = histogram.strip_suffix(part) {
            return wrong(
                format!("{path}.histogram"),
                format!(
                    "must be the histogram's name, {base:?}, not that of its {part} series, {histogram:?}"
                ),
            );
        }
    }
    let key = format!("{path}.timeout");
    let timeout = duration(&key, raw.timeout, period.min(READ_TIMEOUT), MILLI)?;
    if timeout > period {
        let shown = humantime::format_duration;
        return wrong(
            key,
            format!(
                "must not be above agent.period ({}), is {}",
                shown(period),
                shown(timeout)
            ),
        );
    }
    let max_body = at(
        &format!("{path}.max_body"),
        bytes(raw.max_body.as_deref().unwrap_or("4MiB")),
    )?;
    if !(1024..=64 << 20).contains(&max_body) {
        return wrong(
            format!("{path}.max_body"),
            format!("must be from 1KiB to 64MiB, is {max_body} bytes"),
        );
    }
    Ok(PrometheusConfig {
        url: at(&format!("{path}.url"), http_url(url))?,
        histogram: histogram.clone(),
        labels: raw.labels.unwrap_or_default(),
        failed: raw.failed,
        cost: raw.cost,
        oldest_age: raw.oldest_age,
        timeout,
        max_body,
    })
}

/// Reference of the keys.
pub const KEYS: &[KeyReference] = &[
    (
        "url",
        "`http://host[:port]/path`",
        "required",
        "URL to scrape; no TLS.",
    ),
    (
        "histogram",
        "metric name",
        "required",
        "Delay histogram in seconds, without `_bucket`.",
    ),
    (
        "labels",
        "table",
        "`{}`",
        "Labels that series of `histogram`, `failed` and `cost` must have. All matching series are summed.",
    ),
    (
        "failed",
        "metric name",
        "none",
        "Counter of failed requests.",
    ),
    (
        "cost",
        "metric name",
        "none",
        "Counter of items touched by finished requests.",
    ),
    (
        "oldest_age",
        "metric name",
        "none",
        "Gauge: age of the oldest unfinished request, in seconds.",
    ),
    (
        "timeout",
        "duration, 1ms to `agent.period`",
        "500ms, at most the period",
        "Timeout of the whole scrape.",
    ),
    (
        "max_body",
        "bytes, 1KiB to 64MiB",
        "`\"4MiB\"`",
        "Maximum size of the response body.",
    ),
];
