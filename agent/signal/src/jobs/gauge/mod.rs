//! A Prometheus gauge scraped from a URL of its own, not from that of the delay source.

pub(super) mod settings;

use std::time::Duration;

use plimsoll_exposition::{Exposition, Selector};
use plimsoll_net::{HttpUrl, get};

use self::settings::GaugeConfig;
use crate::source_error::SourceError;

const MAX_BODY: usize = 4 << 20;

/// A gauge, its labels and its URL.
#[derive(Debug)]
pub struct Gauge {
    url: HttpUrl,
    name: String,
    selector: Selector,
    timeout: Duration,
}

impl Gauge {
    /// A gauge at this URL that has not been read.
    pub fn new(url: HttpUrl, config: &GaugeConfig) -> Self {
        Gauge {
            url,
            name: config.gauge.clone(),
            selector: Selector::new(&config.gauge, &config.labels),
            timeout: config.timeout,
        }
    }

    /// Scrapes the gauge and returns the sum of all matching series.
    pub async fn read(&self) -> Result<f64, SourceError> {
        let (status, body) = get(&self.url, self.timeout, MAX_BODY).await?;
        if status != 200 {
            return Err(SourceError::new(
                "status",
                format!("{}: status {status}, not 200", self.url),
            ));
        }
        self.sum(&body).map_err(|error| SourceError {
            message: format!("{}: {}", self.url, error.message),
            ..error
        })
    }

    fn sum(&self, body: &[u8]) -> Result<f64, SourceError> {
        let values = Exposition::new(body)?.gauges(&self.selector)?;
        let sum = values.into_iter().reduce(|a, b| a + b);
        sum.ok_or_else(|| {
            let missing = format!("no series of gauge {} with the labels wanted", self.name);
            SourceError::new("no_series", missing)
        })
    }
}
