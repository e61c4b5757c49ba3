//! Calls of the placement function library.

use std::time::Duration;

use anyhow::{Context, bail};
use plimsoll_wire::{placement_keys, ring_keys};
use redis::{Cmd, Value};

use super::{PlacementSettings, replication::Standing};
use crate::{
    functions,
    ring::{LinkMode, LinkSettings, RingNodes, Server, live_nodes},
};

/// Result of claiming the role of keeper.
#[derive(Debug)]
pub enum Claimed {
    /// This agent is the keeper.
    Keeper {
        /// Epoch of the new term.
        epoch: u64,
        /// Whether the Redis server is the one of the previous term, so that no earlier write can have been lost.
        is_same_server: bool,
    },
    /// Another agent is the keeper.
    Other,
}

/// A dispatcher's state as read by the keeper.
#[derive(Debug)]
pub struct Told {
    /// Its id.
    pub id: String,
    /// Time since its last message.
    pub age: Duration,
    /// Version of the table that it last reported.
    pub version: u64,
    /// Version of the table when it joined.
    pub joined: u64,
    /// Busy sets, separated by spaces.
    pub busy: String,
}

/// Everything the keeper reads in a step.
#[derive(Debug)]
pub struct Read {
    /// Generation of the table; empty if there is none.
    pub generation: String,
    /// Version of the table.
    pub version: u64,
    /// A version that a dispatcher has used but Redis does not have; 0 if there is none.
    pub ahead: u64,
    /// Moves requested by operators: "set node …".
    pub wishes: String,
    /// Dispatchers that have joined.
    pub dispatchers: Vec<Told>,
    /// Dispatchers that are gone and left requests in doubt.
    pub gone: Vec<String>,
    /// Cost by set.
    pub loads: Vec<(String, f64)>,
}

/// Changes since the version that this agent knows.
#[derive(Debug)]
pub enum News {
    /// There is no table.
    None,
    /// Changes that continue from the known version.
    Changes {
        /// The dispatchers, if they changed.
        members: Members,
        /// Changes in order.
        deltas: Vec<String>,
    },
    /// The whole table.
    Table {
        /// The dispatchers.
        members: Members,
        /// Generation of the table.
        generation: String,
        /// Version of the table.
        version: u64,
        /// Alternating sets and states: "set", "state", …
        entries: Vec<String>,
    },
}

/// A counter that changes with the set of dispatchers, and their ids if it changed.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// The counter.
    pub number: u64,
    /// Ids, separated by spaces.
    pub ids: String,
}

/// State of the placement, for display.
#[derive(Debug)]
pub struct Status {
    /// Generation of the table; empty if there is none.
    pub generation: String,
    /// Version of the table.
    pub version: u64,
    /// Time until the table is released to dispatchers.
    pub open_in: Duration,
    /// Id of the keeper; empty if there has been none.
    pub keeper: String,
    /// Epoch of the keeper.
    pub epoch: u64,
    /// Remaining time of the keeper's lease.
    pub lease_left: Duration,
    /// The last plan, as JSON.
    pub plan: String,
    /// Dispatchers: id, time since the last message, version.
    pub dispatchers: Vec<(String, Duration, u64)>,
    /// Dispatchers that are gone: id, time since then.
    pub gone: Vec<(String, Duration)>,
}

/// A connection for one cluster, shared by its clones.
#[derive(Clone)]
pub struct Calls {
    server: Server,
    keys: [String; 7],
    ring_keys: [String; 5],
    mode: LinkMode,
    timeout: Duration,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").field("keys", &self.keys).finish()
    }
}

/// The elements of a response, in order.
struct Parts(std::vec::IntoIter<Value>);

impl Parts {
    fn of(answer: Value) -> anyhow::Result<Self> {
        let list: Vec<Value> = redis::from_redis_value(answer)?;
        Ok(Parts(list.into_iter()))
    }

