//! Delay source and job source together.

use plimsoll_core::Observation;

use crate::{
    config::ServiceConfig,
    jobs::Jobs,
    metrics::Metrics,
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
    source: Option<Source>,
    jobs: Option<Jobs>,
}

impl Observer {
    /// Nothing is open yet.
    pub fn new(config: ServiceConfig, metrics: Metrics) -> Self {
        Observer {
            config,
            metrics,
            source: None,
            jobs: None,
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
            none => none.insert(Source::open(&self.config, &self.metrics)?),
        };
        let jobs = self
            .jobs
            .get_or_insert_with(|| Jobs::open(&self.config.jobs));
        let (sample, counted) = tokio::join!(source.observe(), jobs.count());
        let Some(sample) = sample? else {
            return Ok(Observed::Base);
        };
        let counted = match counted {
            Ok(counted) => counted,
            // Delays alone are worth a step.
            Err(error) => {
                let labels = [self.config.name.as_str(), "jobs"];
                self.metrics
                    .source_failures
                    .with_label_values(&labels)
                    .inc();
                tracing::debug!(service = %self.config.name, %error, "jobs are unknown");
                Default::default()
            }
        };
        Ok(Observed::Period(Observation {
            period: sample.period,
            delays: sample.delays,
            failed: sample.failed,
            finished_cost: sample.finished_cost,
            jobs: counted.now.or(sample.jobs),
            peak_jobs: counted.peak,
            oldest_age: sample.oldest_age,
        }))
    }
}
