//! Composes an agent-check answer, as a pure function.
//!
//! HAProxy's grammar: `[ready|drain] up|down [N%] [maxconn:N] # text`. The `#` needs a space before it, otherwise the
//! preceding word is unknown; the percentage must be an integer; `maxconn:0` would mean unlimited.

use std::fmt::Write;

use plimsoll_core::{Objective, Seconds, share_of_jobs};
use plimsoll_node::{
    control_loop::SendWords,
    overrides::{ForcedHealth, ServiceOverride},
    state::ServiceState,
};
use plimsoll_signal::health_probe::Health;

use super::proxies::Share;

/// Maximum length of the text after `#`, in characters.
const MAX_TEXT: usize = 160;

/// An empty line, which is valid and changes nothing.
pub const NO_CHANGE: &str = "\n";

/// Word for the server's administrative state. HAProxy keeps the state until told otherwise, and `ready` also cancels
/// an operator's own drain, so usually no word is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admin {
    /// No word: keeps the state.
    Keep,
    /// `drain`: no new work.
    Drain,
    /// `ready`: ends a drain.
    Ready,
}

/// Value of the `answer` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Up, without an administrative word.
    Up,
    /// Down.
    Down,
    /// `drain`.
    Drain,
    /// `ready`.
    Ready,
    /// Without effect, in observe mode.
    Observe,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 5] = [
        Kind::Up,
        Kind::Down,
        Kind::Drain,
        Kind::Ready,
        Kind::Observe,
    ];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Up => "up",
            Kind::Down => "down",
            Kind::Drain => "drain",
            Kind::Ready => "ready",
            Kind::Observe => "observe",
        }
    }
}

/// Input of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Last decision and health.
    pub state: &'a ServiceState,
    /// Overrides by an operator.
    pub set: ServiceOverride,
    /// Words to send.
    pub send: SendWords,
    /// Share of this proxy among those that poll.
    pub share: Share,
    /// Administrative word to send.
    pub admin: Admin,
}

/// An answer for observe mode, which only describes the one it would be, and its kind. HAProxy treats an answer with
/// nothing but a text as "no status change", and then does not show the text; `ready` changes only the drain that it
/// ends.
pub fn compose_observing(facts: &Facts<'_>) -> (String, Kind) {
    let (would_be, _) = compose(&Facts {
        admin: Admin::Keep,
        ..*facts
    });
    let (word, kind) = match facts.admin {
        Admin::Ready => ("ready ", Kind::Ready),
        Admin::Keep | Admin::Drain => ("", Kind::Observe),
    };
    let mut line = format!("{word}# observe: would be ");
    push_text(&mut line, would_be.trim_end());
    line.push('\n');
    (line, kind)
}

/// The answer with its line end, and its kind.
pub fn compose(facts: &Facts<'_>) -> (String, Kind) {
    let Facts {
        state,
        set,
        send,
        share,
        admin,
    } = *facts;
    let up = match set.health {
        Some(ForcedHealth::Up) => true,
        Some(ForcedHealth::Down) => false,
        None => state.health == Health::Up,
    };
    let mut line = String::with_capacity(96);
    line.push_str(match admin {
        Admin::Keep => "",
        Admin::Drain => "drain ",
        Admin::Ready => "ready ",
    });
    line.push_str(if up { "up" } else { "down" });
    // Writing to a String cannot fail.
    if up {
        if send.weight() {
            let percent = set
                .weight_percent
                .unwrap_or(state.weight_percent)
                .clamp(1, 256);
            let _ = write!(line, " {percent}%");
        }
        if send.maxconn() {
            let jobs = share_of_jobs(state.decision.bound_jobs, share.proxies, share.index);
            let _ = write!(line, " maxconn:{jobs}");
        }
    }
    line.push_str(" # ");
    push_text(&mut line, &text(state, set, up));
    line.push('\n');
    let kind = match (admin, up) {
        (Admin::Drain, _) => Kind::Drain,
        (Admin::Ready, _) => Kind::Ready,
        (Admin::Keep, true) => Kind::Up,
        (Admin::Keep, false) => Kind::Down,
    };
    (line, kind)
}

