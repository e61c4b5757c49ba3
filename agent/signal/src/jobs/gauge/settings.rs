//! `[service.jobs]` of kind `prometheus`.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_exposition::Labels;
use plimsoll_net::HttpUrl;
use plimsoll_settings::{Checked, READ_TIMEOUT, at, metric_name, required, section, wrong};
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration of a gauge.
#[derive(Clone, Debug, PartialEq)]
pub struct GaugeConfig {
    /// Metric name.
    pub gauge: String,
    /// Labels that its series must have.
    pub labels: Labels,
    /// URL of the gauge; `None` if it is in the scrape of the delay source.
    pub url: Option<HttpUrl>,
    /// Timeout of a scrape of `url`.
    pub timeout: Duration,
}

/// A Prometheus gauge.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[service.jobs] kind = \"prometheus\"")]
pub struct Section {
    /// Name of the gauge. All matching series are summed.
    #[schemars(extend("x-values" = "metric name", "x-default" = "required"))]
    gauge: Option<String>,
    /// Labels that the series must have.
    #[schemars(extend("x-values" = "table", "x-default" = "`{}`"))]
    labels: Option<BTreeMap<String, String>>,
    /// URL of the gauge.
    #[schemars(extend("x-values" = "`http://host[:port]/path`", "x-default" = "the source's"))]
    url: Option<String>,
}

/// Checks the keys. `path` prefixes them in errors; `scraped` is the URL of the delay source, if it is a scrape.
pub fn check(
    path: &str,
    keys: toml::Table,
    scraped: Option<&HttpUrl>,
    period: Duration,
) -> Checked<GaugeConfig> {
    let raw: Section = section(path, keys)?;
    let gauge = required(format!("{path}.gauge"), raw.gauge.as_ref(), "prometheus")?;
    metric_name(&format!("{path}.gauge"), gauge)?;
    let url = raw.url.as_deref();
    let url = url.map(|url| at(&format!("{path}.url"), plimsoll_net::http_url(url)));
    let url = match (url.transpose()?, scraped) {
        // One scrape serves both.
        (url, Some(scraped)) => url.filter(|url| url != scraped),
        (None, None) => {
            return wrong(
                format!("{path}.url"),
                "is required where the source is not a scrape",
            );
        }
        (url, None) => url,
    };
    Ok(GaugeConfig {
        gauge: gauge.clone(),
        labels: raw.labels.unwrap_or_default(),
        url,
        timeout: period.min(READ_TIMEOUT),
    })
}
