//! An agent's HTTP API.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_net::{Caller, HttpUrl, get_as};
use plimsoll_wire::{NodeService, NodeView, PlacementView};
use serde_json::Value;
use tokio::time::Instant;

use super::{haproxy::unix_now, shown};
use crate::snapshot::{Agent, Clock, Service};

const MAX_BYTES: usize = 4 << 20;

pub async fn ask(
    caller: Caller,
    url: HttpUrl,
    patience: Duration,
) -> (String, Result<Agent, String>) {
    let at = url.authority.clone();
    let answer = heard(&caller, &url, patience).await;
    (at, answer)
}

async fn heard(caller: &Caller, url: &HttpUrl, patience: Duration) -> Result<Agent, String> {
    let at = |path: &str| HttpUrl {
        path: path.to_owned(),
        ..url.clone()
    };
    let asked = Instant::now();
    let (status, body) = get_as(caller, &at("/v1/node"), patience, MAX_BYTES)
        .await
        .map_err(|error| error.to_string())?;
    let (now, took) = (unix_now(), asked.elapsed().as_secs_f64());
    if status != 200 {
        return Err(format!("/v1/node answers with status {status}"));
    }
    let mut found = NodeView::parse(&body)
        .and_then(|node| agent(node, &url.authority, now, took))
        .map_err(|problem| format!("/v1/node is not what an agent answers: {problem}"))?;
    // Agents without placement answer 404; an unavailable Redis is reported elsewhere.
    if let Ok((200, body)) = get_as(caller, &at("/v1/placement"), patience, MAX_BYTES).await {
        found.hold = hold(&body);
    }
    Ok(found)
}

fn agent(node: NodeView, at: &str, now: f64, took: f64) -> Result<Agent, String> {
    let clock = |told: f64| Clock {
        ahead: told - (now - took / 2.0),
        error: took,
    };
    let unlimited = node.listeners.into_iter();
    let unlimited = unlimited.filter(|(_, it)| it.allow.is_none() && it.requires.is_empty());
    let service = |(name, said): (String, Value)| {
        let name = shown(&name);
        let said = NodeService::parse(said).map_err(|it| format!("services.{name}: {it}"))?;
        Ok((name, service(said)))
    };
    Ok(Agent {
        at: shown(at),
        version: shown(&node.version),
        clock: node.unix_time.map(clock),
        unlimited: unlimited
            .map(|(key, listener)| (shown(&key), shown(&listener.address)))
            .collect(),
        services: node
            .services
            .into_iter()
            .map(service)
            .collect::<Result<_, String>>()?,
        hold: None,
    })
}

fn service(said: NodeService) -> Service {
    let mut found = Service {
        address: said.address.as_deref().map(shown),
        source_error: said.source_error.as_deref().map(shown),
        blind: said
            .sight
            .and_then(|sight| sight.unseen.map(|_| sight.ratio)),
        ..Service::default()
    };
    let mut told: BTreeMap<String, _> = BTreeMap::new();
    for proxy in said.proxies {
        let identity = shown(&proxy.identity);
        if let Some(limit) = limit(&proxy.told) {
            let limits: &mut std::collections::BTreeSet<u32> =
                told.entry(identity.clone()).or_default();
            limits.insert(limit);
        }
        found.identities.insert(identity);
    }
    found.told.push(told);
    found
}

fn limit(line: &str) -> Option<u32> {
    let words = line.split('#').next()?.split_whitespace();
    let mut limits = words.filter_map(|word| word.strip_prefix("maxconn:"));
    limits.next()?.parse().ok()
}

fn hold(body: &[u8]) -> Option<Duration> {
    let placement = PlacementView::parse(body).ok()?;
    let lease = placement.lease_seconds?;
    let is_hold = placement.when_lost.as_deref() == Some("hold");
    is_hold.then(|| Duration::try_from_secs_f64(lease).ok())?
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read() {
        let text = r#"{"version": "0.1.0", "unix_time": 1005.0, "more": 1,
            "listeners": {"http.listen": {"address": "0.0.0.0:9464", "allow": null, "requires": []},
                          "other.listen": {"address": "0.0.0.0:9465", "allow": null, "requires": ["token"]},
                          "agent_check.listen": {"address": "0.0.0.0:9101", "allow": []}},
            "services": {"q": {"address": null, "health": "up", "override": {"drain": false, "health": null},
                "decision": {"bound": 64.0}, "weight_bound": 64.0, "shed": {"fraction": 0.0, "asked": false}, "source_error": "no\u001b answer", "sight": {"ratio": 2.5, "unseen": 0.1},
                "proxies": [{"identity": "q/n1", "proxy": "lb1", "address": "192.0.2.1", "polled_seconds_ago": 0.1, "share_jobs": 18, "told": "up 100% maxconn:18 # maxconn:1"},
                            {"identity": "q/n1", "proxy": "lb2", "address": "192.0.2.2", "polled_seconds_ago": 0.1, "share_jobs": 17, "told": "up 9% maxconn:17"}, {"identity": "q", "proxy": "lb3", "address": "2001:db8::3", "polled_seconds_ago": 0.1, "share_jobs": 17, "told": ""}]}}}"#;
        let found = agent(
            NodeView::parse(text.as_bytes()).unwrap(),
            "a:1",
            1000.0,
            2.0,
        )
        .unwrap();
        assert_eq!(found.clock.unwrap().ahead, 6.0);
        assert_eq!(found.unlimited.keys().collect::<Vec<_>>(), ["http.listen"]);
        let service = &found.services["q"];
        assert_eq!(service.blind, Some(2.5));
        assert_eq!(service.source_error.as_deref(), Some("no? answer"));
        assert_eq!(service.told[0]["q/n1"], [17, 18].into());
        assert!(service.identities.contains("q") && !service.told[0].contains_key("q"));
    }

    #[test]
    fn an_older_agent_says_less() {
        let text = r#"{"version": "0.1.0", "services": {}}"#;
        let found = agent(
            NodeView::parse(text.as_bytes()).unwrap(),
            "a:1",
            1000.0,
            2.0,
        )
        .unwrap();
        assert!(found.clock.is_none() && found.unlimited.is_empty());
        assert_eq!(hold(b"{}"), None);
        let vectors = include_str!("../../../wire/vectors/placement.json");
        let vectors: Value = serde_json::from_str(vectors).unwrap();
        let mut answer = vectors["cases"][0].clone();
        let mut held = |lease: f64| {
            answer["lease_seconds"] = lease.into();
            hold(answer.to_string().as_bytes())
        };
        assert_eq!(held(-1.0), None);
        assert_eq!(held(2.5), Some(Duration::from_millis(2500)));
        answer["when_lost"] = Value::Null;
        assert_eq!(hold(answer.to_string().as_bytes()), None);
    }
}
