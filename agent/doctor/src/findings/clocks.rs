//! Findings about the clocks of proxies, agents and Redis.

use crate::{
    Code, Finding,
    snapshot::{Clock, Snapshot},
};

/// Maximum difference in seconds: half the lateness from which log lines are dropped.
const MAX_APART: f64 = 5.0;

pub fn findings(seen: &Snapshot) -> Vec<Finding> {
    let haproxys = seen.haproxys.iter().map(|it| (&it.at, it.clock));
    let agents = seen.agents.iter().map(|it| (&it.at, it.clock));
    let redis = seen.redis.iter().map(|it| (&it.at, it.clock));
    let all = haproxys.chain(agents).chain(redis);
    let mut clocks: Vec<(&String, Clock)> = all
        .filter_map(|(at, clock)| Some((at, clock.filter(|it| it.ahead.is_finite())?)))
        .collect();
    clocks.sort_by(|(_, a), (_, b)| a.ahead.total_cmp(&b.ahead));
    // The median counts as right: the clock of the machine that runs the doctor may be wrong.
    let Some(&(_, right)) = clocks.get((clocks.len().max(1) - 1) / 2) else {
        return Vec::new();
    };
    let right = match clocks.len() {
        1 | 2 => Clock::default(),
        _ => right,
    };
    let off = |(at, clock): (&String, Clock)| {
        let apart = clock.ahead - right.ahead;
        if apart.abs() <= MAX_APART + clock.error + right.error {
            return None;
        }
        let side = if apart > 0.0 { "ahead of" } else { "behind" };
        let others = match clocks.len() {
            1 | 2 => "this machine's",
            _ => "most others",
        };
        Some(Finding::new(
            Code::ClocksApart,
            at,
            format!("its clock is {:.0} s {side} {others}", apart.abs()),
            "synchronise the clocks: chronyd or systemd-timesyncd on every host",
        ))
    };
    clocks.iter().copied().filter_map(off).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Agent;

    fn told(ahead: &[f64], error: f64) -> Vec<String> {
        let agent = |(index, ahead): (usize, &f64)| Agent {
            at: index.to_string(),
            clock: Some(Clock {
                ahead: *ahead,
                error,
            }),
            ..Agent::default()
        };
        let seen = Snapshot {
            agents: ahead.iter().enumerate().map(agent).collect(),
            ..Snapshot::default()
        };
        let found = findings(&seen).into_iter();
        found.map(|it| format!("{} {}", it.at, it.found)).collect()
    }

    #[test]
    fn the_one_that_is_apart_is_named() {
        assert!(told(&[], 0.0).is_empty());
        assert!(told(&[4.0, 0.0, -4.0], 0.0).is_empty());
        let behind = ["1 its clock is 60 s behind most others"];
        assert_eq!(told(&[0.0, -60.0, 0.1], 0.0), behind);
        // Only the clock of the machine that runs the doctor is wrong.
        assert!(told(&[60.0, 60.0, 60.0], 0.0).is_empty());
        let ahead = ["0 its clock is 60 s ahead of this machine's"];
        assert_eq!(told(&[60.0, 0.0], 0.0), ahead);
        assert_eq!(told(&[60.0], 0.0), ahead);
    }

    #[test]
    fn what_an_answer_took_is_allowed_for() {
        assert!(told(&[6.0, 0.0, 0.0], 1.0).is_empty());
        assert!(told(&[f64::NAN, 0.0, f64::INFINITY], 1.0).is_empty());
    }
}
