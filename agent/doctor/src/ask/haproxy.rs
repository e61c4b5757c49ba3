//! Queries HAProxy's stats socket.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use plimsoll_net::{DatabaseAddress, connect};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout},
};

use super::shown;
use crate::snapshot::{AgentCheck, Clock, Haproxy, Server};

/// `show stat` has about 700 bytes per server.
const MAX_BYTES: u64 = 32 << 20;
/// Value of `srv_agent_state`: configured and enabled.
const CONFIGURED: u32 = 2;
const ENABLED: u32 = 4;
/// Bits of `srv_admin_state`: maintenance by an operator, by a tracked server, by a resolver, or because there is no
/// address.
const MAINTENANCE: u32 = 0x01 | 0x02 | 0x20 | 0x40;

pub async fn ask(socket: DatabaseAddress, patience: Duration) -> (String, Result<Haproxy, String>) {
    let at = socket.to_string();
    let answer = heard(&socket, &at, patience).await;
    (at, answer)
}

async fn heard(socket: &DatabaseAddress, at: &str, patience: Duration) -> Result<Haproxy, String> {
    let command = async |words| command(socket, words, patience).await;
    let info = command("show info").await?;
    let version = info
        .lines()
        .find_map(|line| line.strip_prefix("Version:"))
        .ok_or("what answers is not HAProxy's stats socket: show info tells no version")?;
    let asked = Instant::now();
    let activity = command("show activity").await?;
    let clock = clock(&activity, unix_now(), asked.elapsed().as_secs_f64());
    let mut servers = servers(&command("show servers state").await?)?;
    let algorithms = stats(&command("show stat").await?, &mut servers)?;
    // Refused below level operator; such a socket does not reveal others.
    let sockets = command("show cli sockets").await?;
    Ok(Haproxy {
        at: at.to_owned(),
        version: shown(version.trim()),
        clock,
        open_sockets: open_sockets(&sockets),
        algorithms,
        servers,
    })
}

async fn command(
    socket: &DatabaseAddress,
    words: &str,
    patience: Duration,
) -> Result<String, String> {
    let exchange = async {
        let mut stream = connect(socket).await?;
        let line = format!("{words}\n");
        let sent = stream.write_all(line.as_bytes()).await;
        sent.map_err(|error| format!("{words}: {error}"))?;
        let mut answer = Vec::new();
        let read = stream.take(MAX_BYTES).read_to_end(&mut answer).await;
        read.map_err(|error| format!("{words}: {error}"))?;
        if answer.len() as u64 == MAX_BYTES {
            return Err(format!("{words}: the answer has over {MAX_BYTES} bytes"));
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    match timeout(patience, exchange).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("{words}: no whole answer within {patience:?}")),
    }
}

pub fn unix_now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |it| it.as_secs_f64())
}

/// Computes the clock from a time that was reported within the last `took` seconds.
fn clock(activity: &str, now: f64, took: f64) -> Option<Clock> {
    let mut lines = activity.lines();
    let told = lines.find_map(|line| line.strip_prefix("date_now:"))?;
    let told: f64 = told.trim().parse().ok()?;
    Some(Clock {
        ahead: told - (now - took / 2.0),
        error: took,
    })
}

fn servers(text: &str) -> Result<Vec<Server>, String> {
    let strange =
        || "show servers state: the answer is not what HAProxy 2.6 and later give".to_owned();
    let mut lines = text.lines().skip(1);
    let head = lines.next().and_then(|line| line.strip_prefix("# "));
    let names: Vec<&str> = head.ok_or_else(strange)?.split(' ').collect();
    let mut found = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let values: HashMap<&str, &str> = names.iter().copied().zip(line.split(' ')).collect();
        let of = |name: &str| values.get(name).copied();
        let text = |name: &str| of(name).ok_or_else(strange);
        let number = |name: &str| {
            of(name)
                .and_then(|it| it.parse::<u32>().ok())
                .ok_or_else(strange)
        };
        let state = number("srv_agent_state")?;
        let agent = match (state & CONFIGURED != 0, state & ENABLED != 0) {
            (false, _) => AgentCheck::None,
            (true, false) => AgentCheck::Off,
            (true, true) => AgentCheck::On,
        };
        let (host, port) = (text("srv_addr")?, text("srv_port")?);
        let address = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        found.push(Server {
            backend: shown(text("be_name")?),
            name: shown(text("srv_name")?),
            address: shown(&address),
            weight: number("srv_iweight")?,
            agent,
            is_in_maintenance: number("srv_admin_state")? & MAINTENANCE != 0,
            limits: vec![None],
            ..Server::default()
        });
    }
    Ok(found)
}

