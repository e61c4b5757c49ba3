//! Delay source and job source together.

use std::sync::Arc;

use plimsoll_core::Observation;
use tracing::{info, warn};

use crate::{
    config::{JobsConfig, ServiceConfig},
    jobs::Jobs,
    metrics::Metrics,
    partition::Partitions,
    ring::RingBoard,
    sources::{Source, SourceError},
};

/// What a look gave.
pub enum Observed {
    /// Only something to compare the next one with.
    Base,
    /// A period.
    Period(Observation),
}

/// The sources of one service, opened when they are first needed and again after a change.
pub struct Observer {
    config: ServiceConfig,
    metrics: Metrics,
    rings: Arc<RingBoard>,
    partitions: Arc<Partitions>,
    source: Option<Source>,
    jobs: Option<Jobs>,
    jobs_error: Option<String>,
}

impl Observer {
    /// Nothing is open yet.
    pub fn new(
        config: ServiceConfig,
        metrics: Metrics,
        rings: Arc<RingBoard>,
        partitions: Arc<Partitions>,
    ) -> Self {
        Observer {
            config,
            metrics,
            rings,
            partitions,
            source: None,
            jobs: None,
            jobs_error: None,
        }
    }

    /// Closes what changed; what did not keeps its counts.
    pub fn reconfigure(&mut self, config: ServiceConfig) {
        let jobs_changed = config.jobs != self.config.jobs;
        if config.source != self.config.source || jobs_changed {
            self.source = None;
        }
        if jobs_changed {
            self.jobs = None;
        }
        self.config = config;
    }

    /// One look.
    pub async fn observe(&mut self) -> Result<Observed, SourceError> {
        let source = match &mut self.source {
            Some(source) => source,
            none => none.insert(Source::open(
                &self.config,
                &self.metrics,
                &self.rings,
                &self.partitions,
            )?),
        };
        let jobs = self
            .jobs
            .get_or_insert_with(|| Jobs::open(&self.config.jobs));
        let (sample, counted) = tokio::join!(source.observe(), jobs.count());
        let scraped = match &self.config.jobs {
            JobsConfig::Prometheus {
                gauge, url: None, ..
            } => Some(gauge),
            _ => None,
        };
        match (&sample, &counted, scraped) {
            (_, Err(error), _) => self.note_jobs(Some(error.to_string())),
            (_, Ok(_), None) => self.note_jobs(None),
            (Ok(Some(sample)), Ok(_), Some(gauge)) => {
                let missing = || format!("no series of gauge {gauge} in the source's scrape");
                self.note_jobs(sample.jobs.is_none().then(missing));
            }
            _ => {}
        }
        let Some(sample) = sample? else {
            return Ok(Observed::Base);
        };
        // Delays alone are worth a step.
        let counted = counted.unwrap_or_default();
        Ok(Observed::Period(Observation {
            period: sample.period,
            delays: sample.delays,
            failed: sample.failed,
            left: sample.left,
            finished_cost: sample.finished_cost,
            jobs: counted.now.or(sample.jobs),
            peak_jobs: counted.peak.or(sample.peak_jobs),
            oldest_age: sample.oldest_age,
        }))
    }

    fn note_jobs(&mut self, error: Option<String>) {
        let service = self.config.name.as_str();
        if let Some(message) = &error {
            self.metrics.source.failed(service, "jobs");
            // Once a cause, not once a period.
            if self.jobs_error != error {
                warn!(%service, kind = "jobs", "jobs are unknown, delays alone count: {message}");
            }
        } else if self.jobs_error.is_some() {
            info!(%service, "jobs are known again");
        }
        self.jobs_error = error;
    }
}
