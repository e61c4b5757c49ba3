//! What systemd is told: that the program is ready, reads its configuration again, ends, and still works.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{Interval, MissedTickBehavior};
use tracing::debug;

/// It serves.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// It reads its configuration again, until it is [`ready`].
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => debug!(%error, "cannot read the clock for systemd"),
    }
}

/// It ends.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Does nothing where systemd did not start it.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        debug!(%error, "cannot notify systemd");
    }
}

/// Tells at each [`Watchdog::due`] that the program still works, where systemd asks for that.
pub struct Watchdog(Option<Interval>);

impl Watchdog {
    /// As the unit has it.
    pub fn new() -> Self {
        let limit =
            sd_notify::watchdog_enabled().filter(|limit| *limit >= Duration::from_millis(2));
        Watchdog(limit.map(|limit| {
            let mut ticks = tokio::time::interval(limit / 2);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        }))
    }

    /// When it is to be fed again.
    pub async fn due(&mut self) {
        match &mut self.0 {
            Some(ticks) => drop(ticks.tick().await),
            None => std::future::pending().await,
        }
    }

    /// It is not started again.
    pub fn feed(&self) {
        tell(&[NotifyState::Watchdog]);
    }
}
