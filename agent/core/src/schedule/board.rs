//! Update algorithms of the thesis (section 3.10): when news of the nodes' load takes effect.

use super::NodeNews;

/// Minimum time between two updates of a scheduler by responses, in seconds, as each examines all nodes.
const BETWEEN_ACCESSES: f64 = 0.02;

/// Update algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateAlgorithm {
    /// All nodes together, once a phase.
    #[default]
    Periodic,
    /// Each node once a phase, one after the other.
    Continuous,
    /// A node with each of its responses; after a phase without one, with the next snapshot.
    OnAccess,
}

/// Settings of the update algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NewsSettings {
    /// The algorithm.
    pub update: UpdateAlgorithm,
    /// `T` of the thesis, in seconds; 0 to apply every snapshot.
    pub phase: f64,
}

/// The thesis' bulletin board, one copy per dispatcher.
#[derive(Clone, Debug)]
pub struct Board {
    settings: NewsSettings,
    posted: Vec<NodeNews>,
    /// Time of the next update of all nodes, in seconds; `due_at` is that of each.
    due: f64,
    due_at: Vec<f64>,
    accessed_at: f64,
}

/// Time of the next update: one phase after the last due one or, if that has passed, after `now`.
fn next(due: f64, now: f64, phase: f64) -> f64 {
    let next = due + phase;
    if next > now { next } else { now + phase }
}

impl Board {
    /// Creates an empty board.
    pub fn new(settings: NewsSettings) -> Self {
        Board {
            settings,
            posted: Vec::new(),
            due: f64::NEG_INFINITY,
            due_at: Vec::new(),
            accessed_at: f64::NEG_INFINITY,
        }
    }

    /// News in effect.
    pub fn posted(&self) -> &[NodeNews] {
        &self.posted
    }

    /// Processes a snapshot of all nodes at `now`, in seconds. Returns whether the news in effect has changed. Nodes
    /// that join or leave are posted at once.
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
                // Spread the first updates evenly over a phase.
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

    /// Applies the jobs or load that a node's response stated; `None` keeps the known value. Returns whether schedulers
    /// should be updated.
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
