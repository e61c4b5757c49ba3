//! Notices that the process was stopped (SIGSTOP, a frozen container) for so long that its shares may have lapsed.

/// Silence after which the process was stopped, in seconds. Several times the interval between beats: a busy machine
/// delays them.
const MAX_SILENCE: f64 = 0.5;

/// When the dispatcher last ran, and when it last asked for the shares that it has. Times are of a clock that also runs
/// while the process is stopped, in seconds.
///
/// Shares lapse a lease after they were asked for. While the process runs, it continues with them nevertheless: most
/// likely Redis is unavailable, and nobody else can be granted them. While it was stopped, others could.
#[derive(Clone, Copy, Debug)]
pub struct Pulse {
    beat_at: f64,
    asked_at: f64,
    /// Whether the shares may have lapsed, and no others were granted since.
    has_lapsed: bool,
}

impl Default for Pulse {
    fn default() -> Self {
        Pulse {
            beat_at: f64::INFINITY,
            asked_at: f64::INFINITY,
            has_lapsed: false,
        }
    }
}

impl Pulse {
    /// Records that the process runs; to be called several times a second, and before shares are used or taken. If it
    /// was stopped and a lease has passed since it asked for its shares, returns when it had run last.
    pub fn beat(&mut self, now: f64, lease: f64) -> Option<f64> {
        let before = self.beat_at;
        self.beat_at = now;
        if now - before > MAX_SILENCE && now - self.asked_at >= lease {
            self.has_lapsed = true;
            return Some(before);
        }
        None
    }

    /// Records that shares were granted, in answer to a report of the time `asked_at`. Returns false if they are not to
    /// be taken: they were granted before the process was stopped, and may have lapsed as well.
    pub fn granted(&mut self, asked_at: f64, now: f64, lease: f64) -> bool {
        if self.has_lapsed && now - asked_at >= lease {
            return false;
        }
        self.asked_at = asked_at;
        self.has_lapsed = false;
        true
    }
}
