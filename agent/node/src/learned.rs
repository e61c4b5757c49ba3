//! Figures that load-line controllers learned about this node, kept across restarts in the state directory.
//!
//! Ages are from the monotonic clock; only the file has Unix times. A time in the future counts as now.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use plimsoll_core::{Learned, Seconds};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tracing::{error, info, warn};

use crate::{kept_file, state::unix_now};

/// Version of the file's layout.
const VERSION: u32 = 1;
/// Maximum age of figures: older ones no longer reflect the node.
const MAX_AGE: Duration = Duration::from_secs(30 * 86_400);
/// Minimum interval between two writes.
const SAVE_PAUSE: Duration = Duration::from_secs(5);
/// Relative change of a figure against the file up to which no write is needed.
const NOISE: f64 = 0.05;
/// Maximum interval between writes of figures that changed by less than [`NOISE`], to update their age.
const MAX_UNSAVED: Duration = Duration::from_secs(3600);

/// Content of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept<T> {
    version: u32,
    services: BTreeMap<String, T>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptService {
    /// Unix time in seconds.
    learned_at: f64,
    figures: Learned,
}

/// Learned figures of one service.
#[derive(Clone, Copy, Debug)]
struct Known {
    figures: Learned,
    age: Duration,
    /// Time at which the figures had this age.
    at: Instant,
    earlier_run: bool,
    /// Figures in the file, and the time of writing.
    saved: Option<(Learned, Instant)>,
}

impl Known {
    fn age(&self, now: Instant) -> Duration {
        self.age + now.saturating_duration_since(self.at)
    }

    fn is_worth_saving(&self, now: Instant) -> bool {
        self.saved.is_none_or(|(saved, at)| {
            differs(&self.figures, &saved)
                || self.figures != saved && now.saturating_duration_since(at) > MAX_UNSAVED
        })
    }
}

fn differs(a: &Learned, b: &Learned) -> bool {
    let figures = |of: &Learned| {
        let objective = of.unloaded_objective.map_or(0.0, Seconds::get);
        [
            of.rate,
            of.unloaded.get(),
            of.spread,
            of.mean_cost.get(),
            objective,
        ]
    };
    let mut pairs = figures(a).into_iter().zip(figures(b));
    pairs.any(|(a, b)| (a - b).abs() > NOISE * b)
}

/// Learned figures of one service, for display.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedView {
    /// Learned figures.
    pub figures: Learned,
    /// Seconds since the rate was learned.
    pub age_seconds: f64,
    /// True if the figures are from an earlier run of the agent.
    pub earlier_run: bool,
}

/// Learned figures of all services.
#[derive(Debug, Default)]
pub struct LearnedStore {
    known: Mutex<BTreeMap<String, Known>>,
    changed: Notify,
    file: Option<PathBuf>,
    saving: tokio::sync::Mutex<()>,
}

impl LearnedStore {
    /// Loads the figures of the last run from `state_directory`; none without a directory. Malformed or outdated
    /// figures are logged and ignored.
    pub fn load(state_directory: Option<&Path>) -> Self {
        let Some(directory) = state_directory else {
            info!(
                "agent.state_directory is not set: learned figures are lost when the agent stops"
            );
            return LearnedStore::default();
        };
        let file = directory.join("learned.json");
        let services = read(&file).unwrap_or_else(|error| {
            set_aside(&file, &error);
            BTreeMap::new()
        });
        let (unix, now) = (unix_now(), Instant::now());
        let mut known = BTreeMap::new();
        for (service, value) in services {
            match usable(value, unix) {
                Ok((figures, age)) => {
                    let entry = Known {
                        figures,
                        age,
                        at: now,
                        earlier_run: true,
                        saved: Some((figures, now)),
                    };
                    known.insert(service, entry);
                }
                Err(problem) => {
                    warn!(file = %file.display(), %service, "learned figures dropped: {problem:#}");
                }
            }
        }
        LearnedStore {
            known: Mutex::new(known),
            file: Some(file),
            ..LearnedStore::default()
        }
    }

