//! Findings from HAProxy's configuration file.

use std::collections::BTreeMap;

use crate::{
    Code, Finding,
    haproxy_config::{Backend, HaproxyConfig, Server},
};

/// Minimum configured weight: 1 % of a lower one rounds down to 0.
pub const FULL_WEIGHT: u32 = 100;
/// Balancing algorithms that use `hash-type`.
const HASHES: [&str; 6] = ["source", "uri", "url_param", "hdr", "rdp-cookie", "hash"];

pub fn findings(config: &HaproxyConfig) -> Vec<Finding> {
    let mut found = agent_send(config);
    for backend in &config.backends {
        let has_agent = |server: &&Server| server.has_agent;
        if !backend.servers.iter().any(|server| server.has_agent) {
            continue;
        }
        found.extend(balance(backend));
        found.extend(queue(backend));
        for server in backend.servers.iter().filter(|server| !server.has_agent) {
            found.push(check_missing(&identity(backend, server), Some(&server.at)));
        }
        let small = |server: &&Server| server.weight < FULL_WEIGHT;
        for server in backend.servers.iter().filter(has_agent).filter(small) {
            let at = identity(backend, server);
            found.push(weight(&at, server.weight, Some(&server.at)));
        }
    }
    found
}

fn identity(backend: &Backend, server: &Server) -> String {
    format!("{}/{}", backend.name, server.name)
}

fn with_line(found: String, line: Option<&str>) -> String {
    match line {
        Some(line) => format!("{line}: {found}"),
        None => found,
    }
}

/// Finding for a server without an agent check; `line` is its place in the configuration, if known.
pub fn check_missing(at: &str, line: Option<&str>) -> Finding {
    let found = "no agent-check, although other servers of the backend have one";
    Finding::new(
        Code::AgentCheckMissing,
        at,
        with_line(found.to_owned(), line),
        "put agent-check and agent-port into the backend's default-server, above the servers",
    )
}

/// Finding for a server whose weight is below [`FULL_WEIGHT`]; `line` is its place in the configuration, if known.
pub fn weight(at: &str, weight: u32, line: Option<&str>) -> Finding {
    let found = match weight {
        0 => "the configured weight is 0, and so is every percentage of it".to_owned(),
        _ => {
            let least = FULL_WEIGHT.div_ceil(weight);
            format!(
                "the configured weight is {weight}, so every answer below {least} % drains the server"
            )
        }
    };
    Finding::new(
        Code::WeightSmall,
        at,
        with_line(found, line),
        "put weight 100 into the backend's default-server, and remove other weights from its servers",
    )
}

/// Findings about `agent-send`. All agent checks of an HAProxy process share one set of rules, so either all servers
/// or none must have it.
fn agent_send(config: &HaproxyConfig) -> Vec<Finding> {
    let all = || {
        let backends = config.backends.iter();
        let servers = backends.flat_map(|it| it.servers.iter().map(move |server| (it, server)));
        servers.filter(|(_, server)| server.has_agent)
    };
    let sends = all().filter(|(_, server)| server.agent_send.is_some());
    let Some((_, sending)) = sends.clone().next() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (backend, server) in all().filter(|(_, server)| server.agent_send.is_none()) {
        let name = identity(backend, server);
        let problem = format!("{}: no agent-send, while {} has one", server.at, sending.at);
        let fix = format!("add agent-send \"{name}\\n\", or remove agent-send everywhere");
        found.push(Finding::new(Code::AgentSendMissing, name, problem, fix));
    }
    // An agent-send in default-server names a service, not a server.
    let mut of_lines: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for (backend, server) in sends {
        let Some((sent, true)) = &server.agent_send else {
            continue;
        };
        let other = of_lines.insert((&backend.name, sent), &server.at);
        if let (Some(other), true) = (other, sent.contains('/')) {
            let name = identity(backend, server);
            let problem = format!("{}: sends \"{sent}\", as {other} does", server.at);
            let fix = format!("send \"{name}\\n\", and list it in the identities of its own agent");
            let code = Code::AgentOfAnotherServer;
            found.push(Finding::new(code, name, problem, fix));
        }
    }
    found
}

/// Advice: algorithms that apply changed weights at once.
pub const DYNAMIC: &str =
    "balance leastconn, roundrobin or random, or a hash with hash-type consistent";