/// Adds statistics to the servers, and returns the backends' algorithms.
fn stats(text: &str, servers: &mut [Server]) -> Result<BTreeMap<String, String>, String> {
    let strange = |problem: &dyn std::fmt::Display| format!("show stat: {problem}");
    let text = text.trim_start().trim_start_matches("# ");
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .from_reader(text.as_bytes());
    let names = reader.headers().map_err(|error| strange(&error))?.clone();
    if names.get(0) != Some("pxname") {
        return Err(strange(&"the answer has no header"));
    }
    let place = |name: &str| names.iter().position(|it| it == name);
    let mut by_name: HashMap<(String, String), &mut Server> = HashMap::new();
    for server in servers {
        by_name.insert((server.backend.clone(), server.name.clone()), server);
    }
    let mut algorithms = BTreeMap::new();
    for row in reader.records() {
        let row = row.map_err(|error| strange(&error))?;
        let of = |name: &str| place(name).and_then(|it| row.get(it)).unwrap_or_default();
        let key = (shown(of("pxname")), shown(of("svname")));
        if key.1 == "BACKEND" {
            algorithms.insert(key.0, shown(of("algo")));
            continue;
        }
        let Some(server) = by_name.get_mut(&key) else {
            continue;
        };
        server.status = shown(of("agent_status").trim_start_matches("* "));
        server.duration_millis = of("agent_duration").parse().ok();
        server.last_said = shown(of("last_agt").trim());
        server.limits = vec![of("slim").parse().ok()];
    }
    Ok(algorithms)
}

/// Command sockets on TCP.
fn open_sockets(text: &str) -> Vec<(String, String)> {
    let sockets = text.lines().filter(|line| line.starts_with("ipv"));
    let parts = sockets.map(|line| {
        let mut words = line.split(' ').map(shown);
        (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        )
    });
    parts.collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const STATE: &str = "1\n# be_id be_name srv_id srv_name srv_addr srv_admin_state srv_iweight srv_agent_state srv_port\n\
                         3 q 1 n1 192.0.2.11 32 100 22 80\n3 q 2 n2 2001:db8::1 0 1 18 81\n3 q 3 n3 192.0.2.13 4 1 16 82\n\n";

    #[test]
    fn answers_are_read() {
        let mut found = servers(STATE).unwrap();
        let agents: Vec<_> = found.iter().map(|it| it.agent).collect();
        assert_eq!(agents, [AgentCheck::On, AgentCheck::Off, AgentCheck::None]);
        let out: Vec<_> = found.iter().map(|it| it.is_in_maintenance).collect();
        assert_eq!(out, [true, false, false]);
        assert_eq!(found[1].address, "[2001:db8::1]:81");
        let stat = "# pxname,svname,slim,agent_status,agent_duration,last_agt,algo,\n\
                    q,n1,18,* L7OK,3,\"via agent : up (a \"\"b\"\",\n)\",,\nq,gone,,,,,,\nq,BACKEND,9,,,,uri,\n";
        let algorithms = stats(stat, &mut found).unwrap();
        assert_eq!(algorithms["q"], "uri");
        let first = &found[0];
        assert_eq!((first.status.as_str(), first.limits[0]), ("L7OK", Some(18)));
        assert_eq!(first.last_said, "via agent : up (a \"b\",?)");
        let sockets = "# socket lvl processes\nunix@/a admin all\nipv4@0.0.0.0:99 operator all\n";
        assert_eq!(
            open_sockets(sockets),
            [("ipv4@0.0.0.0:99".into(), "operator".into())]
        );
        let clock = clock("thread_id: 1\ndate_now: 1000.5\n", 998.0, 1.0).unwrap();
        assert_eq!((clock.ahead, clock.error), (3.0, 1.0));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "Permission denied\n",
            "1\n# be_name\nq q",
            "\u{0}\n\n\n",
        ] {
            assert!(servers(text).is_err(), "{text}");
            assert!(stats(text, &mut []).is_err(), "{text}");
        }
        assert_eq!(open_sockets("Permission denied\n"), []);
        assert_eq!(clock("date_now: soon", 0.0, 0.0), None);
    }
}