    fn text(&mut self) -> anyhow::Result<String> {
        match self.0.next() {
            Some(Value::BulkString(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            _ => bail!("an answer that cannot be read"),
        }
    }

    fn whole(&mut self) -> anyhow::Result<u64> {
        match self.0.next() {
            Some(Value::Int(number)) => Ok(u64::try_from(number).unwrap_or(0)),
            _ => bail!("an answer that cannot be read"),
        }
    }

    fn millis(&mut self) -> anyhow::Result<Duration> {
        Ok(Duration::from_millis(self.whole()?))
    }

    fn rest(mut self) -> anyhow::Result<Vec<String>> {
        let mut texts = Vec::with_capacity(self.0.len());
        while self.0.len() > 0 {
            texts.push(self.text()?);
        }
        Ok(texts)
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

impl Calls {
    /// Connects, and loads the libraries if needed.
    pub async fn open(settings: &LinkSettings, cluster: &str) -> anyhow::Result<Self> {
        let mut server = Server::open(settings).await?;
        let (keys, ring_keys) = (placement_keys(cluster), ring_keys(cluster));
        server.load(&functions::PLACEMENT, &keys[0]).await?;
        // Placement also reads the ring's nodes, and the ring's own link may not have loaded that library yet.
        server.load(&functions::RING, &ring_keys[0]).await?;
        Ok(Calls {
            server,
            keys,
            ring_keys,
            mode: settings.mode,
            timeout: settings.timeout,
        })
    }

    fn call(&self, function: &str) -> Cmd {
        let mut command = redis::cmd("FCALL");
        let name = format!("plimsoll_placement_{function}");
        command.arg(name).arg(self.keys.len()).arg(&self.keys);
        command
    }

    async fn ask(&mut self, function: &str, command: &Cmd) -> anyhow::Result<Value> {
        let answer = self.server.query(command).await;
        answer.with_context(|| format!("plimsoll_placement_{function}"))
    }

    /// Replication state of the server; fails if the server cannot guarantee what `when_lost` promises.
    pub async fn standing(&mut self, settings: &PlacementSettings) -> anyhow::Result<Standing> {
        Standing::of(&mut self.server, &self.keys[0], self.mode, settings).await
    }

    /// Whether another server may replace this one without the connection ending.
    pub fn follows_servers(&self) -> bool {
        self.mode == LinkMode::Cluster
    }

    /// Waits until this many replicas have all writes of this connection.
    pub async fn replicated(&mut self, replicas: u64) -> anyhow::Result<()> {
        if replicas == 0 {
            return Ok(());
        }
        let mut command = redis::cmd("WAIT");
        // WAIT must return before the connection's own timeout.
        command.arg(replicas).arg(millis(self.timeout / 2).max(1));
        let have: u64 = self
            .server
            .query_at(command, &self.keys[0])
            .await
            .context("WAIT")?;
        if have < replicas {
            bail!("only {have} of Redis' replicas have the latest writes, must be {replicas}");
        }
        Ok(())
    }

    /// Claims the role of keeper.
    pub async fn claim(
        &mut self,
        agent: &str,
        settings: &PlacementSettings,
        standing: &Standing,
    ) -> anyhow::Result<Claimed> {
        let mut command = self.call("claim");
        command
            .arg(agent)
            .arg(millis(settings.lease))
            .arg(millis(settings.lease))
            .arg(millis(settings.request_limit))
            .arg(settings.when_lost.word())
            .arg(millis(standing.margin))
            .arg(&standing.history);
        let mut parts = Parts::of(self.ask("claim", &command).await?)?;
        match parts.text()?.as_str() {
            "keeper" => Ok(Claimed::Keeper {
                epoch: parts.whole()?,
                is_same_server: parts.whole()? == 1,
            }),
            _ => Ok(Claimed::Other),
        }
    }

    /// Releases the keeper's lease.
    pub async fn resign(&mut self, agent: &str, epoch: u64) -> anyhow::Result<()> {
        let mut command = self.call("resign");
        command.arg(agent).arg(epoch);
        self.ask("resign", &command).await?;
        Ok(())
    }

    /// Records that all hand-overs from before the server was replaced are settled.
    pub async fn settle(&mut self, agent: &str, epoch: u64, history: &str) -> anyhow::Result<()> {
        let mut command = self.call("settle");
        command.arg(agent).arg(epoch).arg(history);
        self.ask("settle", &command).await?;
        Ok(())
    }

    /// Reads the keeper's input; `passed` is the time since the response to the previous read.
    pub async fn read(
        &mut self,
        agent: &str,
        epoch: u64,
        settings: &PlacementSettings,
        with_loads: bool,
        plan: &str,
        passed: Duration,
    ) -> anyhow::Result<Read> {
        let mut command = self.call("read");
        command
            .arg(agent)
            .arg(epoch)
            .arg(millis(settings.lease))
            .arg(millis(settings.request_limit))
            .arg(u8::from(with_loads))
            .arg(plan)
            .arg(millis(passed));
        let mut parts = Parts::of(self.ask("read", &command).await?)?;
        let (generation, version) = (parts.text()?, parts.whole()?);
        let _open_in = parts.millis()?;
        let (ahead, wishes) = (parts.whole()?, parts.text()?);
        let (count, gone) = (parts.whole()?, parts.whole()?);
        let mut read = Read {
            generation,
            version,
            ahead,
            wishes,
            dispatchers: Vec::new(),
            gone: Vec::new(),
            loads: Vec::new(),
        };
        for _ in 0..count {
            read.dispatchers.push(Told {
                id: parts.text()?,
                age: parts.millis()?,
                version: parts.whole()?,
                joined: parts.whole()?,
                busy: parts.text()?,
            });
        }
        for _ in 0..gone {
            read.gone.push(parts.text()?);
            parts.millis()?;
        }
        for pair in parts.rest()?.chunks_exact(2) {
            if let Ok(cost) = pair[1].parse() {
                read.loads.push((pair[0].clone(), cost));
            }
        }
        Ok(read)
    }

    /// Publishes a table that does not continue the previous one.
    #[expect(clippy::too_many_arguments)]
    pub async fn open_table(
        &mut self,
        agent: &str,
        epoch: u64,
        generation: &str,
        version: u64,
        wait: Duration,
        ids: &str,
        entries: &str,
    ) -> anyhow::Result<()> {
        let mut command = self.call("open");
        command
            .arg(agent)
            .arg(epoch)
            .arg(generation)
            .arg(version)
            .arg(millis(wait))
            .arg(ids)
            .arg(entries);
        self.ask("open", &command).await?;
        Ok(())
    }

    /// Publishes changes to the table.
    pub async fn publish(
        &mut self,
        agent: &str,
        epoch: u64,
        generation: &str,
        delta: &str,
    ) -> anyhow::Result<()> {
        let mut command = self.call("publish");
        command.arg(agent).arg(epoch).arg(generation).arg(delta);
        self.ask("publish", &command).await?;
        Ok(())
    }

    /// Clears the report of a version that Redis does not have, after it proved wrong.
    pub async fn heed(&mut self, agent: &str, epoch: u64) -> anyhow::Result<()> {
        let mut command = self.call("heed");
        command.arg(agent).arg(epoch);
        self.ask("heed", &command).await?;
        Ok(())
    }

    /// Reads the changes since this version of this generation.
    pub async fn follow(
        &mut self,
        generation: &str,
        version: u64,
        members: u64,
    ) -> anyhow::Result<News> {
        let mut command = self.call("follow");
        command.arg(generation).arg(version).arg(members);
        let mut parts = Parts::of(self.ask("follow", &command).await?)?;
        let word = parts.text()?;
        if word == "none" {
            return Ok(News::None);
        }
        let members = Members {
            number: parts.whole()?,
            ids: parts.text()?,
        };
        if word == "table" {
            return Ok(News::Table {
                members,
                generation: parts.text()?,
                version: parts.whole()?,
                entries: parts.rest()?,
            });
        }
        parts.whole()?;
        Ok(News::Changes {
            members,
            deltas: parts.rest()?,
        })
    }

    /// Reads the state of the placement for display.
    pub async fn status(&mut self) -> anyhow::Result<Status> {
        let command = self.call("status");
        let mut parts = Parts::of(self.ask("status", &command).await?)?;
        let mut status = Status {
            generation: parts.text()?,
            version: parts.whole()?,
            open_in: parts.millis()?,
            keeper: parts.text()?,
            epoch: parts.whole()?,
            lease_left: parts.millis()?,
            plan: String::new(),
            dispatchers: Vec::new(),
            gone: Vec::new(),
        };
        // Read but unused: the agent's own settings may differ from the keeper's.
        parts.whole()?;
        parts.whole()?;
        parts.text()?;
        status.plan = parts.text()?;
        let (count, gone) = (parts.whole()?, parts.whole()?);
        for _ in 0..count {
            let told = (parts.text()?, parts.millis()?, parts.whole()?);
            status.dispatchers.push(told);
        }
        for _ in 0..gone {
            status.gone.push((parts.text()?, parts.millis()?));
        }
        Ok(status)
    }

    /// Removes a dispatcher; returns whether it existed.
    pub async fn forget(&mut self, id: &str) -> anyhow::Result<bool> {
        let mut command = self.call("forget");
        command.arg(id);
        let answer = self.ask("forget", &command).await?;
        Ok(answer == Value::Int(1))
    }

    /// Asks the keeper to move a set.
    pub async fn wish(&mut self, set: &str, node: &str) -> anyhow::Result<()> {
        let mut command = self.call("wish");
        command.arg(set).arg(node);
        self.ask("wish", &command).await?;
        Ok(())
    }

    /// Relays a dispatcher's call and returns the raw response.
    pub async fn carry(&mut self, function: &str, words: &[&str]) -> anyhow::Result<Value> {
        let mut command = self.call(function);
        command.arg(words);
        self.ask(function, &command).await
    }

    /// Version of the ring and its live nodes.
    pub async fn nodes(&mut self) -> anyhow::Result<(u64, RingNodes)> {
        live_nodes(&mut self.server, &self.ring_keys).await
    }
}
