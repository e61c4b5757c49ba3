//! `[placement]`.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_core::placement::{ObjectSet, PlanSettings};
use plimsoll_settings::{Checked, MILLI, duration, number, word, wrong};

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Initial, PlacementSettings, WhenLost};
use crate::ring::ring_name;

/// As many as can leave a node at once.
const MAX_PINS: usize = 1024;
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

/// Which node is the primary of which object set: docs/placement.md. Needs `[redis]`, and a `[service.ring]` of the
/// same cluster. Must be the same on all agents of a cluster.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[placement]")]
pub struct PlacementSection {
    /// The `cluster` of a `[service.ring]`, whose nodes are the primaries, with their bounds as capacity.
    #[schemars(extend("x-values" = "1 to 120 of `A-Za-z0-9._:/-`", "x-default" = "required"))]
    cluster: String,
    /// Interval at which loads are evaluated; each evaluation may result in a plan.
    #[schemars(with = "String", extend("x-values" = "duration, 100ms to 1m", "x-default" = "`\"1s\"`"))]
    #[serde(default, with = "humantime_serde")]
    period: Option<Duration>,
    /// Nothing moves while the standard deviation of the primaries' loads is at most this fraction of their mean,
    /// plus the variation expected by chance.
    #[schemars(extend("x-values" = "0 to 10", "x-default" = "`0.2`"))]
    threshold: Option<f64>,
    /// Nothing moves unless it removes at least this fraction of the variance.
    #[schemars(extend("x-values" = "0 to 1", "x-default" = "`0.5`"))]
    gain: Option<f64>,
    /// `false`: moves only pinned sets, sets that an operator moves, and sets without a live primary.
    #[schemars(extend("x-values" = "`true`, `false`", "x-default" = "`true`"))]
    moves: Option<bool>,
    /// Maximum duration of a write. The proxies' timeouts must enforce it: `timeout server` in HAProxy, the route's
    /// `timeout` in Envoy.
    #[schemars(with = "String", extend("x-values" = "duration, 100ms to 1hour", "x-default" = "`\"60s\"`"))]
    #[serde(default, with = "humantime_serde")]
    request_limit: Option<Duration>,
    /// After this time without contact a keeper is replaced, a dispatcher is silent, and a node that has left the
    /// ring is down.
    #[schemars(with = "String", extend("x-values" = "duration, 3 periods to 1hour", "x-default" = "`\"10s\"`, at least 3 periods"))]
    #[serde(default, with = "humantime_serde")]
    lease: Option<Duration>,
    /// What a dispatcher does after a lease without Redis. `serve`: it continues with its table, and nothing moves.
    /// `hold`: it admits no requests, and is considered gone; a Redis with replicas needs certain settings for this:
    /// docs/placement.md.
    #[schemars(extend("x-values" = "`serve`, `hold`", "x-default" = "`\"serve\"`"))]
    when_lost: Option<String>,
    /// Placement of the rests in a newly created table.
    #[schemars(extend("x-values" = "`even`, or a node's name", "x-default" = "`\"even\"`"))]
    initial: Option<String>,
    /// `[placement.pins]`, such as `"=A17" = "node3"`: sets that no plan moves, even if their node is down.
    #[schemars(extend("x-values" = "table: object set = node; up to 1024", "x-default" = "none"))]
    #[serde(default)]
    pins: BTreeMap<String, String>,
}

/// Checks `[placement]`.
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
        let problem = format!("{} pins, maximum {MAX_PINS}", raw.len());
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
