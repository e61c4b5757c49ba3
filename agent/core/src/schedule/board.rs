//! When what is known of the nodes' load comes to act: the update algorithms of the thesis (section 3.10).

use super::NodeNews;

/// Answers make a scheduler choose anew no more often than this, in seconds: it looks at all nodes then.
const BETWEEN_ACCESSES: f64 = 0.02;

/// Which update algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateAlgorithm {
    /// Of all nodes together, once a phase.
    #[default]
    Periodic,
    /// Of each node once a phase, one after the other.
    Continuous,
    /// With each answer, of the node that gave it; after a phase without one as it is heard.
    OnAccess,
}

/// How load is learned.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NewsSettings {
    /// Which update algorithm.
    pub update: UpdateAlgorithm,
    /// `T` of the thesis, in seconds; 0: whenever it is heard.
    pub phase: f64,
}

/// The thesis' bulletin board, as one dispatcher sees it.
#[derive(Clone, Debug)]
pub struct Board {
    settings: NewsSettings,
    posted: Vec<NodeNews>,
    /// Of all nodes, and of each.
    due: f64,
    due_at: Vec<f64>,
    accessed_at: f64,
}

/// The next time, in step with the one before where that can be.
fn next(due: f64, now: f64, phase: f64) -> f64 {
    let next = due + phase;
    if next > now { next } else { now + phase }
}

impl Board {
    /// With nothing on it.
    pub fn new(settings: NewsSettings) -> Self {
        Board {
            settings,
            posted: Vec::new(),
            due: f64::NEG_INFINITY,
            due_at: Vec::new(),
            accessed_at: f64::NEG_INFINITY,
        }
    }

    /// What schedulers act on.
    pub fn posted(&self) -> &[NodeNews] {
        &self.posted
    }

    /// What is known of all nodes at `now`, in seconds. Returns whether schedulers are to be told. That a node comes
    /// or goes is posted at once.
    pub fn heard(&mut self, now: f64, news: &[NodeNews]) -> bool {
        let mut is_changed = self.posted.len() != news.len();
        self.posted.truncate(news.len());
        self.due_at.truncate(news.len());
        let count = news.len() as f64;
        let NewsSettings { update, phase } = self.settings;
        let all = update == UpdateAlgorithm::Periodic && now >= self.due;
        if all {
            self.due = next(self.due, now, phase);
        }
        for (place, heard) in news.iter().enumerate() {
            let (Some(posted), Some(due)) =
                (self.posted.get_mut(place), self.due_at.get_mut(place))
            else {
                self.posted.push(*heard);
                // Spread evenly over the first phase.
                self.due_at.push(now + phase * (place as f64 + 1.0) / count);
                continue;
            };
            let is_due = match update {
                UpdateAlgorithm::Periodic => all,
                UpdateAlgorithm::Continuous | UpdateAlgorithm::OnAccess => now >= *due,
            };
            if is_due && update == UpdateAlgorithm::Continuous {
                *due = next(*due, now, phase);
            }
            if is_due || (posted.weight == 0) != (heard.weight == 0) {
                *posted = *heard;
                is_changed = true;
            }
        }
        is_changed
    }

    /// A node's answer told of its load; what it did not tell stays. Returns whether schedulers are to be told.
    pub fn accessed(
        &mut self,
        now: f64,
        place: usize,
        jobs: Option<f64>,
        load: Option<f64>,
    ) -> bool {
        let is_told = jobs.is_some() || load.is_some();
        if self.settings.update != UpdateAlgorithm::OnAccess || !is_told {
            return false;
        }
        let (Some(posted), Some(due)) = (self.posted.get_mut(place), self.due_at.get_mut(place))
        else {
            return false;
        };
        posted.jobs = jobs.unwrap_or(posted.jobs);
        posted.load = load.unwrap_or(posted.load);
        *due = now + self.settings.phase;
        let is_time = now - self.accessed_at >= BETWEEN_ACCESSES;
        if is_time {
            self.accessed_at = now;
        }
        is_time
    }
}
