//! `[service.source]` of kind `prometheus`.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_exposition::Labels;
use plimsoll_net::{HttpUrl, http_url};
use plimsoll_settings::{
    Checked, MILLI, READ_TIMEOUT, at, bytes, duration, metric_name, required, section, wrong,
};
use schemars::JsonSchema;
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

/// A scrape of the service's own metrics.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[service.source] kind = \"prometheus\"")]
pub struct Section {
    /// URL to scrape; no TLS.
    #[schemars(extend("x-values" = "`http://host[:port]/path`", "x-default" = "required"))]
    url: Option<String>,
    /// Delay histogram in seconds, without `_bucket`.
    #[schemars(extend("x-values" = "metric name", "x-default" = "required"))]
    histogram: Option<String>,
    /// Labels that series of `histogram`, `failed` and `cost` must have. All matching series are summed.
    #[schemars(extend("x-values" = "table", "x-default" = "`{}`"))]
    labels: Option<BTreeMap<String, String>>,
    /// Counter of failed requests.
    #[schemars(extend("x-values" = "metric name", "x-default" = "none"))]
    failed: Option<String>,
    /// Counter of items touched by finished requests.
    #[schemars(extend("x-values" = "metric name", "x-default" = "none"))]
    cost: Option<String>,
    /// Gauge: age of the oldest unfinished request, in seconds.
    #[schemars(extend("x-values" = "metric name", "x-default" = "none"))]
    oldest_age: Option<String>,
    /// Timeout of the whole scrape.
    #[schemars(with = "String", extend("x-values" = "duration, 1ms to `agent.period`", "x-default" = "500ms, at most the period"))]
    #[serde(default, with = "humantime_serde")]
    timeout: Option<Duration>,
    /// Maximum size of the response body.
    #[schemars(extend("x-values" = "bytes, 1KiB to 64MiB", "x-default" = "`\"4MiB\"`"))]
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
