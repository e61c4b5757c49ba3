//! Combines the delay source and the job source into one observation.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use plimsoll_core::{BlindWatch, Observation, Seconds, Sight, Silence, Waiting};
use plimsoll_signal::{
    jobs::{BacklogConfig, JobCount, Jobs, JobsConfig, OwnScrapes, Sockets, Wanted},
    source_error::SourceError,
    sources::{Source, SourceContext},
};
use tracing::{info, warn};

use crate::control_loop::ServiceConfig;

/// Result of an observation.
pub enum Observed {
    /// The baseline of the next one only.
    Base,
    /// Observation of a period.
    Period(Box<Observation>),
}

/// Sources of one service, opened on first use and reopened after a configuration change.
pub struct Observer {
    config: ServiceConfig,
    context: SourceContext,
    source: Option<Source>,
    jobs: Option<Jobs>,
    jobs_error: Option<String>,
    backlog: Option<Sockets>,
    backlog_error: Option<String>,
    /// Connections waiting to be accepted in the last period.
    waited: JobCount,
    own_scrapes: OwnScrapes,
    /// Number of jobs inside the application at the last successful scrape.
    taken_in: Option<f64>,
    blind: BlindWatch,
    sight: Option<Sight>,
    /// Origin of the times in `silence`.
    opened: Instant,
    silence: Silence,
    /// Time for which the source has not responded; `None` unless the last observation timed out.
    late: Option<Seconds>,
}

impl Observer {
    /// Sources that are not open yet.
    pub fn new(config: ServiceConfig, context: SourceContext) -> Self {
        Observer {
            config,
            context,
            source: None,
            jobs: None,
            jobs_error: None,
            backlog: None,
            backlog_error: None,
            waited: JobCount::default(),
            own_scrapes: OwnScrapes::default(),
            taken_in: None,
            blind: BlindWatch::default(),
            sight: None,
            opened: Instant::now(),
            silence: Silence::default(),
            late: None,
        }
    }

    /// Applies a new configuration. Sources that changed are closed; the others keep their counts.
    pub fn reconfigure(&mut self, config: ServiceConfig) {
        let jobs_changed = config.jobs != self.config.jobs;
        let is_scrape = config.source.scraped().is_some();
        // Its buckets were checked against the SLA.
        let sla_changed = is_scrape && config.settings.sla != self.config.settings.sla;
        if config.source != self.config.source || jobs_changed || sla_changed {
            self.source = None;
        }
        if config.source != self.config.source {
            self.silence = Silence::default();
            self.late = None;
        }
        if config.source != self.config.source || config.backlog != self.config.backlog {
            self.backlog = None;
            self.backlog_error = None;
            self.waited = JobCount::default();
            self.taken_in = None;
            self.blind = BlindWatch::default();
            self.sight = None;
        }
        if jobs_changed {
            self.jobs = None;
        }
        self.config = config;
    }

    /// Observes the period since the last call. An error of the job source is logged and counted, not returned.
    pub async fn observe(&mut self) -> Result<Observed, SourceError> {
        let source = match &mut self.source {
            Some(source) => source,
            none => none.insert(Source::open(
                &self.config.name,
                &self.config.source,
                self.config.settings.sla,
                self.config.jobs.in_scrape(),
                &self.context,
            )?),
        };
        let jobs = self
            .jobs
            .get_or_insert_with(|| Jobs::open(&self.config.jobs));
        if self.backlog.is_none() {
            let open = |config| open_backlog(config, &self.own_scrapes);
            self.backlog = self.config.backlog.as_ref().map(open);
        }
        self.own_scrapes.fetch_add(1, Ordering::Relaxed);
        let (seen, counted) = tokio::join!(source.observe(), jobs.count());
        if !matches!(&seen, Err(error) if error.left_waiting) {
            // Connections are accepted in order: a response means that no earlier one is waiting.
            match &seen {
                Err(error) if error.is_late() => self.own_scrapes.fetch_sub(1, Ordering::Relaxed),
                _ => self.own_scrapes.swap(0, Ordering::Relaxed),
            };
        }
        self.note_silence(&seen);
        self.look_at_backlog().await;
        let scraped = self.config.jobs.gauge_in_scrape().map(|it| &it.gauge);
        match (&seen, &counted, scraped) {
            (_, Err(error), _) => self.note_jobs(Some(error.to_string())),
            (_, Ok(_), None) => self.note_jobs(None),
            (Ok(Some(seen)), Ok(_), Some(gauge)) => {
                let missing = || format!("no series of gauge {gauge} in the source's scrape");
                self.note_jobs(seen.jobs.is_none().then(missing));
            }
            _ => {}
        }
        let Some(mut seen) = seen? else {
            return Ok(Observed::Base);
        };
        // Delays alone suffice for a step.
        let counted = counted.unwrap_or_default();
        if self.config.source.scraped().is_some() {
            self.add_waiting(&mut seen, counted);
        } else {
            seen.mean_jobs = counted.mean.or(seen.mean_jobs);
            seen.jobs = counted.now.or(seen.jobs);
            seen.peak_jobs = counted.peak.or(seen.peak_jobs);
        }
        Ok(Observed::Period(Box::new(seen)))
    }

