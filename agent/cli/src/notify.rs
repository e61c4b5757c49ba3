//! Notifications to systemd: ready, reloading, stopping, watchdog.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{Interval, MissedTickBehavior};
use tracing::debug;

/// The program is ready to serve.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The program reloads its configuration; ends with [`ready`].
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => debug!(%error, "cannot read the clock for systemd"),
    }
}

/// The program is stopping.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Does nothing if systemd did not start the program.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        debug!(%error, "cannot notify systemd");
    }
}

/// Feeds systemd's watchdog, if the unit has one, at each [`Watchdog::due`].
pub struct Watchdog(Option<Interval>);

impl Watchdog {
    /// Takes the interval from the unit's settings.
    pub fn new() -> Self {
        let limit =
            sd_notify::watchdog_enabled().filter(|limit| *limit >= Duration::from_millis(2));
        Watchdog(limit.map(|limit| {
            let mut ticks = tokio::time::interval(limit / 2);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        }))
    }

    /// Waits until the watchdog is due to be fed.
    pub async fn due(&mut self) {
        match &mut self.0 {
            Some(ticks) => drop(ticks.tick().await),
            None => std::future::pending().await,
        }
    }

    /// Feeds the watchdog, so that systemd does not restart the program.
    pub fn feed(&self) {
        tell(&[NotifyState::Watchdog]);
    }
}
