//! `[placement]`.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_core::placement::{ObjectSet, PlanSettings};
use plimsoll_settings::{Checked, duration, number, word, wrong};

use serde::Deserialize;

use super::{Initial, PlacementSettings, WhenLost};
use crate::ring::ring_name;

/// As many as leave at a time.
const MAX_PINS: usize = 1024;
const MILLI: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

fn at_most(key: &str, value: Duration, most: Duration) -> Checked<Duration> {
    match value <= most {
        true => Ok(value),
        false => wrong(
            key,
            format!("must be at most {}", humantime::format_duration(most)),
        ),
    }
}

/// As it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementSection {
    cluster: String,
    #[serde(default, with = "humantime_serde")]
    period: Option<Duration>,
    threshold: Option<f64>,
    gain: Option<f64>,
    moves: Option<bool>,
    #[serde(default, with = "humantime_serde")]
    request_limit: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    lease: Option<Duration>,
    when_lost: Option<String>,
    initial: Option<String>,
    #[serde(default)]
    pins: BTreeMap<String, String>,
}

/// Checks it.
pub fn placement(raw: &PlacementSection) -> Checked<PlacementSettings> {
    let second = Duration::from_secs(1);
    let period = duration("placement.period", raw.period, second, 100 * MILLI)?;
    let period = at_most("placement.period", period, 60 * second)?;
    let lease = (10 * second).max(3 * period);
    let lease = duration("placement.lease", raw.lease, lease, 3 * period)?;
    let limit = raw.request_limit;
    let limit = duration("placement.request_limit", limit, 60 * second, 100 * MILLI)?;
    let default = PlanSettings::default();
    let threshold = raw.threshold.unwrap_or(default.threshold);
    let gain = raw.gain.unwrap_or(default.gain);
    Ok(PlacementSettings {
        cluster: ring_name("placement.cluster".into(), &raw.cluster)?,
        period,
        plan: PlanSettings {
            threshold: number("placement.threshold", threshold, 0.0..=10.0)?,
            gain: number("placement.gain", gain, 0.0..=1.0)?,
        },
        moves: raw.moves.unwrap_or(true),
        request_limit: at_most("placement.request_limit", limit, HOUR)?,
        lease: at_most("placement.lease", lease, HOUR)?,
        when_lost: word(
            "placement.when_lost",
            raw.when_lost.as_deref(),
            WhenLost::Serve,
            &[("serve", WhenLost::Serve), ("hold", WhenLost::Hold)],
        )?,
        initial: match raw.initial.as_deref() {
            None | Some("even") => Initial::Even,
            Some(node) => Initial::Node(ring_name("placement.initial".into(), node)?),
        },
        pins: pins(&raw.pins)?,
    })
}

fn pins(raw: &BTreeMap<String, String>) -> Checked<BTreeMap<ObjectSet, String>> {
    if raw.len() > MAX_PINS {
        let problem = format!("may be {MAX_PINS}, are {}", raw.len());
        return wrong("placement.pins", problem);
    }
    let pin = |(set, node): (&String, &String)| {
        let key = format!("placement.pins.{set}");
        match set.parse::<ObjectSet>() {
            Ok(set) => Ok((set, ring_name(key, node)?)),
            Err(problem) => wrong(key, problem.to_string()),
        }
    };
    raw.iter().map(pin).collect()
}