    /// Adds the jobs that the application does not know of yet, connections in its listen backlog, and compares the
    /// delays that it reports with jobs over throughput.
    fn add_waiting(&mut self, seen: &mut Observation, counted: JobCount) {
        let has_gauge = matches!(self.config.jobs, JobsConfig::Prometheus(_));
        let gauge = counted.now.or(seen.jobs).filter(|_| has_gauge);
        let (sum, seconds) = (seen.delays.sum(), seen.period.get());
        let by_little = (seconds > 0.0).then(|| sum.get() / seconds);
        let backlog = self.waited;
        let taken_in = if has_gauge { gauge } else { by_little };
        // A gauge is a sample of one moment, which may miss a short queue.
        let mean_in = taken_in.map(|taken| taken.max(by_little.unwrap_or(0.0)));
        self.taken_in = taken_in;
        let beside = |waits: Option<f64>| Some(taken_in? + waits?);
        let (mean, now) = match gauge {
            Some(_) => (mean_in, gauge),
            None => (counted.mean, counted.now),
        };
        let ended = (seen.delays.count() + seen.failed) as f64;
        let is_counted = backlog.mean.is_some() || gauge.is_some();
        let sight = is_counted.then(|| {
            let waiting = Waiting {
                period: seen.period,
                delays: sum,
                ended,
                listen_backlog: backlog.mean.unwrap_or(0.0),
                gauge,
                oldest_age: seen.oldest_age,
            };
            self.blind.step(&waiting, self.config.settings.sla.delay)
        });
        self.note_sight(sight.flatten());
        let mean_in = mean_in.zip(backlog.mean);
        seen.mean_jobs = mean_in.map(|(taken, waits)| taken + waits).or(mean);
        seen.jobs = beside(backlog.now).or(now);
        seen.peak_jobs = beside(backlog.peak).or(counted.peak);
        seen.unseen = self.sight.and_then(|sight| sight.unseen);
    }

    /// Number of jobs in the node after a timeout of its source: connections waiting now, plus the jobs inside the
    /// application at its last response. `None` if the listen backlog is unknown.
    pub fn jobs_when_late(&self) -> Option<f64> {
        Some(self.waited.now? + self.taken_in.unwrap_or(0.0))
    }

    /// Time for which the source has not responded; `None` unless the last observation timed out.
    pub fn late(&self) -> Option<Seconds> {
        self.late
    }

    fn note_silence(&mut self, seen: &Result<Option<Observation>, SourceError>) {
        let now = self.opened.elapsed();
        self.late = None;
        match seen {
            Ok(_) => self.silence.answered(now),
            Err(error) if error.is_late() => self.late = Some(self.silence.length(now)),
            Err(_) => self.silence.failed(now),
        }
    }

    /// Mean number of connections waiting to be accepted, over the last period.
    pub fn listen_backlog(&self) -> Option<f64> {
        self.waited.mean
    }

    /// Comparison of the source's delays with jobs over throughput.
    pub fn sight(&self) -> Option<Sight> {
        self.sight
    }

    async fn look_at_backlog(&mut self) {
        let (Some(backlog), Some(config)) = (&mut self.backlog, &self.config.backlog) else {
            return;
        };
        let service = self.config.name.as_str();
        let error = match backlog.take().await {
            Ok(waited) => {
                self.waited = waited;
                if self.backlog_error.is_some() {
                    info!(%service, "the listen backlog is known again");
                }
                None
            }
            Err(error) => {
                self.waited = JobCount::default();
                if config.is_asked {
                    self.context.metrics.failed(service, "jobs");
                }
                // Log once per cause, not once per period.
                let message = error.to_string();
                if self.backlog_error.as_ref() != Some(&message) {
                    warn!(%service, kind = "jobs", "the listen backlog is unavailable, only jobs inside the application count: {message}");
                }
                Some(message)
            }
        };
        self.backlog_error = error;
    }

