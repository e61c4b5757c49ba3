//! Adaptive update periods of a service's temporal data. The service reports the number of accesses per item,
//! `plimsoll_core::freshness` decides the periods, and the feed reads them at `/v1/updates`.

mod metrics;
mod settings;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::body::Bytes;
use plimsoll_core::{
    Cost, Decision, Seconds,
    freshness::{MAX_ITEMS, Pressure, UpdatePeriods},
};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::source_error::SourceError;

pub use metrics::UpdateMetrics;
pub use settings::{UpdatesConfig, UpdatesSection, updates};

/// Error kinds of a failed fetch of the list.
pub const FAILURES: [&str; 6] = [
    "garbage",
    "status",
    "timeout",
    "too_large",
    "truncated",
    "unreachable",
];
/// Maximum size of the list: enough for [`MAX_ITEMS`] with names of usual length.
const MAX_BYTES: usize = 16 << 20;
/// Maximum age of the last list; after that the items return to their own periods.
const FORGET: Duration = Duration::from_secs(60);

/// The list of items as the service reports it. Unknown fields are ignored.
#[derive(Debug, Deserialize)]
struct Listing<'a> {
    #[serde(borrow)]
    items: Vec<Listed<'a>>,
    /// Updates of all items since the service's start.
    updates: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Listed<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    period_seconds: f64,
    /// Accesses since the service's start.
    accesses: f64,
}

/// Update periods in force, and the figures shown with them.
#[derive(Clone, Debug, Serialize)]
pub struct UpdatesState {
    /// Number of changes of the periods since this object was created.
    pub version: u64,
    /// Number of items watched.
    pub items: usize,
    /// Number of items whose period is longer than their own.
    pub relaxed: usize,
    /// Number of items rejected in the last list.
    pub refused: usize,
    /// Upper limit of every period, `P_max`, in seconds.
    pub longest: Seconds,
    /// Longest period in force, in seconds; 0 without items.
    pub longest_now: Seconds,
    /// Updates per second at the items' own periods.
    pub rate_own: f64,
    /// Updates per second at the periods in force.
    pub rate_wanted: f64,
    /// Error of the last fetch of the list; `None` if it succeeded.
    pub list_error: Option<String>,
    /// Quoted entity tag, unique to this agent's run and the version.
    #[serde(skip)]
    pub tag: Arc<str>,
    /// Response body in JSON.
    #[serde(skip)]
    pub body: Bytes,
    /// Response body as lines of text, for clients without JSON.
    #[serde(skip)]
    pub lines: Bytes,
}

/// The JSON response to a feed.
#[derive(Serialize)]
struct Wanted<'a> {
    service: &'a str,
    version: u64,
    longest: Seconds,
    /// Periods in seconds by item name, only of items whose period is not their own.
    periods: BTreeMap<&'a str, Seconds>,
}

/// Items of one service, their periods and the response to its feed.
#[derive(Debug)]
pub struct Updates {
    service: String,
    config: UpdatesConfig,
    metrics: UpdateMetrics,
    periods: UpdatePeriods,
    /// Accesses of each item in the last list.
    counted: HashMap<Box<str>, f64>,
    made: Option<u64>,
    forgotten: u64,
    refused: usize,
    listed_at: Instant,
    stepped_at: Instant,
    error: Option<String>,
    told: Option<String>,
    /// Random, since the versions of every run begin at 0.
    run: u32,
    version: u64,
    tag: Arc<str>,
    body: Bytes,
    lines: Bytes,
}

impl Updates {
    /// State without any list: all items have their own periods.
    pub fn new(service: &str, config: UpdatesConfig, metrics: UpdateMetrics, now: Instant) -> Self {
        let mut updates = Updates {
            service: service.to_owned(),
            periods: UpdatePeriods::new(config.settings),
            config,
            metrics,
            counted: HashMap::new(),
            made: None,
            forgotten: 0,
            refused: 0,
            listed_at: now,
            stepped_at: now,
            error: None,
            told: None,
            run: fastrand::u32(..),
            version: 0,
            tag: Arc::from(""),
            body: Bytes::new(),
            lines: Bytes::new(),
        };
        updates.say();
        updates
    }

    /// True if it was created with this configuration.
    pub fn is_for(&self, config: &UpdatesConfig) -> bool {
        self.config == *config
    }

    /// Fetches the list, unparsed. The timeout is that of the configuration.
    pub async fn fetch(&self) -> Result<Bytes, SourceError> {
        let url = &self.config.url;
        let (status, body) = plimsoll_net::get(url, self.config.timeout, MAX_BYTES).await?;
        if status != 200 {
            let problem = format!("{url}: status {status}, not 200");
            return Err(SourceError::new("status", problem));
        }
        Ok(body)
    }

