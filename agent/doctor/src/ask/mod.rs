//! Queries all targets, with limits on time and size. Answers are untrusted: they are truncated and made printable,
//! and missing parts are left out.

mod agent;
mod envoy;
mod haproxy;
mod redis;

use std::{future::Future, time::Duration};

use plimsoll_net::{Caller, DatabaseAddress, HttpUrl, printable};
use plimsoll_node::ring::LinkSettings;
use tokio::task::JoinSet;

use crate::{
    haproxy_config::HaproxyConfig,
    snapshot::{Agent, Envoy, Haproxy, Snapshot},
};

/// Timeout of a query.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Number of samples of changing values, since agents decide only once per period.
const LOOKS: usize = 3;
/// Pause between two samples.
const PAUSE: Duration = Duration::from_millis(700);
/// Maximum length of a text from a peer.
const MAX_TEXT: usize = 200;

/// Targets to query.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    /// Stats sockets of HAProxy.
    pub haproxys: Vec<DatabaseAddress>,
    /// HAProxy's configuration.
    pub haproxy_config: Option<HaproxyConfig>,
    /// Admin addresses of Envoy.
    pub envoys: Vec<HttpUrl>,
    /// HTTP addresses of agents.
    pub agents: Vec<HttpUrl>,
    /// Credentials for them.
    pub caller: Caller,
    /// Redis.
    pub redis: Option<LinkSettings>,
}

/// Result of all queries.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// All answers.
    pub snapshot: Snapshot,
    /// Queries that failed.
    pub failures: Vec<Failure>,
}

/// A query that failed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Failure {
    /// Its target.
    pub what: String,
    /// The problem.
    pub problem: String,
}

/// Sanitises and truncates text from a peer for the terminal.
fn shown(text: &str) -> String {
    printable(text).chars().take(MAX_TEXT).collect()
}

/// Queries all targets; `own_version` is the version of this program.
pub async fn ask(targets: &Targets, own_version: &str) -> Asked {
    let mut asked = Asked {
        snapshot: Snapshot {
            own_version: own_version.to_owned(),
            haproxy_config: targets.haproxy_config.clone(),
            ..Snapshot::default()
        },
        failures: Vec::new(),
    };
    if let Some(settings) = &targets.redis {
        match redis::ask(settings, TIMEOUT).await {
            Ok(found) => asked.snapshot.redis = Some(found),
            Err(problem) => asked.fail(&format!("Redis {}", settings.urls.join(", ")), problem),
        }
    }
    for look in 0..LOOKS {
        if look > 0 {
            if targets.haproxys.is_empty() && targets.envoys.is_empty() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        asked.look(targets, look == 0).await;
    }
    asked
}

impl Asked {
    fn fail(&mut self, what: &str, problem: String) {
        let problem = shown(&problem);
        let what = shown(what);
        if self.failures.iter().all(|it| it.what != what) {
            self.failures.push(Failure { what, problem });
        }
    }

    /// Queries agents before and after the proxies, since their answers may change in between.
    async fn look(&mut self, targets: &Targets, is_first: bool) {
        let agents = || {
            let agents = targets.agents.iter().cloned();
            agents.map(|url| agent::ask(targets.caller.clone(), url, TIMEOUT))
        };
        let before = all(agents()).await;
        let sockets = targets.haproxys.iter().cloned();
        let haproxys = all(sockets.map(|socket| haproxy::ask(socket, TIMEOUT))).await;
        let envoys = targets.envoys.iter().cloned();
        let envoys = all(envoys.map(|url| envoy::ask(url, TIMEOUT))).await;
        let after = match targets.haproxys.is_empty() {
            true => Vec::new(),
            false => all(agents()).await,
        };
        self.take_agents(before, is_first);
        // Part of the same sample.
        for again in after.into_iter().filter_map(|(_, answer)| answer.ok()) {
            if let Some(known) = self.known_agent(&again) {
                known.look_again(&again, false);
            }
        }
        for (what, answer) in haproxys {
            let found = self.unless_failed("HAProxy", &what, answer);
            let Some(found) = found else { continue };
            let known = self.snapshot.haproxys.iter_mut();
            match known.into_iter().find(|it| it.at == found.at) {
                Some(known) => known.look_again(&found),
                None if is_first => self.snapshot.haproxys.push(found),
                None => {}
            }
        }
        for (what, answer) in envoys {
            let found = self.unless_failed("Envoy", &what, answer);
            let Some(found) = found else { continue };
            let known = self.snapshot.envoys.iter_mut();
            match known.into_iter().find(|it| it.at == found.at) {
                Some(known) => known.look_again(&found),
                None if is_first => self.snapshot.envoys.push(found),
                None => {}
            }
        }
    }

    fn take_agents(&mut self, answers: Vec<(String, Result<Agent, String>)>, is_first: bool) {
        for (what, answer) in answers {
            let found = self.unless_failed("agent", &what, answer);
            let Some(found) = found else { continue };
            match self.known_agent(&found) {
                Some(known) => known.look_again(&found, true),
                None if is_first => self.snapshot.agents.push(found),
                None => {}
            }
        }
    }

    fn known_agent(&mut self, found: &Agent) -> Option<&mut Agent> {
        let mut known = self.snapshot.agents.iter_mut();
        known.find(|it| it.at == found.at)
    }

    fn unless_failed<T>(&mut self, kind: &str, what: &str, answer: Result<T, String>) -> Option<T> {
        answer
            .map_err(|problem| self.fail(&format!("{kind} {what}"), problem))
            .ok()
    }
}

impl Agent {
    /// Merges a further answer of an agent, as a new sample or into the last one.
    fn look_again(&mut self, found: &Agent, is_new_look: bool) {
        for (name, service) in &found.services {
            let Some(known) = self.services.get_mut(name) else {
                continue;
            };
            known.identities.extend(service.identities.iter().cloned());
            let told = service.told.first().cloned().unwrap_or_default();
            match known.told.last_mut() {
                Some(last) if !is_new_look => {
                    for (identity, limits) in told {
                        last.entry(identity).or_default().extend(limits);
                    }
                }
                _ => known.told.push(told),
            }
        }
    }
}

impl Haproxy {
    fn look_again(&mut self, found: &Haproxy) {
        for server in &mut self.servers {
            let same = |it: &&crate::snapshot::Server| it.identity() == server.identity();
            let limit = found.servers.iter().find(same).and_then(|it| it.limits[0]);
            server.limits.push(limit);
        }
    }
}

impl Envoy {
    fn look_again(&mut self, found: &Envoy) {
        for cluster in &mut self.clusters {
            if let Some(again) = found.clusters.iter().find(|it| it.name == cluster.name) {
                cluster.updates.extend(&again.updates);
                cluster.failures.extend(&again.failures);
            }
        }
    }
}

/// All answers in the order of the queries, with their targets.
async fn all<T, F>(questions: impl Iterator<Item = F>) -> Vec<(String, Result<T, String>)>
where
    T: Send + 'static,
    F: Future<Output = (String, Result<T, String>)> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for (place, question) in questions.enumerate() {
        tasks.spawn(async move { (place, question.await) });
    }
    // The tasks cannot panic, and none is cancelled.
    let mut answers = tasks.join_all().await;
    answers.sort_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
