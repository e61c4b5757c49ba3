//! The agents' answers at one point in time.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_exposition::{Exposition, Labels, Selector};
use plimsoll_net::{Caller, HttpUrl, get_as, printable};
use plimsoll_outputs::envoy::{Standing, standing};
use plimsoll_wire::{NodeService, NodeView};
use serde_json::Value;
use tokio::task::JoinSet;

/// Timeout of a request to an agent.
const TIMEOUT: Duration = Duration::from_secs(1);
const MAX_BYTES: usize = 1 << 20;
/// Maximum length of text from an agent.
const MAX_TEXT: usize = 64;

/// The answers of all agents.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Sorted by agent, then service.
    pub rows: Vec<Row>,
    /// Agents that did not answer, and why.
    pub silent: Vec<(String, String)>,
}

/// A service on a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Address of the service, or of the agent if that is unknown.
    pub node: String,
    pub service: String,
    /// "up", "down" or "drain"; "observe" if proxies are told none of it.
    pub standing: &'static str,
    /// The measured delay that the controller compares with its set point, and the SLA's delay, in seconds.
    pub delay: Option<f64>,
    pub sla_delay: f64,
    /// Bound in requests.
    pub bound_jobs: f64,
    pub jobs: Option<f64>,
    /// Capacity that weights are computed from, in cost units; `None` while unknown.
    pub capacity: Option<f64>,
    /// Age of the load line's learned capacity, in seconds, and whether an earlier run learned it.
    pub learned: Option<(f64, bool)>,
    pub weight_percent: u16,
    /// Fraction of the ring's slots.
    pub ring: Option<f64>,
    /// Fraction of the traffic that Envoy is told to refuse.
    pub shed: f64,
    /// Finished and failed requests per second.
    pub finished: Option<f64>,
    pub failed: Option<f64>,
    pub reason: String,
    /// Cost units per second that a service in observe mode would refuse.
    pub would_refuse: Option<f64>,
    /// Last error of the source, or how blind it is.
    pub problem: Option<String>,
}

impl Row {
    /// Delay over the SLA's delay.
    pub fn load(&self) -> Option<f64> {
        self.delay.map(|delay| delay / self.sla_delay)
    }
}

fn problem(said: &NodeService) -> Option<String> {
    let blind = said.sight.as_ref().filter(|sight| sight.unseen.is_some());
    let blind = blind.map(|sight| format!("source blind: delay is {:.1} x", sight.ratio));
    said.source_error.as_deref().map(shown).or(blind)
}

/// Polls all agents concurrently.
pub async fn take(caller: &Caller, urls: &[HttpUrl], service: Option<&str>) -> Snapshot {
    let mut asked = JoinSet::new();
    for (place, url) in urls.iter().enumerate() {
        let (caller, url) = (caller.clone(), url.clone());
        asked.spawn(async move { (place, url.authority.clone(), ask(&caller, &url).await) });
    }
    let mut answers = BTreeMap::new();
    // The tasks do not panic, and none is cancelled.
    while let Some(Ok((place, agent, answer))) = asked.join_next().await {
        answers.insert(place, (agent, answer));
    }
    let mut seen = Snapshot::default();
    for (agent, answer) in answers.into_values() {
        match answer {
            Ok(rows) => {
                let wanted = |row: &Row| service.is_none_or(|service| row.service == service);
                seen.rows.extend(rows.into_iter().filter(wanted));
            }
            Err(problem) => seen.silent.push((agent, shown(&problem))),
        }
    }
    seen
}

async fn ask(caller: &Caller, url: &HttpUrl) -> Result<Vec<Row>, String> {
    let at = |path: &str| HttpUrl {
        path: path.to_owned(),
        ..url.clone()
    };
    let (node, metrics) = (at("/v1/node"), at("/metrics"));
    let (node, metrics) = tokio::join!(
        get_as(caller, &node, TIMEOUT, MAX_BYTES),
        get_as(caller, &metrics, TIMEOUT, MAX_BYTES)
    );
    let (status, body) = node.map_err(|error| error.to_string())?;
    if status != 200 {
        return Err(format!("HTTP status {status}"));
    }
    let metrics = metrics.ok().filter(|(status, _)| *status == 200);
    let ring = |service: &str| ring(&metrics.as_ref()?.1, service);
    rows(&body, &url.authority, ring)
}

/// Fraction of the slots that the node owns.
fn ring(metrics: &[u8], service: &str) -> Option<f64> {
    let labels = Labels::from([("service".to_owned(), service.to_owned())]);
    let wanted = Selector::new("plimsoll_ring_realised_ratio", &labels);
    let found = Exposition::new(metrics).ok()?.gauges(&wanted).ok()?;
    found.first().copied()
}

