//! Findings from HAProxy's socket, and from what agents report about the proxies that ask them.

use std::collections::{BTreeMap, BTreeSet};

use super::config::{DYNAMIC, FULL_WEIGHT, check_missing, weight};
use crate::{
    Code, Finding,
    snapshot::{Agent, AgentCheck, Haproxy, Server, Service, Snapshot},
};

/// Duration in ms of an agent check without `agent-send` among checks with it: a delayed acknowledgement takes 200 ms.
const DELAYED_MILLIS: std::ops::RangeInclusive<u64> = 190..=280;
/// Maximum duration in ms of a check without that delay.
const PROMPT_MILLIS: u64 = 150;

pub fn findings(seen: &Snapshot) -> Vec<Finding> {
    let mut found = Vec::new();
    for haproxy in &seen.haproxys {
        for server in &haproxy.servers {
            found.extend(of_server(haproxy, server));
            found.extend(limit(&seen.agents, server));
        }
        found.extend(algorithms(haproxy));
        found.extend(others(&seen.agents, haproxy));
    }
    found
}

fn controlled(haproxy: &Haproxy) -> impl Iterator<Item = &Server> {
    let servers = haproxy.servers.iter();
    servers.filter(|server| server.agent != AgentCheck::None)
}

fn is_asked_beside(server: &Server) -> impl Fn(&Server) -> bool {
    |other| other.backend == server.backend && other.agent == AgentCheck::On
}

fn of_server(haproxy: &Haproxy, server: &Server) -> Vec<Finding> {
    let at = server.identity();
    let mut found = Vec::new();
    match server.agent {
        AgentCheck::None => {
            if controlled(haproxy).any(|other| other.backend == server.backend) {
                found.push(check_missing(&at, None));
            }
            return found;
        }
        // The Lua policy `limits` switches off the agent checks of all servers that it controls.
        AgentCheck::Off if !controlled(haproxy).any(is_asked_beside(server)) => {}
        AgentCheck::Off => {
            let problem = format!("disabled manually in {}", haproxy.at);
            let fix = format!(
                "enable agent {at}, or undo what it left as docs/haproxy.md#roll-back says"
            );
            found.push(Finding::new(Code::AgentCheckOff, &at, problem, fix));
        }
        AgentCheck::On if server.is_in_maintenance => {}
        AgentCheck::On => found.extend(silent(haproxy, server)),
    }
    if server.weight < FULL_WEIGHT {
        found.push(weight(&at, server.weight, None));
    }
    found
}

fn silent(haproxy: &Haproxy, server: &Server) -> Option<Finding> {
    let at = server.identity();
    let is_late = |it: &Server| {
        it.duration_millis
            .is_some_and(|it| DELAYED_MILLIS.contains(&it))
    };
    let is_prompt = |it: &Server| {
        it.status.starts_with("L7") && it.duration_millis.is_some_and(|it| it < PROMPT_MILLIS)
    };
    let found = match server.status.as_str() {
        // No answer yet.
        "" | "INI" | "UNK" => return None,
        "L7OK" | "L7STS" if is_late(server) && controlled(haproxy).any(is_prompt) => {
            let millis = server.duration_millis.unwrap_or_default();
            let problem = format!("its agent answers in {millis} ms, those of others at once");
            let fix = format!(
                "add agent-send \"{at}\\n\" to the server, or remove agent-send everywhere"
            );
            return Some(Finding::new(Code::AgentSendMissing, at, problem, fix));
        }
        "L7OK" | "L7STS" => return None,
        "CHECKED" => {
            let problem = "the agent answers with an empty line";
            let fix = format!(
                "put \"{at}\", or what agent-send has, into the identities of the service at this server's agent; \
                 see that agent-addr and agent-port are that agent's"
            );
            let code = Code::AgentUnknownIdentity;
            return Some(Finding::new(code, at, problem, fix));
        }
        status => match server.last_said.as_str() {
            "" => status.to_owned(),
            said => format!("{status}, {said}"),
        },
    };
    let fix = match server.status.as_str() {
        "L4CON" => {
            "check that the agent runs, and that agent_check.listen is the address that HAProxy polls"
        }
        "L7TOUT" => {
            "see plimsoll node status there; where the agent is well, agent-send is missing here and other servers have it: \
             --haproxy-config shows that"
        }
        _ => "check that HAProxy reaches the agent's port, also through firewalls",
    };
    Some(Finding::new(
        Code::AgentSilent,
        at,
        format!("the agent check fails: {found}"),
        fix,
    ))
}

