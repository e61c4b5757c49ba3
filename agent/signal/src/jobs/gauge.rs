//! A Prometheus gauge scraped from a URL of its own, not from that of the delay source.

use std::time::Duration;

use plimsoll_exposition::{Exposition, Labels, Selector};
use plimsoll_net::{HttpUrl, get};

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
    /// A gauge that has not been read. `timeout` applies to each scrape.
    pub fn new(url: HttpUrl, name: &str, labels: &Labels, timeout: Duration) -> Self {
        Gauge {
            url,
            name: name.to_owned(),
            selector: Selector::new(name, labels),
            timeout,
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
