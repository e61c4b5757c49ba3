//! A Prometheus gauge that is not in the delay source's scrape.

use std::time::Duration;

use crate::{
    config::{HttpUrl, Labels},
    sources::{Exposition, Selector, SourceError, get},
};

const TIMEOUT: Duration = Duration::from_millis(500);
const MAX_BODY: usize = 4 << 20;

/// A gauge and where it is.
#[derive(Debug)]
pub struct Gauge {
    url: HttpUrl,
    selector: Selector,
}

impl Gauge {
    /// Not read yet.
    pub fn new(url: HttpUrl, name: &str, labels: &Labels) -> Self {
        Gauge {
            url,
            selector: Selector::new(name, labels),
        }
    }

    /// The sum of its series.
    pub async fn read(&self) -> Result<Option<f64>, SourceError> {
        let (status, body) = get(&self.url, TIMEOUT, MAX_BODY).await?;
        if status != 200 {
            return Err(SourceError::new(
                "status",
                format!("{}: status {status}, not 200", self.url),
            ));
        }
        let values = Exposition::new(&body)?.gauges(&self.selector)?;
        Ok(values.into_iter().reduce(|a, b| a + b))
    }
}