fn text(state: &ServiceState, set: ServiceOverride, up: bool) -> String {
    if !up {
        return match (set.health, &state.health_detail) {
            (Some(_), _) => "down by operator".to_owned(),
            (None, Some(detail)) => detail.clone(),
            (None, None) => "health probe fails".to_owned(),
        };
    }
    let sla = state.settings.sla;
    let mut text = String::with_capacity(48);
    let _ = match sla.objective {
        Objective::Mean => write!(text, "mean"),
        Objective::Quantile(q) => write!(text, "p{}", (q * 1e5).round() / 1e3),
    };
    let _ = match state.decision.measured_delay {
        Some(delay) => write!(text, " {} of {}", Span(delay), Span(sla.delay)),
        None => write!(text, " unknown of {}", Span(sla.delay)),
    };
    let _ = write!(text, ", {}", state.decision.reason);
    if set.weight_percent.is_some() {
        text.push_str(", weight by operator");
    }
    text
}

/// Appends text up to the first control character, where HAProxy would cut it. HAProxy shows it on its stats page.
fn push_text(line: &mut String, text: &str) {
    line.extend(
        text.chars()
            .take(MAX_TEXT)
            .map(|c| if c.is_ascii_graphic() { c } else { ' ' }),
    );
}

/// Formats seconds with three significant digits.
struct Span(Seconds);

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0.get();
        let (value, unit) = if seconds < 0.1 {
            (seconds * 1e3, "ms")
        } else {
            (seconds, "s")
        };
        let decimals = if value >= 100.0 {
            0
        } else if value >= 10.0 {
            1
        } else {
            2
        };
        let text = format!("{value:.decimals$}");
        let text = if decimals > 0 {
            text.trim_end_matches('0').trim_end_matches('.')
        } else {
            &text
        };
        write!(f, "{text}{unit}")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use plimsoll_core::{
        BoundLimits, Cost, Decision, Law, Reason, Rules, ServiceMode, Settings, Sla,
    };

    use super::*;
    use plimsoll_signal::host_load::HostLoads;

    pub(crate) fn state(bound_jobs: f64, weight_percent: u16) -> ServiceState {
        let cost = Cost(bound_jobs);
        ServiceState {
            service: "stocks".into(),
            address: None,
            settings: Settings {
                sla: Sla {
                    delay: Seconds(1.0),
                    settling: Seconds(10.0),
                    objective: Objective::Quantile(0.95),
                    set_point: 0.9,
                },
                limits: BoundLimits {
                    min: Cost(1.0),
                    max: Cost(1e5),
                    nominal: Some(Cost(64.0)),
                },
                law: Law::Fixed,
                mpl: false,
                mode: ServiceMode::Enforce,
                self_tuned: false,
                rules: Rules::default(),
            },
            decision: Decision {
                bound: cost,
                previous: cost,
                reason: Reason::OverSla,
                error: None,
                measured_delay: Some(Seconds(0.9312)),
                control_delay: None,
                mean_cost: Cost(1.0),
                bound_jobs,
                capacity: None,
                recent_peak: cost,
                gains: None,
            },
            weight_percent,
            capacity: None,
            weight_bound: Cost(bound_jobs),
            flow: None,
            would_refuse: None,
            observed_seconds: None,
            health: Health::Up,
            health_detail: None,
            probe: plimsoll_signal::health_probe::Verdict::up(),
            role: None,
            finished: 0,
            failed: 0,
            delay: None,
            jobs: None,
            backlog: None,
            stepped_at: 0.0,
            stepped: std::time::Instant::now(),
            observed_at: None,
            host_load: HostLoads::default(),
            updates: None,
            load: 0.0,
            source_error: None,
            listen_backlog: None,
            sight: None,
        }
    }

    fn facts(state: &ServiceState) -> Facts<'_> {
        Facts {
            state,
            set: ServiceOverride::default(),
            send: SendWords::Both,
            share: Share {
                proxies: 1,
                index: 0,
            },
            admin: Admin::Keep,
        }
    }

    #[test]
    fn a_whole_line_with_its_reason() {
        let state = state(18.7, 63);
        let (line, kind) = compose(&facts(&state));
        assert_eq!(line, "up 63% maxconn:18 # p95 0.93s of 1s, over_sla\n");
        assert_eq!(kind, Kind::Up);
    }

    #[test]
    fn only_the_words_asked_for() {
        let state = state(18.0, 63);
        let weight = Facts {
            send: SendWords::Weight,
            ..facts(&state)
        };
        assert!(compose(&weight).0.starts_with("up 63% # "));
        let maxconn = Facts {
            send: SendWords::Maxconn,
            ..facts(&state)
        };
        assert!(compose(&maxconn).0.starts_with("up maxconn:18 # "));
    }

    #[test]
    fn the_bound_is_split_and_never_zero() {
        let state = state(7.0, 100);
        let share = |index| {
            let split = Facts {
                share: Share { proxies: 3, index },
                ..facts(&state)
            };
            compose(&split).0.split(' ').nth(2).map(str::to_owned)
        };
        assert_eq!(share(0).as_deref(), Some("maxconn:3"));
        assert_eq!(share(1).as_deref(), Some("maxconn:2"));
        assert_eq!(share(2).as_deref(), Some("maxconn:2"));
        let split = Facts {
            share: Share {
                proxies: 9,
                index: 8,
            },
            ..facts(&state)
        };
        assert!(compose(&split).0.contains(" maxconn:1 "));
    }

    #[test]
    fn absurd_values_still_give_a_valid_line() {
        let mut state = state(f64::NAN, 0);
        state.decision.measured_delay = None;
        assert_eq!(
            compose(&facts(&state)).0,
            "up 1% maxconn:1 # p95 unknown of 1s, over_sla\n"
        );
        state.decision.bound_jobs = f64::INFINITY;
        state.weight_percent = 999;
        assert!(compose(&facts(&state)).0.starts_with("up 256% maxconn:"));
    }

    #[test]
    fn down_has_its_reason_on_one_line() {
        let mut state = state(18.0, 63);
        state.health = Health::Down;
        state.health_detail = Some("connect: refused\nmaxconn:0 \u{7f}é".into());
        let (line, kind) = compose(&facts(&state));
        assert_eq!(line, "down # connect: refused maxconn:0   \n");
        assert_eq!(kind, Kind::Down);
        state.health_detail = Some("x".repeat(5000));
        assert!(compose(&facts(&state)).0.len() < 200);
    }

    #[test]
    fn operators_come_before_the_probe_and_the_controller() {
        let mut state = state(18.0, 63);
        state.health = Health::Down;
        let set = ServiceOverride {
            health: Some(ForcedHealth::Up),
            weight_percent: Some(7),
            ..ServiceOverride::default()
        };
        let forced = Facts {
            set,
            ..facts(&state)
        };
        assert!(compose(&forced).0.starts_with("up 7% maxconn:18 # "));
        state.health = Health::Up;
        let set = ServiceOverride {
            health: Some(ForcedHealth::Down),
            ..ServiceOverride::default()
        };
        let forced = Facts {
            set,
            ..facts(&state)
        };
        assert_eq!(compose(&forced).0, "down # down by operator\n");
    }

    #[test]
    fn administrative_words_come_first() {
        let state = state(18.0, 63);
        let drain = Facts {
            admin: Admin::Drain,
            ..facts(&state)
        };
        assert!(compose(&drain).0.starts_with("drain up 63% maxconn:18 # "));
        let ready = Facts {
            admin: Admin::Ready,
            ..facts(&state)
        };
        let (line, kind) = compose(&ready);
        assert!(line.starts_with("ready up 63% maxconn:18 # "));
        assert_eq!(kind, Kind::Ready);
    }

    #[test]
    fn observe_mode_describes_the_answer_without_effect() {
        let mut state = state(18.0, 63);
        for admin in [Admin::Keep, Admin::Drain] {
            let observing = Facts {
                admin,
                ..facts(&state)
            };
            let (line, kind) = compose_observing(&observing);
            assert_eq!(
                line,
                "# observe: would be up 63% maxconn:18 # p95 0.93s of 1s, over_sla\n"
            );
            assert_eq!(kind, Kind::Observe);
        }
        let ready = Facts {
            admin: Admin::Ready,
            ..facts(&state)
        };
        let (line, kind) = compose_observing(&ready);
        assert!(line.starts_with("ready # observe: would be up 63%"));
        assert_eq!(kind, Kind::Ready);
        state.health = Health::Down;
        state.health_detail = Some("refused\nup 9%".into());
        let (line, _) = compose_observing(&facts(&state));
        assert_eq!(line, "# observe: would be down # refused up 9%\n");
    }

    #[test]
    fn spans_are_short() {
        for (seconds, text) in [
            (0.0009, "0.9ms"),
            (0.0123, "12.3ms"),
            (0.1, "0.1s"),
            (1.0, "1s"),
            (2.345, "2.35s"),
            (100.4, "100s"),
        ] {
            assert_eq!(Span(Seconds(seconds)).to_string(), text);
        }
    }
}