    /// Figures from which a new controller of this service continues; `None` if there are none younger than 30 days.
    pub fn of(&self, service: &str) -> Option<Learned> {
        let known = *self.lock().get(service)?;
        (known.age(Instant::now()) <= MAX_AGE).then_some(known.figures)
    }

    /// Figures of a service with their age at `now`, for display.
    pub fn view(&self, service: &str, now: Instant) -> Option<LearnedView> {
        let known = *self.lock().get(service)?;
        Some(LearnedView {
            figures: known.figures,
            age_seconds: known.age(now).as_secs_f64(),
            earlier_run: known.earlier_run,
        })
    }

    /// Stores a controller's figures after a step. Implausible ones are ignored.
    pub fn note(&self, service: &str, learned: Option<Learned>, now: Instant) {
        let Some(figures) = learned.filter(Learned::is_sound) else {
            return;
        };
        let mut all = self.lock();
        let known = match all.get(service) {
            // The rate is unchanged, so it was not learned anew, nor was the mean cost that belongs to it.
            Some(known) if known.figures.rate == figures.rate => Known {
                figures: Learned {
                    mean_cost: known.figures.mean_cost,
                    ..figures
                },
                ..*known
            },
            known => Known {
                figures,
                age: Duration::ZERO,
                at: now,
                earlier_run: false,
                saved: known.and_then(|known| known.saved),
            },
        };
        all.insert(service.to_owned(), known);
        drop(all);
        if known.is_worth_saving(now) {
            self.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the file in the state directory if figures changed; does nothing without a directory.
    pub async fn save(&self) -> anyhow::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let _one_at_a_time = self.saving.lock().await;
        let (unix, now) = (unix_now(), Instant::now());
        let written = {
            let mut all = self.lock();
            // Keep services that are no longer configured until then: they may come back.
            all.retain(|_, known| known.age(now) <= MAX_AGE);
            all.clone()
        };
        let is_new = |known: &Known| known.saved.is_none_or(|(saved, _)| saved != known.figures);
        if !written.values().any(is_new) {
            return Ok(());
        }
        let entry = |(service, known): (&String, &Known)| {
            let kept = KeptService {
                learned_at: unix - known.age(now).as_secs_f64(),
                figures: known.figures,
            };
            (service.clone(), kept)
        };
        let kept = Kept {
            version: VERSION,
            services: written.iter().map(entry).collect(),
        };
        kept_file::write(file, &kept)
            .await
            .with_context(|| format!("cannot write {}", file.display()))?;
        for (service, known) in &mut *self.lock() {
            if let Some(written) = written.get(service) {
                known.saved = Some((written.figures, now));
            }
        }
        Ok(())
    }

    /// Saves after changes, with a pause between writes. Never returns; errors are logged.
    pub async fn keep_saved(&self) {
        let mut told = None;
        loop {
            self.changed.notified().await;
            while let Err(problem) = self.save().await {
                let problem = format!("{problem:#}");
                // Log once per cause, not once per attempt.
                if told.as_ref() != Some(&problem) {
                    error!("learned figures cannot be saved: {problem}");
                    told = Some(problem);
                }
                tokio::time::sleep(SAVE_PAUSE).await;
            }
            if told.take().is_some() {
                info!("learned figures are saved again");
            }
            tokio::time::sleep(SAVE_PAUSE).await;
        }
    }
}

fn read(file: &Path) -> anyhow::Result<BTreeMap<String, serde_json::Value>> {
    let Some(kept) = kept_file::read::<Kept<serde_json::Value>>(file)? else {
        return Ok(BTreeMap::new());
    };
    kept_file::check_version(kept.version, VERSION)?;
    Ok(kept.services)
}

fn set_aside(file: &Path, problem: &anyhow::Error) {
    let aside = file.with_extension("json.broken");
    let renamed = std::fs::rename(file, &aside);
    let file = file.display();
    match renamed {
        Ok(()) => {
            warn!(%file, aside = %aside.display(), "file set aside, starting without learned figures: {problem:#}");
        }
        Err(error) => {
            warn!(%file, "file ignored, starting without learned figures: {problem:#}; it cannot be set aside: {error}");
        }
    }
}

/// Figures of a service in the file and their age at the Unix time `unix`. Fails if they are malformed, implausible or
/// older than [`MAX_AGE`].
fn usable(value: serde_json::Value, unix: f64) -> anyhow::Result<(Learned, Duration)> {
    let kept: KeptService = serde_json::from_value(value)?;
    anyhow::ensure!(
        kept.figures.is_sound(),
        "implausible figures: {:?}",
        kept.figures
    );
    // A time in the future: one of the clocks was wrong, but it is unknown which.
    let age = (unix - kept.learned_at).max(0.0);
    anyhow::ensure!(
        age <= MAX_AGE.as_secs_f64(),
        "{:.0} days old, limit {}",
        age / 86_400.0,
        MAX_AGE.as_secs() / 86_400
    );
    Ok((kept.figures, Duration::from_secs_f64(age)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use plimsoll_core::Cost;
    use serde_json::{Value, json};

    use super::*;

    fn figures(rate: f64) -> Learned {
        Learned {
            rate,
            unloaded: Seconds(0.02),
            spread: 2.0,
            mean_cost: Cost(1.0),
            unloaded_objective: None,
            is_measured: true,
        }
    }

    fn put(directory: &Path, services: Value) {
        let text = json!({"version": 1, "services": services}).to_string();
        std::fs::write(directory.join("learned.json"), text).unwrap();
    }

    fn entry(learned_at: f64) -> Value {
        json!({"learned_at": learned_at, "figures": figures(50.0)})
    }

    #[tokio::test]
    async fn survives_a_restart_with_its_age() {
        let directory = tempfile::tempdir().unwrap();
        let began = Instant::now();
        let before = LearnedStore::load(Some(directory.path()));
        assert_eq!(before.of("stocks"), None);
        let an_hour_ago = began.checked_sub(Duration::from_secs(3600)).unwrap();
        before.note("stocks", Some(figures(50.0)), an_hour_ago);
        before.save().await.unwrap();

        let after = LearnedStore::load(Some(directory.path()));
        assert_eq!(after.of("stocks"), Some(figures(50.0)));
        let view = after.view("stocks", Instant::now()).unwrap();
        assert!(view.earlier_run);
        assert!((3600.0..3610.0).contains(&view.age_seconds), "{view:?}");
        // A controller that continues from it has neither learned the rate anew nor seen any cost yet.
        let mut same_rate = figures(50.0);
        (same_rate.unloaded, same_rate.mean_cost) = (Seconds(0.03), Cost(7.0));
        after.note("stocks", Some(same_rate), Instant::now());
        let view = after.view("stocks", Instant::now()).unwrap();
        assert!(view.earlier_run && view.age_seconds >= 3600.0, "{view:?}");
        assert_eq!(
            (view.figures.unloaded, view.figures.mean_cost),
            (Seconds(0.03), Cost(1.0))
        );
        after.note("stocks", Some(figures(51.0)), Instant::now());
        let view = after.view("stocks", Instant::now()).unwrap();
        assert!(!view.earlier_run && view.age_seconds < 60.0, "{view:?}");
    }

    #[tokio::test]
    async fn a_clock_that_is_behind_makes_no_age_negative_and_none_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        put(
            directory.path(),
            json!({"a": entry(unix_now() + 365.0 * 86_400.0)}),
        );
        let store = LearnedStore::load(Some(directory.path()));
        let age = store.view("a", Instant::now()).unwrap().age_seconds;
        assert!((0.0..60.0).contains(&age), "{age}");
        store.note("b", Some(figures(9.0)), Instant::now());
        store.save().await.unwrap();
        let text = std::fs::read_to_string(directory.path().join("learned.json")).unwrap();
        let kept: Value = serde_json::from_str(&text).unwrap();
        let learned_at = kept["services"]["a"]["learned_at"].as_f64().unwrap();
        assert!(learned_at <= unix_now(), "{learned_at}");
    }

    #[test]
    fn what_cannot_be_used_is_dropped_alone() {
        let directory = tempfile::tempdir().unwrap();
        let now = unix_now();
        let mut unknown = entry(now);
        unknown["figures"]["colour"] = json!(1);
        let mut unsound = entry(now);
        unsound["figures"]["rate"] = json!(-1.0);
        let mut huge = entry(now);
        huge["learned_at"] = json!(-1e308);
        put(
            directory.path(),
            json!({
                "fine": entry(now - 29.0 * 86_400.0), "old": entry(now - 31.0 * 86_400.0),
                "unknown": unknown, "unsound": unsound, "huge": huge, "text": "x",
                "half": {"learned_at": now},
            }),
        );
        let store = LearnedStore::load(Some(directory.path()));
        let kept: Vec<_> = store.lock().keys().cloned().collect();
        assert_eq!(kept, ["fine"]);
    }

    #[test]
    fn a_broken_file_is_set_aside() {
        for text in ["", "{", "{\"version\":99,\"services\":{}}", "\u{0}"] {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("learned.json");
            std::fs::write(&file, text).unwrap();
            let store = LearnedStore::load(Some(directory.path()));
            assert_eq!(store.of("a"), None, "{text:?}");
            let aside = directory.path().join("learned.json.broken");
            assert_eq!(std::fs::read_to_string(aside).unwrap(), text);
            assert!(!file.exists());
        }
    }

    #[tokio::test]
    async fn only_what_is_more_than_noise_is_worth_a_write() {
        let directory = tempfile::tempdir().unwrap();
        let store = LearnedStore::load(Some(directory.path()));
        let now = Instant::now();
        let is_due = || store.lock()["a"].is_worth_saving(now);
        store.note("a", Some(figures(100.0)), now);
        assert!(is_due());
        store.save().await.unwrap();
        assert!(!is_due());
        store.note("a", Some(figures(104.0)), now);
        assert!(!is_due(), "noise");
        assert!(store.lock()["a"].is_worth_saving(now + 2 * MAX_UNSAVED));
        store.note("a", Some(figures(106.0)), now);
        assert!(is_due());
        store.note("a", Some(figures(f64::NAN)), now);
        assert_eq!(store.of("a"), Some(figures(106.0)), "no figure");
    }

    #[tokio::test]
    async fn the_end_writes_what_was_noise() {
        let directory = tempfile::tempdir().unwrap();
        let store = LearnedStore::load(Some(directory.path()));
        store.note("a", Some(figures(100.0)), Instant::now());
        store.save().await.unwrap();
        store.note("a", Some(figures(101.0)), Instant::now());
        store.save().await.unwrap();
        let after = LearnedStore::load(Some(directory.path()));
        assert_eq!(after.of("a"), Some(figures(101.0)));
    }

    #[tokio::test]
    async fn a_service_that_is_gone_is_forgotten_when_it_is_too_old() {
        let directory = tempfile::tempdir().unwrap();
        let store = LearnedStore::load(Some(directory.path()));
        let now = Instant::now();
        store.note("gone", Some(figures(1.0)), now);
        store.note("here", Some(figures(2.0)), now);
        store.lock().get_mut("gone").unwrap().age = MAX_AGE + SAVE_PAUSE;
        assert_eq!(store.of("gone"), None);
        store.save().await.unwrap();
        let after = LearnedStore::load(Some(directory.path()));
        assert_eq!(
            (after.of("gone"), after.of("here")),
            (None, Some(figures(2.0)))
        );
    }

    #[tokio::test]
    async fn a_disk_that_takes_nothing_is_an_error_with_the_files_name() {
        // Writes go to a device that is always full.
        let directory = tempfile::tempdir().unwrap();
        let store = LearnedStore::load(Some(directory.path()));
        let beside = directory.path().join("learned.json.new");
        std::os::unix::fs::symlink("/dev/full", beside).unwrap();
        store.note("a", Some(figures(1.0)), Instant::now());
        let error = format!("{:#}", store.save().await.unwrap_err());
        assert!(error.contains("learned.json"), "{error}");
        assert!(error.contains("No space left"), "{error}");
    }
}