    /// Ends a control period: takes in the list and decides the periods. `work` is the cost that the node finished per
    /// second in this period.
    pub fn step(
        &mut self,
        listed: Result<Bytes, SourceError>,
        decision: &Decision,
        work: Cost,
        now: Instant,
    ) {
        let passed = now.saturating_duration_since(self.stepped_at);
        self.stepped_at = now;
        let taken = listed.and_then(|body| self.take(&body));
        let is_known = taken.is_ok();
        self.note(taken.err());
        let version = self.periods.version();
        let is_changed = if is_known {
            self.listed_at = now;
            let pressure = Pressure::of(decision);
            self.periods.step(Seconds::from(passed), pressure, work);
            self.periods.version() != version
        } else {
            // Without counts, all items would look unused.
            now.saturating_duration_since(self.listed_at) > FORGET && self.forget()
        };
        let forgotten = self.periods.forgotten();
        let labels = [self.service.as_str()];
        let more = forgotten.saturating_sub(self.forgotten);
        self.metrics
            .forgotten
            .with_label_values(&labels)
            .inc_by(more);
        self.forgotten = forgotten;
        if is_changed {
            self.version += 1;
            self.say();
        }
    }

    /// Current periods and figures.
    pub fn state(&self) -> UpdatesState {
        let (wanted, own) = self.periods.updates_per_second();
        UpdatesState {
            version: self.version,
            items: self.periods.len(),
            relaxed: self.periods.relaxed_count(),
            refused: self.refused,
            longest: self.config.settings.longest,
            longest_now: self.periods.longest_period().unwrap_or(Seconds(0.0)),
            rate_own: own,
            rate_wanted: wanted,
            list_error: self.error.clone(),
            tag: Arc::clone(&self.tag),
            body: self.body.clone(),
            lines: self.lines.clone(),
        }
    }

    fn take(&mut self, body: &[u8]) -> Result<(), SourceError> {
        let Listing { items, updates } = serde_json::from_slice(body).map_err(|error| {
            SourceError::new("garbage", format!("{}: {error}", self.config.url))
        })?;
        let mut counted = HashMap::with_capacity(items.len());
        let (mut refused, mut first) = (0, None);
        for (index, item) in items.iter().enumerate() {
            let (name, accesses) = (item.name.as_ref(), item.accesses);
            let problem = if counted.contains_key(name) {
                Some("duplicate name".to_owned())
            } else if accesses < 0.0 {
                Some(format!("accesses must be 0 or more, is {accesses}"))
            } else {
                let declared = self.periods.declare(name, Seconds(item.period_seconds));
                declared.err().map(|error| error.to_string())
            };
            if let Some(problem) = problem {
                refused += 1;
                first.get_or_insert_with(|| format!("items[{index}]: {problem}"));
                continue;
            }
            if let Some(before) = self.counted.get(name) {
                // A lower count means that the service restarted.
                let more = if accesses < *before {
                    accesses
                } else {
                    accesses - before
                };
                self.periods.accessed(name, more);
            }
            counted.insert(Box::from(name), accesses);
        }
        self.periods.retain(|name| counted.contains_key(name));
        if counted.len() > MAX_ITEMS {
            let many = || format!("{} items, of which {MAX_ITEMS} are watched", counted.len());
            first.get_or_insert_with(many);
        }
        self.counted = counted;
        self.refused = refused;
        self.tell(first);
        if let (Some(now), Some(before)) = (updates, self.made) {
            let more = if now < before { now } else { now - before };
            let labels = [self.service.as_str()];
            self.metrics.made.with_label_values(&labels).inc_by(more);
        }
        self.made = updates;
        Ok(())
    }

    /// Returns all items to their own periods. Returns true if any period changed.
    fn forget(&mut self) -> bool {
        let was_relaxed = self.periods.relaxed_count() > 0;
        self.periods = UpdatePeriods::new(self.config.settings);
        self.counted = HashMap::new();
        was_relaxed
    }

    fn note(&mut self, error: Option<SourceError>) {
        let service = self.service.as_str();
        let message = error.as_ref().map(SourceError::to_string);
        if let Some(error) = error {
            let labels = [service, error.kind];
            self.metrics.failures.with_label_values(&labels).inc();
            // Log once per cause, not once per period.
            if self.error != message {
                warn!(%service, kind = error.kind, "no list of items, update periods stay for a while: {error}");
            }
        } else if self.error.is_some() {
            info!(%service, "the list of items is there again");
        }
        self.error = message;
    }

