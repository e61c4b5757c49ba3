//! Time for which a source has not answered.

use std::time::Duration;

use crate::Seconds;

/// Time since a source's last answer, over questions that were given up and asked again. How long a single question
/// waits says little: the agent may be less patient than the clients of the service. A source that has never answered
/// may just need longer than the agent waits, so there is no silence before its first answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silence {
    since: Option<Duration>,
}

impl Silence {
    /// An answer came at `at`. Times count from any one moment.
    pub fn answered(&mut self, at: Duration) {
        self.since = Some(at);
    }

    /// The source was unreachable or invalid at `at`: no answer is on its way.
    pub fn failed(&mut self, at: Duration) {
        self.since = self.since.map(|_| at);
    }

    /// Length of the silence at `at`, when a question was given up; 0 before the first answer.
    pub fn length(&self, at: Duration) -> Seconds {
        Seconds::from(
            self.since
                .map_or(Duration::ZERO, |since| at.saturating_sub(since)),
        )
    }
}
