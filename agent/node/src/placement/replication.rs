//! How Redis is replicated, and what the keeper can guarantee with it.

use std::time::Duration;

use anyhow::{Context, bail};
use plimsoll_core::placement::Replication;

use super::{PlacementSettings, WhenLost};
use crate::ring::{LinkMode, Server};

/// Replication state at the start of a keeper's term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Identifies the history of the server's data; changes with each restart and promotion.
    pub history: String,
    /// Number of replicas that must have a published change before the keeper acts on it.
    pub replicas: u64,
    /// Extra time after its lease before a dispatcher with `when_lost = "hold"` is considered gone.
    pub margin: Duration,
}

impl Standing {
    /// Reads the state of the server that has `key`; fails if it cannot guarantee what `when_lost` promises.
    pub async fn of(
        server: &mut Server,
        key: &str,
        mode: LinkMode,
        settings: &PlacementSettings,
    ) -> anyhow::Result<Self> {
        let mut command = redis::cmd("INFO");
        command.arg("replication");
        let text: String = server.query_at(command, key).await.context("INFO")?;
        let field = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        if field("role") != Some("master") {
            bail!("is a replica, which accepts no writes: name the master, or its sentinels");
        }
        let history = field("master_replid").context("INFO has no master_replid")?;
        let replicas = field("connected_slaves").and_then(|count| count.parse().ok());
        let replicas = replicas.context("INFO has no connected_slaves")?;
        let was_replica = field("second_repl_offset") != Some("-1");
        let mut standing = Standing {
            history: history.to_owned(),
            replicas: u64::from(replicas > 0),
            margin: Duration::from_secs(1),
        };
        if settings.when_lost == WhenLost::Hold {
            let is_replaceable = mode != LinkMode::Single || replicas > 0 || was_replica;
            let mut replication = Replication {
                is_replaceable,
                replicas,
                min_replicas: 0,
                max_lag: 0,
            };
            if is_replaceable {
                replication.min_replicas = option(server, key, "min-replicas-to-write").await?;
                replication.max_lag = option(server, key, "min-replicas-max-lag").await?;
            }
            standing.margin = replication.hold_margin(settings.lease)?;
            standing.replicas = replication.min_replicas;
        }
        Ok(standing)
    }
}

async fn option(server: &mut Server, key: &str, name: &str) -> anyhow::Result<u64> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg(name);
    let told: Vec<String> = server.query_at(command, key).await.context("CONFIG GET")?;
    let value = told.get(1).and_then(|value| value.parse().ok());
    value.with_context(|| format!("CONFIG GET has no {name}"))
}
