//! Figures of each service over the last ten minutes, for people: in steps of fixed length, whatever the period.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::state::ServiceState;

/// Length of a step.
pub const STEP: Duration = Duration::from_secs(5);
/// Number of steps that are kept: ten minutes.
pub const STEPS: usize = 120;

/// Figures of one step. Of the periods that end in it, the maximum counts for measurements and the last for decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Objective measured on the finished requests, in seconds.
    pub delay: Option<f64>,
    /// Jobs in the node.
    pub jobs: Option<f64>,
    /// Cost that ended per second, successful or failed.
    pub ended: Option<f64>,
    /// Cost per second that proxies would have refused; only in mode `observe`.
    pub would_refuse: Option<f64>,
    /// Bound in jobs.
    pub bound_jobs: f64,
    /// Weight in percent of the configured weight.
    pub weight_percent: u16,
}

impl Point {
    fn and(self, later: Point) -> Point {
        let most = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        Point {
            delay: most(self.delay, later.delay),
            jobs: most(self.jobs, later.jobs),
            ended: most(self.ended, later.ended),
            would_refuse: most(self.would_refuse, later.would_refuse),
            ..later
        }
    }
}

/// The last [`STEPS`] steps. Times count from any one moment.
#[derive(Clone, Debug)]
pub struct History {
    points: [Option<Point>; STEPS],
    /// Number of the step of the last point.
    newest: u64,
}

impl Default for History {
    fn default() -> Self {
        History {
            points: [None; STEPS],
            newest: 0,
        }
    }
}

impl History {
    /// Adds the figures of a period that ended at `at`.
    pub fn note(&mut self, at: Duration, point: Point) {
        let step = step_of(at).max(self.newest);
        let skipped = (step - self.newest).min(STEPS as u64);
        for passed in 0..skipped {
            self.points[place_of(step - passed)] = None;
        }
        self.newest = step;
        let kept = &mut self.points[place_of(step)];
        *kept = Some(kept.map_or(point, |earlier| earlier.and(point)));
    }

    /// The steps up to the one of `at`, oldest first; `None` where no period ended.
    pub fn points(&self, at: Duration) -> impl Iterator<Item = Option<Point>> {
        let end = step_of(at) + 1;
        (0..STEPS as u64).map(move |place| {
            let step = (end + place).checked_sub(STEPS as u64)?;
            let is_kept = step <= self.newest && self.newest - step < STEPS as u64;
            self.points[place_of(step)].filter(|_| is_kept)
        })
    }
}

fn step_of(at: Duration) -> u64 {
    at.as_secs() / STEP.as_secs()
}

fn place_of(step: u64) -> usize {
    (step % STEPS as u64) as usize
}

/// Histories by service name.
#[derive(Debug)]
pub struct Histories {
    began: Instant,
    kept: Mutex<BTreeMap<String, History>>,
}

impl Default for Histories {
    fn default() -> Self {
        Histories {
            began: Instant::now(),
            kept: Mutex::default(),
        }
    }
}

impl Histories {
    fn locked<T>(&self, look: impl FnOnce(&mut BTreeMap<String, History>) -> T) -> T {
        look(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a service's last period.
    pub fn note(&self, state: &ServiceState) {
        let at = state.stepped.saturating_duration_since(self.began);
        let point = point(state);
        self.locked(|all| {
            // Only a new service needs a name of its own.
            if let Some(history) = all.get_mut(&state.service) {
                history.note(at, point);
            } else {
                let history = all.entry(state.service.clone()).or_default();
                history.note(at, point);
            }
        });
    }

    /// The steps up to now, oldest first; empty if the service is unknown.
    pub fn points(&self, service: &str) -> Vec<Option<Point>> {
        let at = self.began.elapsed();
        self.locked(|all| {
            let history = all.get(service);
            history.map_or_else(Vec::new, |history| history.points(at).collect())
        })
    }

    /// Drops a removed service.
    pub fn forget(&self, service: &str) {
        self.locked(|all| all.remove(service));
    }
}

/// What the source said before it failed is not of this period.
fn point(state: &ServiceState) -> Point {
    Point {
        delay: state.decision.measured_delay.map(|delay| delay.get()),
        jobs: state.jobs.filter(|_| state.observed_seconds.is_some()),
        ended: state.flow.map(|flow| flow.ended),
        would_refuse: state.would_refuse,
        bound_jobs: state.decision.bound_jobs,
        weight_percent: state.weight_percent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(jobs: f64) -> Point {
        Point {
            jobs: Some(jobs),
            ..Point::default()
        }
    }

    fn at(steps: u32) -> Duration {
        STEP * steps
    }

    fn shown(history: &History, steps: u32) -> Vec<Option<f64>> {
        let points = history.points(at(steps));
        points.map(|point| point.and_then(|it| it.jobs)).collect()
    }

    #[test]
    fn a_step_has_the_most_that_was_measured_and_the_last_decision() {
        let mut history = History::default();
        let delays = [Some(0.2), Some(0.9), None];
        for (place, delay) in delays.into_iter().enumerate() {
            let point = Point {
                delay,
                bound_jobs: 40.0 - place as f64,
                weight_percent: 50 - place as u16,
                ..Point::default()
            };
            history.note(Duration::from_secs(place as u64), point);
        }
        let last = history.points(at(0)).last().flatten();
        let expected = Point {
            delay: Some(0.9),
            bound_jobs: 38.0,
            weight_percent: 48,
            ..Point::default()
        };
        assert_eq!(last, Some(expected));
    }

    #[test]
    fn ten_minutes_are_kept_oldest_first() {
        let mut history = History::default();
        for step in 0..300 {
            history.note(at(step), jobs(step.into()));
        }
        let all = shown(&history, 299);
        assert_eq!(STEP * STEPS as u32, Duration::from_secs(600));
        let expected: Vec<_> = (180..300).map(|step| Some(f64::from(step))).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn time_without_a_period_is_a_gap() {
        let mut history = History::default();
        history.note(at(1), jobs(1.0));
        history.note(at(4), jobs(4.0));
        let all = shown(&history, 5);
        assert_eq!(all.len(), STEPS);
        let expected = [None, Some(1.0), None, None, Some(4.0), None];
        assert_eq!(all[STEPS - 6..], expected);
        assert!(all[..STEPS - 6].iter().all(Option::is_none));

        // Longer than is kept: nothing of before is shown as if it were of now.
        history.note(at(1000), jobs(9.0));
        let all = shown(&history, 1001);
        assert_eq!(all.iter().flatten().count(), 1);
        assert_eq!(all[STEPS - 2], Some(9.0));
        let gone = shown(&history, 1000 + STEPS as u32);
        assert!(gone.iter().all(Option::is_none));
    }

    #[test]
    fn a_service_takes_little_memory() {
        assert!(size_of::<History>() < 16 << 10);
    }
}