fn algorithms(haproxy: &Haproxy) -> Vec<Finding> {
    let backends: BTreeSet<&str> = controlled(haproxy)
        .map(|server| server.backend.as_str())
        .collect();
    let mut found = Vec::new();
    for backend in backends {
        let algorithm = haproxy.algorithms.get(backend).map_or("", String::as_str);
        // HAProxy does not report the type of a hash, but its status shows when a weight is refused.
        let refused = controlled(haproxy).any(|server| {
            server.backend == backend && server.last_said.contains("static LB algorithm")
        });
        if !refused && !["static-rr", "first"].contains(&algorithm) {
            continue;
        }
        let problem = match (algorithm, refused) {
            ("static-rr" | "first", _) => format!("balance {algorithm}"),
            ("", _) => "HAProxy refused a weight".to_owned(),
            (_, _) => format!("balance {algorithm} with hash-type map-based refused a weight"),
        };
        let code = Code::BalanceIgnoresWeights;
        found.push(Finding::new(
            code,
            backend,
            problem,
            format!("use {DYNAMIC}"),
        ));
    }
    found
}

/// Services that report agent checks for this server, with their agents.
fn asked<'a>(
    agents: &'a [Agent],
    server: &Server,
) -> impl Iterator<Item = (&'a Agent, &'a str, &'a Service)> {
    let identity = server.identity();
    let services = agents.iter().flat_map(|agent| {
        let of_agent = agent.services.iter();
        of_agent.map(move |(name, service)| (agent, name.as_str(), service))
    });
    services.filter(move |(_, _, service)| service.identities.contains(&identity))
}

fn limit(agents: &[Agent], server: &Server) -> Option<Finding> {
    if server.agent == AgentCheck::None {
        return None;
    }
    let identity = server.identity();
    let mut last = None;
    for (look, limit) in server.limits.iter().enumerate() {
        let mut told = BTreeSet::new();
        for (_, _, service) in asked(agents, server) {
            let look = service.told.get(look)?.get(&identity);
            told.extend(look.into_iter().flatten().copied());
        }
        if told.is_empty() || limit.is_some_and(|limit| told.contains(&limit)) {
            return None;
        }
        last = Some((told, *limit));
    }
    let (told, limit) = last?;
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    let has = limit.map_or("none".to_owned(), |limit| limit.to_string());
    Some(Finding::new(
        Code::MaxconnNotFollowing,
        identity,
        format!(
            "the limit in force is {has}, the agent answered {}",
            told.join(" or ")
        ),
        "see who else sets it: set maxconn by hand, minconn on the server, another process; a shorter agent-inter corrects it sooner",
    ))
}