fn balance(backend: &Backend) -> Option<Finding> {
    let line = backend.balance.as_ref()?;
    let word = line.words.get(1).map_or("", String::as_str);
    let name = word.split('(').next().unwrap_or(word);
    let kind = backend.hash_type.as_ref();
    let is_consistent = kind.is_some_and(|it| it.words.get(1).is_some_and(|it| it == "consistent"));
    let (problem, fix) = match name {
        "static-rr" | "first" => (
            format!("{}: balance {name}", line.at),
            format!("use {DYNAMIC}"),
        ),
        _ if HASHES.contains(&name) && !is_consistent => {
            let kind = kind.map_or("the default hash-type, map-based".to_owned(), |it| {
                format!("{}, {}", it.words.join(" "), it.at)
            });
            (
                format!("{}: balance {word} with {kind}", line.at),
                "add hash-type consistent".to_owned(),
            )
        }
        _ => return None,
    };
    let code = Code::BalanceIgnoresWeights;
    Some(Finding::new(code, &backend.name, problem, fix))
}

fn queue(backend: &Backend) -> Option<Finding> {
    if backend.timeout_queue.is_some() {
        return None;
    }
    Some(Finding::new(
        Code::TimeoutQueueUnset,
        &backend.name,
        format!(
            "{}: no timeout queue, here or in what it inherits",
            backend.at
        ),
        "add timeout queue 50ms, or the part of the SLA that may be spent waiting for another node",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::haproxy_config::tests::read;

    fn told(text: &str) -> Vec<(&'static str, String)> {
        let found = findings(&read(text)).into_iter();
        found.map(|it| (it.code.word(), it.at)).collect()
    }

    const FINE: &str = "backend q\n balance hash path\n hash-type consistent\n timeout queue 50ms\n\
                        default-server weight 100 agent-check agent-port 1\n\
                        server a h:1 agent-send \"q/a\\n\"\n server b h:2 agent-send \"q/b\\n\"\n";

    #[test]
    fn the_guides_configuration_has_no_findings() {
        assert_eq!(told(FINE), []);
        assert_eq!(told("backend other\n balance source\n server a h:1\n"), []);
    }

    #[test]
    fn each_change_makes_its_finding() {
        for (old, new, code, at) in [
            (" agent-send \"q/b\\n\"", "", "agent-send-missing", "q/b"),
            ("\"q/b", "\"q/a", "agent-of-another-server", "q/b"),
            ("weight 100", "weight 1", "weight-small", "q/a"),
            ("weight 100", "weight 0", "weight-small", "q/a"),
            ("weight 100", "", "weight-small", "q/a"),
            (
                " hash-type consistent\n",
                "",
                "balance-ignores-weights",
                "q",
            ),
            ("consistent", "map-based", "balance-ignores-weights", "q"),
            ("hash path", "hdr(x)", "", ""),
            ("hash path", "static-rr", "balance-ignores-weights", "q"),
            ("hash path", "first", "balance-ignores-weights", "q"),
            (" timeout queue 50ms\n", "", "timeout-queue-unset", "q"),
            (
                "server b h:2",
                "server b h:2 no-agent-check",
                "agent-check-missing",
                "q/b",
            ),
        ] {
            let text = FINE.replace(old, new);
            assert_ne!(text, FINE);
            let found = told(&text);
            let first = found.first().map_or(("", ""), |it| (it.0, &it.1));
            assert_eq!(first, (code, at), "{old} -> {new}: {found:?}");
        }
    }

    #[test]
    fn a_service_may_be_named_for_all_servers() {
        let text = FINE.replace("agent-check", "agent-check agent-send \"q\\n\"");
        let text = text
            .replace(" agent-send \"q/b\\n\"", "")
            .replace(" agent-send \"q/a\\n\"", "");
        assert_eq!(told(&text), []);
    }

    #[test]
    fn a_finding_names_its_lines() {
        let found = findings(&read(&FINE.replace(" agent-send \"q/b\\n\"", "")));
        assert_eq!(
            found[0].found,
            "h.cfg:7: no agent-send, while h.cfg:6 has one"
        );
        assert!(found[0].fix.contains("agent-send \"q/b\\n\""));
    }
}
