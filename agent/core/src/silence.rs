//! How long a source has left its questions unanswered.

use std::time::Duration;

use crate::Seconds;

/// Counts from the last answer on, over questions that are given up and asked again. How long a single one is waited
/// for says little: the agent may be less patient than the clients of the service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silence {
    since: Option<Duration>,
}

impl Silence {
    /// There was an answer at `at`, or the certainty that none is on its way. Times count from any one moment.
    pub fn end(&mut self, at: Duration) {
        self.since = Some(at);
    }

    /// A question of `asked_at` was given up at `at`: how long there has been no answer by then.
    pub fn go_on(&mut self, asked_at: Duration, at: Duration) -> Seconds {
        let since = *self.since.get_or_insert(asked_at);
        Seconds::from(at.saturating_sub(since))
    }
}