    fn tell(&mut self, problem: Option<String>) {
        if let Some(problem) = &problem
            && self.told.as_ref() != Some(problem)
        {
            let (service, refused) = (self.service.as_str(), self.refused);
            warn!(%service, refused, "not all items of the list are watched: {problem}");
        }
        self.told = problem;
    }

    fn say(&mut self) {
        let wanted = Wanted {
            service: &self.service,
            version: self.version,
            longest: self.config.settings.longest,
            periods: self.periods.relaxed().collect(),
        };
        let mut lines = format!("{} {}\n", wanted.version, wanted.longest.get());
        for (name, period) in &wanted.periods {
            lines.push_str(&format!("{name} {}\n", period.get()));
        }
        self.lines = lines.into();
        // Serialising strings and finite numbers cannot fail.
        self.body = serde_json::to_vec(&wanted).unwrap_or_default().into();
        self.tag = format!("\"{:08x}-{}\"", self.run, self.version).into();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use plimsoll_core::{
        BoundLimits, Law, NodeController, Objective, Reason, Rules, ServiceMode, Settings, Sla,
    };
    use prometheus::Registry;

    use super::*;
    use plimsoll_exposition::Catalogue;

    const CONFIG: &str = r#"
url = "http://127.0.0.1:1/accesses"
"#;
    fn control() -> Settings {
        Settings {
            sla: Sla {
                delay: Seconds(1.0),
                settling: Seconds(10.0),
                objective: Objective::Mean,
                set_point: 0.9,
            },
            limits: BoundLimits {
                min: Cost(1.0),
                max: Cost(1024.0),
                nominal: Some(Cost(64.0)),
            },
            law: Law::Fixed,
            mpl: false,
            mode: ServiceMode::Enforce,
            self_tuned: false,
            rules: Rules::default(),
        }
    }
    const LIST: &str = r#"{"items":[{"name":"cold","period_seconds":0.5,"accesses":3}]}"#;

    struct Setup {
        updates: Updates,
        decision: Decision,
        now: Instant,
    }

    impl Setup {
        /// Steps until an unread item has a longer period.
        fn relaxed() -> Self {
            let section = toml::from_str(CONFIG).unwrap();
            let settings = updates("service[0].updates", &section, Duration::from_secs(1)).unwrap();
            let metrics = UpdateMetrics::new(&mut Catalogue::new(&Registry::new())).unwrap();
            let now = Instant::now() + FORGET;
            let mut setup = Setup {
                updates: Updates::new("stocks", settings, metrics, now),
                decision: NodeController::new(control()).unwrap().decision(),
                now,
            };
            setup.decision.reason = Reason::AtMin;
            for _ in 0..5 {
                setup.step(true, Duration::from_secs(1));
            }
            assert_eq!(setup.updates.state().relaxed, 1);
            setup
        }

        fn step(&mut self, has_list: bool, passed: Duration) {
            self.now += passed;
            self.step_at(has_list, self.now);
        }

        fn step_at(&mut self, has_list: bool, now: Instant) {
            let gone = || SourceError::new("unreachable", "gone");
            let list = has_list.then(|| Bytes::from(LIST)).ok_or_else(gone);
            self.updates.step(list, &self.decision, Cost(1e6), now);
        }
    }

    #[test]
    fn without_a_list_for_long_all_items_have_their_own_periods() {
        let mut setup = Setup::relaxed();
        let before = setup.updates.state();
        setup.step(false, FORGET);
        let held = setup.updates.state();
        assert_eq!((held.relaxed, &held.tag), (1, &before.tag));
        assert_eq!(held.list_error.as_deref(), Some("gone"));
        setup.step(false, Duration::from_secs(1));
        let forgot = setup.updates.state();
        assert_eq!((forgot.items, forgot.relaxed), (0, 0));
        assert!(forgot.version > before.version && forgot.tag != before.tag);
        assert!(forgot.body.ends_with(b"\"periods\":{}}"));
        // Logged once, not in every period.
        setup.step(false, Duration::from_secs(1));
        assert_eq!(setup.updates.state().version, forgot.version);
        setup.step(true, Duration::from_secs(1));
        assert_eq!(setup.updates.state().items, 1);
    }

    #[test]
    fn a_clock_that_goes_back_or_far_ahead_changes_no_period() {
        let mut setup = Setup::relaxed();
        let before = setup.updates.state().body;
        setup.decision.reason = Reason::SourceLost;
        setup.step_at(true, setup.now - Duration::from_secs(30));
        setup.step(true, Duration::from_secs(86_400));
        setup.step_at(false, setup.now - Duration::from_secs(30));
        assert_eq!(setup.updates.state().body, before);
    }
}