fn rows(body: &[u8], agent: &str, ring: impl Fn(&str) -> Option<f64>) -> Result<Vec<Row>, String> {
    let answer = NodeView::parse(body)?;
    let services = answer.services.into_iter();
    let row = |(service, value): (String, Value)| {
        let said = NodeService::parse(value)
            .map_err(|error| format!("services.{}: {error}", shown(&service)))?;
        let sla_delay = said.settings.sla.delay;
        if sla_delay <= 0.0 {
            let service = shown(&service);
            return Err(format!(
                "services.{service}.settings.sla.delay: must be above 0, is {sla_delay}"
            ));
        }
        let per_second = |count: u64| {
            said.observed_seconds
                .filter(|s| *s > 0.0)
                .map(|seconds| count as f64 / seconds)
        };
        Ok(Row {
            node: shown(said.address.as_deref().unwrap_or(agent)),
            ring: ring(&service),
            service: shown(&service),
            standing: match standing(said.health, said.set.health, said.set.drain) {
                _ if said.settings.mode.observes() => "observe",
                Standing::Unhealthy => "down",
                Standing::Draining => "drain",
                Standing::Healthy => "up",
            },
            delay: said.decision.measured_delay,
            sla_delay,
            bound_jobs: said.decision.bound_jobs,
            jobs: said.jobs,
            capacity: said.capacity.flatten(),
            learned: said
                .learned
                .as_ref()
                .map(|it| (it.age_seconds.clamp(0.0, 1e9), it.earlier_run)),
            weight_percent: said.weight_percent,
            shed: said.shed.fraction,
            finished: per_second(said.finished),
            failed: per_second(said.failed),
            reason: shown(&said.decision.reason),
            would_refuse: said.would_refuse,
            problem: problem(&said),
        })
    };
    services.map(row).collect()
}

/// Sanitises text from an agent for the terminal.
fn shown(text: &str) -> String {
    printable(text).chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub mod tests {
    use serde_json::json;

    use super::*;

    fn answer() -> Value {
        json!({"version": "0.1.0", "services": {"stocks": {
            "address": "192.0.2.11:8001", "health": "up", "health_detail": null,
            "override": {"drain": false, "health": null}, "proxies": [],
            "settings": {"sla": {"delay": 0.5}, "more": 1},
            "decision": {"bound": 64.0, "bound_jobs": 64.0, "reason": "over_sla", "measured_delay": 0.75},
            "weight_percent": 80, "weight_bound": 60.5, "finished": 120, "failed": 2, "jobs": 48.0,
            "capacity": 61.5, "learned": {"rate": 9.0, "age_seconds": 7300.5, "earlier_run": true},
            "observed_seconds": 2.0, "source_error": null, "shed": {"fraction": 0.25, "asked": true},
        }}})
    }

    fn read(answer: &Value) -> Result<Vec<Row>, String> {
        rows(answer.to_string().as_bytes(), "agent:9464", |_| Some(0.2))
    }

    pub fn row() -> Row {
        read(&answer()).unwrap().remove(0)
    }

    #[test]
    fn an_agents_answer_is_read() {
        let row = row();
        assert_eq!((row.node.as_str(), row.standing), ("192.0.2.11:8001", "up"));
        assert_eq!(row.load(), Some(1.5));
        assert_eq!((row.finished, row.failed), (Some(60.0), Some(1.0)));
        assert_eq!(
            (row.ring, row.shed, row.weight_percent),
            (Some(0.2), 0.25, 80)
        );
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let mut answer = answer();
        let service = &mut answer["services"]["stocks"];
        for (key, value) in [
            ("address", Value::Null),
            ("jobs", Value::Null),
            ("capacity", Value::Null),
            ("learned", Value::Null),
            ("observed_seconds", json!(0.0)),
            ("source_error", json!("no\u{1b}[2J answer")),
        ] {
            service[key] = value;
        }
        service["decision"]["measured_delay"] = Value::Null;
        let row = read(&answer).unwrap().remove(0);
        assert_eq!(row.node, "agent:9464");
        assert_eq!((row.jobs, row.load(), row.finished), (None, None, None));
        assert_eq!(row.problem.as_deref(), Some("no?[2J answer"));
    }

    #[test]
    fn a_service_that_is_only_observed_is_neither_up_nor_down() {
        let mut answer = answer();
        answer["services"]["stocks"]["settings"]["mode"] = json!("observe");
        answer["services"]["stocks"]["would_refuse"] = json!(2.5);
        let row = read(&answer).unwrap().remove(0);
        assert_eq!((row.standing, row.would_refuse), ("observe", Some(2.5)));
    }

    #[test]
    fn a_blind_source_is_shown() {
        let mut answer = answer();
        let sight = &mut answer["services"]["stocks"]["sight"];
        *sight = json!({"ratio": 5.04, "unseen": null});
        assert_eq!(read(&answer).unwrap()[0].problem, None);
        answer["services"]["stocks"]["sight"]["unseen"] = json!(0.4);
        let problem = read(&answer).unwrap().remove(0).problem;
        assert_eq!(problem.as_deref(), Some("source blind: delay is 5.0 x"));
    }

    #[test]
    fn an_operators_word_counts_more_than_the_probe() {
        for (health, drain, standing) in [
            (json!("down"), false, "down"),
            (json!("up"), true, "drain"),
            (Value::Null, false, "down"),
        ] {
            let mut answer = answer();
            answer["services"]["stocks"]["health"] = json!("down");
            answer["services"]["stocks"]["override"] = json!({"drain": drain, "health": health});
            assert_eq!(read(&answer).unwrap()[0].standing, standing);
        }
    }

    #[test]
    fn malformed_answers_are_reported() {
        for body in ["", "[]", "{\"services\": {\"a\": 1}}", "\u{0}"] {
            assert!(rows(body.as_bytes(), "a", |_| None).is_err(), "{body}");
        }
    }
}
