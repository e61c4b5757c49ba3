//! The other agents, polled once per period, less often while they do not respond.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use plimsoll_net::{HttpUrl, get_as, printable};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::{
    EnvoyConfig, EnvoyMetrics,
    node::{self, Node},
};

/// Maximum size of a `/v1/node` response.
const MAX_BYTES: usize = 1 << 20;
/// Timeout of a request; half a period if that is shorter.
const TIMEOUT: Duration = Duration::from_millis(500);
/// A failing peer is polled every second, fourth, then eighth period.
const MAX_DOUBLINGS: u32 = 3;

#[derive(Debug, Default)]
struct Peer {
    /// Whether it has ever responded.
    answered: bool,
    /// Whether it is this agent itself.
    own: bool,
    failures: u32,
    /// Not polled before this time.
    next: Option<Instant>,
    /// The last problem logged.
    problem: Option<String>,
}

/// An agent that did not respond, or not properly.
#[derive(Clone, Debug, PartialEq)]
pub struct SilentPeer {
    /// URL as configured.
    pub url: String,
    /// The last problem.
    pub problem: String,
}

/// Peers by URL.
#[derive(Debug, Default)]
pub struct Peers {
    known: BTreeMap<String, Peer>,
}

impl Peers {
    /// Polls all peers that are due, and returns the nodes in their responses.
    pub async fn ask(
        &mut self,
        config: &EnvoyConfig,
        metrics: &EnvoyMetrics,
    ) -> Vec<(String, Node)> {
        let peers = &config.settings.peers;
        self.known
            .retain(|name, _| peers.iter().any(|url| url.to_string() == *name));
        let timeout = TIMEOUT.min(config.period / 2);
        let mut asked = JoinSet::new();
        for url in peers {
            let peer = self.known.entry(url.to_string()).or_default();
            if peer.next.is_none_or(|next| next <= Instant::now()) {
                let url: HttpUrl = url.clone();
                let caller = config.settings.caller.clone();
                asked.spawn(async move {
                    let answer = get_as(&caller, &url, timeout, MAX_BYTES).await;
                    (url.to_string(), answer)
                });
            }
        }
        let mut heard = Vec::new();
        // The tasks cannot panic, and none is cancelled.
        while let Some(Ok((name, answer))) = asked.join_next().await {
            let Some(peer) = self.known.get_mut(&name) else {
                continue;
            };
            let wanted = |service: &str| config.services.iter().any(|s| s.name == service);
            let nodes = match answer {
                Ok((200, body)) => node::parse_answer(&body, wanted)
                    .map_err(|problem| ("garbage", printable(&problem))),
                Ok((status, _)) => Err(("status", format!("status {status}"))),
                Err(error) => Err((error.failure.label(), error.message)),
            };
            let result = match nodes {
                Ok(nodes) => {
                    let own = nodes.iter().any(|(_, node)| is_own(config, node));
                    heard.extend(nodes);
                    if peer.answered(own) {
                        info!(peer = name, "answers again");
                    }
                    "answered"
                }
                Err((result, problem)) => {
                    peer.failed(&name, &problem, config.period);
                    result
                }
            };
            metrics.peer_asked.with_label_values(&[result]).inc();
        }
        heard
    }

    /// Peers whose last poll failed.
    pub fn silent(&self) -> Vec<SilentPeer> {
        let silent = |(url, peer): (&String, &Peer)| {
            let problem = peer.problem.as_deref()?;
            // Connection errors already name the URL.
            let problem = problem.strip_prefix(&format!("{url}: ")).unwrap_or(problem);
            Some(SilentPeer {
                url: url.clone(),
                problem: problem.to_owned(),
            })
        };
        self.known.iter().filter_map(silent).collect()
    }

    /// Whether the nodes can be passed to Envoy: all peers have responded since the start or, a lease after the
    /// start, half of the cluster has.
    pub fn enough_answered(&self, late: bool) -> bool {
        let others = || self.known.values().filter(|peer| !peer.own);
        let (all, answered) = (others().count(), others().filter(|p| p.answered).count());
        answered == all || (late && 2 * (answered + 1) > all)
    }
}

fn is_own(config: &EnvoyConfig, node: &Node) -> bool {
    let mut services = config.services.iter();
    services.any(|service| service.address.as_ref() == Some(&node.address))
}

impl Peer {
    /// Returns whether it had failed before.
    fn answered(&mut self, own: bool) -> bool {
        let before = std::mem::take(self);
        self.answered = true;
        self.own = own;
        before.problem.is_some()
    }

    fn failed(&mut self, name: &str, problem: &str, period: Duration) {
        // Log once per cause, not once per period.
        if self.problem.as_deref() != Some(problem) {
            warn!(peer = name, "{problem}");
            self.problem = Some(problem.to_owned());
        }
        self.failures = (self.failures + 1).min(MAX_DOUBLINGS);
        let wait = period * (1 << self.failures);
        self.next = Some(Instant::now() + wait.mul_f64(0.5 + 0.5 * fastrand::f64()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_is_all_at_first_and_half_of_the_cluster_later() {
        for (peers, answered, at_once, later) in [
            (0, 0, true, true),
            (1, 0, false, true),
            (2, 0, false, false),
            (2, 1, false, true),
            (4, 1, false, false),
            (4, 2, false, true),
            (4, 4, true, true),
        ] {
            let peer = |n: usize| Peer {
                answered: n < answered,
                ..Peer::default()
            };
            let known = (0..peers).map(|n| (n.to_string(), peer(n)));
            let peers = Peers {
                known: known.collect(),
            };
            assert_eq!(
                (peers.enough_answered(false), peers.enough_answered(true)),
                (at_once, later)
            );
        }
    }

    #[test]
    fn one_that_fails_is_asked_less_and_less_often() {
        let mut peer = Peer::default();
        let period = Duration::from_secs(1);
        for most in [2, 4, 8, 8] {
            peer.failed("p", "refused", period);
            let wait = peer
                .next
                .map(|next| next - Instant::now())
                .unwrap_or_default();
            assert!(wait <= most * period && wait > (most / 2 * period).mul_f64(0.9));
        }
        peer.problem = Some("refused".into());
        assert!(peer.answered(false) && peer.next.is_none() && peer.answered);
    }
}
