//! Queries Redis as the agents' user.

use std::time::Duration;

use plimsoll_net::without_user;
use plimsoll_node::{
    functions::{PLACEMENT, RING},
    ring::{LinkSettings, Server, told},
};
use redis::{Cmd, cmd};
use tokio::time::{Instant, timeout};

use super::{haproxy::unix_now, shown};
use crate::snapshot::{Clock, Redis};

/// Selects a server of a cluster by its hash slot; the key is neither read nor written.
const KEY: &str = "plimsoll:{doctor}";

pub async fn ask(settings: &LinkSettings, patience: Duration) -> Result<Redis, String> {
    match timeout(3 * patience, heard(settings)).await {
        Ok(answer) => answer.map_err(|problem| told(&problem)),
        Err(_) => Err(format!("no whole answer within {:?}", 3 * patience)),
    }
}

async fn heard(settings: &LinkSettings) -> anyhow::Result<Redis> {
    let mut server = Server::open(settings).await?;
    let asked = Instant::now();
    let time: (f64, f64) = server.query_at(cmd("TIME"), KEY).await?;
    let (now, took) = (unix_now(), asked.elapsed().as_secs_f64());
    // Users for rings alone do not need +info.
    let replication = info(&mut server, "replication").await.unwrap_or_default();
    let of_server = info(&mut server, "server").await.unwrap_or_default();
    let replicas = field(&replication, "connected_slaves");
    let replicas = replicas
        .and_then(|count| count.parse().ok())
        .unwrap_or_default();
    let was_replica = field(&replication, "second_repl_offset").is_some_and(|it| it != "-1");
    let is_single = settings.mode == plimsoll_node::ring::LinkMode::Single;
    let mut libraries = Vec::new();
    for (name, library) in [("plimsoll", RING), ("plimsoll_placement", PLACEMENT)] {
        let mut call = cmd("FCALL");
        call.arg(library.asks).arg(1).arg(KEY);
        // Without the library, or the right to call it, there is nothing to compare.
        let there = server.query_at(call, KEY).await.unwrap_or(0_i64);
        libraries.push((name.to_owned(), there, library.version));
    }
    let min_replicas = number(option(&mut server, "min-replicas-to-write").await);
    let max_lag = number(option(&mut server, "min-replicas-max-lag").await);
    let is_protected = option(&mut server, "protected-mode").await;
    let bind = option(&mut server, "bind").await;
    Ok(Redis {
        at: shown(&without_user(&settings.urls.join(", "))),
        version: shown(field(&of_server, "redis_version").unwrap_or_default()),
        clock: Some(Clock {
            ahead: time.0 + time.1 / 1e6 - (now - took / 2.0),
            error: took,
        }),
        libraries,
        replicas,
        is_replaceable: !is_single || replicas > 0 || was_replica,
        min_replicas: min_replicas.zip(max_lag),
        is_without_password: settings.password.is_none(),
        bind: bind.filter(|_| is_protected.as_deref() == Some("no")),
    })
}

async fn info(server: &mut Server, section: &str) -> anyhow::Result<String> {
    server.query_at(with("INFO", section), KEY).await
}

fn with(name: &str, argument: &str) -> Cmd {
    let mut command = cmd(name);
    command.arg(argument);
    command
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Reads a configuration option; `None` for users without `+config|get`.
async fn option(server: &mut Server, name: &str) -> Option<String> {
    let mut command = with("CONFIG", "GET");
    command.arg(name);
    let told: Vec<String> = server.query_at(command, KEY).await.ok()?;
    told.get(1).map(|value| shown(value))
}

fn number(text: Option<String>) -> Option<u64> {
    text?.parse().ok()
}