fn others(agents: &[Agent], haproxy: &Haproxy) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut answered: BTreeMap<(&str, &str, &str), Vec<&Server>> = BTreeMap::new();
    for server in controlled(haproxy) {
        for (agent, name, service) in asked(agents, server) {
            let of = (agent.at.as_str(), name, server.backend.as_str());
            answered.entry(of).or_default().push(server);
            let own = service.address.as_deref();
            // Compare numeric addresses only: a host name may stand for the same address.
            let is_numeric = |it: &&str| it.parse::<std::net::SocketAddr>().is_ok();
            let own = own.filter(is_numeric).filter(|it| *it != server.address);
            if let Some(own) = own.filter(|_| is_numeric(&server.address.as_str())) {
                found.push(Finding::new(
                    Code::AgentOfAnotherServer,
                    server.identity(),
                    format!(
                        "the server is {}, its agent {} answers for {own}",
                        server.address, agent.at
                    ),
                    "correct agent-addr, agent-port or agent-send of the server, or address of the agent's service",
                ));
            }
        }
    }
    for ((agent, service, _), servers) in answered {
        let addresses: BTreeSet<&str> = servers.iter().map(|it| it.address.as_str()).collect();
        if addresses.len() < 2 {
            continue;
        }
        let names: Vec<String> = servers.iter().map(|it| it.identity()).collect();
        found.push(Finding::new(
            Code::AgentOfAnotherServer,
            &names[0],
            format!(
                "service {service} of the agent {agent} answers for {}, which are different servers",
                names.join(" and ")
            ),
            "give each server its own agent in agent-addr and agent-port, and each agent its own server's identity alone",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str) -> Server {
        Server {
            backend: "q".into(),
            name: name.into(),
            address: format!("192.0.2.1{name}:80"),
            weight: 100,
            agent: AgentCheck::On,
            is_in_maintenance: false,
            status: "L7OK".into(),
            duration_millis: Some(1),
            last_said: "via agent : up".into(),
            limits: vec![Some(18); 3],
        }
    }

    fn agent(name: &str) -> Agent {
        let identity = format!("q/{name}");
        let told = BTreeMap::from([(identity.clone(), BTreeSet::from([18]))]);
        let service = Service {
            address: Some(format!("192.0.2.1{name}:80")),
            identities: BTreeSet::from([identity]),
            told: vec![told; 3],
            ..Service::default()
        };
        Agent {
            at: format!("192.0.2.1{name}:9464"),
            services: BTreeMap::from([("q".to_owned(), service)]),
            ..Agent::default()
        }
    }

    fn told(change: impl Fn(&mut Haproxy, &mut [Agent])) -> Vec<(&'static str, String)> {
        let mut haproxy = Haproxy {
            servers: vec![server("1"), server("2")],
            algorithms: BTreeMap::from([("q".to_owned(), "uri".to_owned())]),
            ..Haproxy::default()
        };
        let mut agents = vec![agent("1"), agent("2")];
        change(&mut haproxy, &mut agents);
        let seen = Snapshot {
            haproxys: vec![haproxy],
            agents,
            ..Snapshot::default()
        };
        let found = findings(&seen).into_iter();
        found.map(|it| (it.code.word(), it.at)).collect()
    }

    fn one(code: &'static str, at: &str) -> Vec<(&'static str, String)> {
        vec![(code, at.to_owned())]
    }

    #[test]
    fn a_set_up_in_order_has_no_findings() {
        assert_eq!(told(|_, _| {}), []);
        // No server is controlled.
        let off = |it: &mut Server| {
            it.agent = AgentCheck::None;
            it.weight = 1;
        };
        assert_eq!(told(|it, _| it.servers.iter_mut().for_each(off)), []);
        // Controlled by the policy `limits`.
        let ruled = |it: &mut Server| it.agent = AgentCheck::Off;
        assert_eq!(told(|it, _| it.servers.iter_mut().for_each(ruled)), []);
        // An unused slot of a server template.
        let unfilled = |it: &mut Server| {
            it.is_in_maintenance = true;
            it.status = "L4CON".into();
        };
        assert_eq!(told(|it, _| unfilled(&mut it.servers[0])), []);
        // No check has run yet.
        assert_eq!(told(|it, _| it.servers[0].status = "INI".into()), []);
    }

    #[test]
    fn each_change_of_a_server_makes_its_finding() {
        type Change = fn(&mut Server);
        let changes: [(Change, &str); 8] = [
            (|it| it.agent = AgentCheck::None, "agent-check-missing"),
            (|it| it.agent = AgentCheck::Off, "agent-check-off"),
            (|it| it.status = "L4CON".into(), "agent-silent"),
            (|it| it.status = "L7TOUT".into(), "agent-silent"),
            (|it| it.status = "CHECKED".into(), "agent-unknown-identity"),
            (|it| it.duration_millis = Some(203), "agent-send-missing"),
            (|it| it.weight = 1, "weight-small"),
            (|it| it.weight = 99, "weight-small"),
        ];
        for (change, code) in changes {
            assert_eq!(told(|it, _| change(&mut it.servers[1])), one(code, "q/2"));
        }
    }

    #[test]
    fn slow_agents_alone_do_not_show_that_a_line_is_missing() {
        let slow = |it: &mut Haproxy| {
            for server in &mut it.servers {
                server.duration_millis = Some(203);
            }
        };
        assert_eq!(told(|it, _| slow(it)), []);
    }

    #[test]
    fn algorithms_without_weights_are_found_by_name_or_by_what_haproxy_says() {
        let code = "balance-ignores-weights";
        let named = |it: &mut Haproxy| it.algorithms.insert("q".into(), "static-rr".into());
        assert_eq!(told(|it, _| drop(named(it))), one(code, "q"));
        let words =
            "via agent : up (Backend is using a static LB algorithm and only accepts weights";
        let said = |it: &mut Haproxy| it.servers[0].last_said = words.into();
        assert_eq!(told(|it, _| said(it)), one(code, "q"));
    }

    #[test]
    fn a_limit_that_follows_late_is_none_of_another() {
        let code = "maxconn-not-following";
        assert_eq!(
            told(|it, _| it.servers[0].limits = vec![Some(30); 3]),
            one(code, "q/1")
        );
        assert_eq!(
            told(|it, _| it.servers[0].limits = vec![None; 3]),
            one(code, "q/1")
        );
        let once = vec![Some(30), Some(18), Some(30)];
        assert_eq!(told(|it, _| it.servers[0].limits = once.clone()), []);
        // The agent's answer is unknown.
        assert_eq!(
            told(|it, agents| {
                it.servers[0].limits = vec![None; 3];
                agents[0] = Agent::default();
            }),
            []
        );
    }

    #[test]
    fn agents_that_answer_for_others_are_found() {
        let code = "agent-of-another-server";
        let swap = |agents: &mut [Agent]| {
            for agent in agents {
                if let Some(service) = agent.services.get_mut("q") {
                    service.address = Some("192.0.2.12:80".into());
                }
            }
        };
        assert_eq!(told(|_, agents| swap(agents)), one(code, "q/1"));
        let both = |agents: &mut [Agent]| {
            if let Some(service) = agents[0].services.get_mut("q") {
                service.address = None;
                service.identities.insert("q/2".into());
            }
            agents[1] = Agent::default();
        };
        assert_eq!(told(|_, agents| both(agents)), one(code, "q/1"));
        let name = |agents: &mut [Agent]| {
            if let Some(service) = agents[0].services.get_mut("q") {
                service.address = Some("node1.example:80".into());
            }
        };
        assert_eq!(told(|_, agents| name(agents)), []);
    }
}