    fn note_sight(&mut self, sight: Option<Sight>) {
        let service = self.config.name.as_str();
        let unseen = |sight: Option<Sight>| sight.and_then(|sight| sight.unseen);
        match (unseen(self.sight), unseen(sight)) {
            (None, Some(unseen)) => {
                let ratio = sight.map_or(1.0, |sight| sight.ratio);
                warn!(%service, "the source is blind: requests take {ratio:.1} times as long as it reports, and wait {:.3} s unseen by it", unseen.get());
            }
            (Some(_), None) => info!(%service, "the source sees all delay again"),
            _ => {}
        }
        self.sight = sight;
    }

    /// Latest number of jobs, if known without I/O: no scrape and no database query.
    pub fn jobs_now(&self) -> Option<f64> {
        let waiting = self.backlog.as_ref().and_then(Sockets::newest);
        let in_node = |waiting: f64| Some(waiting + self.taken_in?);
        let counted = || self.jobs.as_ref().and_then(Jobs::newest);
        let known = waiting.and_then(in_node).or_else(counted);
        known.or_else(|| self.source.as_ref()?.jobs_now())
    }

    /// True if there is something new to observe.
    pub fn has_news(&self) -> bool {
        self.source.as_ref().is_some_and(Source::has_news)
    }

    fn note_jobs(&mut self, error: Option<String>) {
        let service = self.config.name.as_str();
        if let Some(message) = &error {
            self.context.metrics.failed(service, "jobs");
            // Log once per cause, not once per period.
            if self.jobs_error != error {
                warn!(%service, kind = "jobs", "jobs are unavailable, only delays count: {message}");
            }
        } else if self.jobs_error.is_some() {
            info!(%service, "jobs are known again");
        }
        self.jobs_error = error;
    }
}

fn open_backlog(config: &BacklogConfig, own: &OwnScrapes) -> Sockets {
    let own = match config.has_scrapes {
        true => Arc::clone(own),
        false => OwnScrapes::default(),
    };
    let wanted = Wanted::ListenBacklog(config.socket.clone());
    Sockets::watch(wanted, config.sample_interval, own)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{
        net::{TcpListener, TcpStream},
        time::Duration,
    };

    use prometheus::Registry;

    use super::super::service;
    use super::*;
    use plimsoll_exposition::Catalogue;
    use plimsoll_scatter::partition::{PartitionMetrics, Partitions};
    use plimsoll_signal::sources::SourceMetrics;

    fn observer(tables: &str) -> Observer {
        let section = format!("name = \"s\"\n[sla]\ndelay = \"1s\"\n{tables}");
        let section = toml::from_str(&section).unwrap();
        let service = service("service[0]", section, Duration::from_secs(1), false).unwrap();
        let registry = Registry::new();
        let mut catalogue = Catalogue::new(&registry);
        let partitions = Partitions::new(PartitionMetrics::new(&mut catalogue).unwrap());
        let context = SourceContext {
            metrics: SourceMetrics::new(&mut catalogue).unwrap(),
            observations: Arc::default(),
            partitions: Arc::new(partitions.unwrap()),
        };
        Observer::new(service, context)
    }

    #[tokio::test]
    async fn jobs_are_known_between_steps_where_that_costs_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _served = listener.accept().unwrap();
        let source =
            "[source]\nkind = \"prometheus\"\nurl = \"http://localhost:1/\"\nhistogram = \"h\"\n";
        let jobs = format!("[jobs]\nkind = \"sockets\"\nport = {port}\n");
        let mut sockets = observer(&format!("{source}{jobs}"));
        assert_eq!(sockets.jobs_now(), None, "nothing was opened yet");
        assert!(sockets.observe().await.is_err(), "the source is not there");
        let counted = async {
            while sockets.jobs_now() != Some(1.0) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), counted)
            .await
            .unwrap();

        // Reading a gauge would take another scrape.
        let gauge = "[jobs]\nkind = \"prometheus\"\ngauge = \"g\"\n";
        let mut scraped = observer(&format!("{source}{gauge}"));
        assert!(scraped.observe().await.is_err());
        assert_eq!(scraped.jobs_now(), None);
    }
}
