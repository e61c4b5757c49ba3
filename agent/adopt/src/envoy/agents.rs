//! The agents' configurations, as in docs/envoy.md.

use std::fmt::Write;

use toml::Value;

use super::{
    AGENT_PORT, Wish,
    endpoints::{Endpoint, Host},
};
use crate::agents::{Agent, OBSERVE, STATE, UNKNOWN, placeholder};

/// Creates the configuration of each node's agent.
pub fn agents(endpoints: &[Endpoint], wish: &Wish) -> Vec<Agent> {
    let peers: Vec<Value> = endpoints
        .iter()
        .map(|it| format!("http://{}:{AGENT_PORT}", it.host.bracketed()).into())
        .collect();
    let peers = Value::from(peers).to_string();
    endpoints
        .iter()
        .map(|endpoint| agent(endpoint, &peers, wish))
        .collect()
}

fn agent(endpoint: &Endpoint, peers: &str, wish: &Wish) -> Agent {
    let known = match &endpoint.host {
        Host::Ip(_) => Some(endpoint.host.bracketed()),
        Host::Name(name) => {
            let mut found = (wish.resolve)(name);
            found.sort_by_key(|ip| ip.is_ipv6());
            found.first().map(|ip| Host::Ip(*ip).bracketed())
        }
    };
    let note = placeholder(known.is_none());
    let at = known.unwrap_or_else(|| UNKNOWN.to_owned());
    let quoted = |text: &str| Value::from(text).to_string();
    let service = quoted(&format!("{}:{}", endpoint.host.bracketed(), endpoint.port));
    let period = match wish.sla_milliseconds {
        10.0..1000.0 => wish.sla,
        ..10.0 => "10ms",
        _ => "1s",
    };
    let mut text = format!(
        "[agent]\nperiod = {}\n{STATE}\n\n[http]\nlisten = {}{note}\n\n[control]\n\
         socket = \"/run/plimsoll/control.sock\"\n\n\
         [envoy]\npeers = {peers}\n\n[[service]]\nname = {}\n",
        quoted(period),
        quoted(&format!("{at}:{AGENT_PORT}")),
        quoted(wish.cluster),
    );
    if !wish.enforce {
        let _ = writeln!(text, "{OBSERVE}");
    }
    let _ = write!(
        text,
        "address = {service}\n\n[service.sla]\ndelay = {}\n\n[service.source]\nkind = \"prometheus\"\nurl = {}\n\
         histogram = {}\n",
        quoted(wish.sla),
        quoted(wish.metrics),
        quoted(wish.histogram),
    );
    if let Some(gauge) = wish.gauge {
        let _ = write!(
            text,
            "\n[service.jobs]\nkind = \"prometheus\"\ngauge = {}\n",
            quoted(gauge)
        );
    }
    let _ = write!(
        text,
        "\n[service.health]\nkind = \"tcp\"\naddress = {service}\n"
    );
    Agent {
        host: endpoint.host.to_string(),
        file: format!("{}.toml", endpoint.host.to_string().replace(':', "-")),
        text,
    }
}
