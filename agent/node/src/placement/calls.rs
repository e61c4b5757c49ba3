//! The calls of placement's function library.

use std::time::Duration;

use anyhow::{Context, bail};
use plimsoll_wire::{placement_keys, ring_keys};
use redis::{Cmd, Value};

use super::{PlacementSettings, replication::Standing};
use crate::{
    functions,
    ring::{LinkMode, LinkSettings, RingNodes, Server, live_nodes},
};

/// What to be the keeper was answered.
#[derive(Debug)]
pub enum Claimed {
    /// It is.
    Keeper {
        /// With this one.
        epoch: u64,
        /// Nothing can be lost of what was written before.
        is_same_server: bool,
    },
    /// Another agent is.
    Other,
}

/// A dispatcher as the keeper reads of it.
#[derive(Debug)]
pub struct Told {
    /// Its id.
    pub id: String,
    /// Since it was heard.
    pub age: Duration,
    /// The version it told.
    pub version: u64,
    /// The version it joined at.
    pub joined: u64,
    /// Sets, blank-separated.
    pub busy: String,
}

/// What the keeper reads.
#[derive(Debug)]
pub struct Read {
    /// Empty where there is no table.
    pub generation: String,
    /// Of the table.
    pub version: u64,
    /// A version that somebody acted on and Redis does not know, or 0.
    pub ahead: u64,
    /// "set node …".
    pub wishes: String,
    /// All that have joined.
    pub dispatchers: Vec<Told>,
    /// Those that went and left doubt.
    pub gone: Vec<String>,
    /// Sets and costs.
    pub loads: Vec<(String, f64)>,
}

/// What an agent lacks.
#[derive(Debug)]
pub enum News {
    /// There is no table.
    None,
    /// It goes on from the version that is known.
    Changes {
        /// Who is there, where that changed.
        members: Members,
        /// In order.
        deltas: Vec<String>,
    },
    /// All of it.
    Table {
        /// Who is there.
        members: Members,
        /// Of which table.
        generation: String,
        /// Its version.
        version: u64,
        /// "set", "state", …
        entries: Vec<String>,
    },
}

/// The number that changes with who is there, and their ids where it did.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// The number.
    pub number: u64,
    /// Ids, blank-separated.
    pub ids: String,
}

/// For people.
#[derive(Debug)]
pub struct Status {
    /// Empty where there is no table.
    pub generation: String,
    /// Of the table.
    pub version: u64,
    /// Before that nobody is told of it.
    pub open_in: Duration,
    /// Its id; empty where there has been none.
    pub keeper: String,
    /// Its epoch.
    pub epoch: u64,
    /// For so long it still has the lease.
    pub lease_left: Duration,
    /// The last plan.
    pub plan: String,
    /// Id, silence, version.
    pub dispatchers: Vec<(String, Duration, u64)>,
    /// Id, since when.
    pub gone: Vec<(String, Duration)>,
}

/// A connection for one cluster; its clones share it.
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

/// An answer's parts, in order.
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
    /// Connects, and sees to the libraries.
    pub async fn open(settings: &LinkSettings, cluster: &str) -> anyhow::Result<Self> {
        let mut server = Server::open(settings).await?;
        let (keys, ring_keys) = (placement_keys(cluster), ring_keys(cluster));
        server.load(&functions::PLACEMENT, &keys[0]).await?;
        // Of its nodes it asks the ring's, which the ring's own link may not have loaded yet.
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

    /// How the server stands; an error where it cannot promise what `when_lost` does.
    pub async fn standing(&mut self, settings: &PlacementSettings) -> anyhow::Result<Standing> {
        Standing::of(&mut self.server, &self.keys[0], self.mode, settings).await
    }

    /// Another server may take this one's place without the connection ending.
    pub fn follows_servers(&self) -> bool {
        self.mode == LinkMode::Cluster
    }

    /// Waits until so many replicas have all that was written over this connection.
    pub async fn replicated(&mut self, replicas: u64) -> anyhow::Result<()> {
        if replicas == 0 {
            return Ok(());
        }
        let mut command = redis::cmd("WAIT");
        // An answer must come before it is given up.
        command.arg(replicas).arg(millis(self.timeout / 2).max(1));
        let have: u64 = self
            .server
            .query_at(command, &self.keys[0])
            .await
            .context("WAIT")?;
        if have < replicas {
            bail!("{have} of Redis' replicas have what was written, must be {replicas}");
        }
        Ok(())
    }

    /// Asks to be the keeper.
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

    /// Gives the lease up.
    pub async fn resign(&mut self, agent: &str, epoch: u64) -> anyhow::Result<()> {
        let mut command = self.call("resign");
        command.arg(agent).arg(epoch);
        self.ask("resign", &command).await?;
        Ok(())
    }

    /// All that was on its way when another server was replaced has been settled.
    pub async fn settle(&mut self, agent: &str, epoch: u64, history: &str) -> anyhow::Result<()> {
        let mut command = self.call("settle");
        command.arg(agent).arg(epoch).arg(history);
        self.ask("settle", &command).await?;
        Ok(())
    }

    /// All that the keeper goes by; `passed` is its time since the last reading was answered.
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

    /// A table that does not go on from the one before.
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

    /// The table goes on.
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

    /// Who told a version that is not was wrong.
    pub async fn heed(&mut self, agent: &str, epoch: u64) -> anyhow::Result<()> {
        let mut command = self.call("heed");
        command.arg(agent).arg(epoch);
        self.ask("heed", &command).await?;
        Ok(())
    }

    /// What is new since this version of this generation.
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

    /// How it is, for people.
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
        // What this agent's own configuration says may differ from what the keeper does.
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

    /// Whether there was a dispatcher of that id to forget.
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

    /// A dispatcher's call, as it comes back.
    pub async fn carry(&mut self, function: &str, words: &[&str]) -> anyhow::Result<Value> {
        let mut command = self.call(function);
        command.arg(words);
        self.ask(function, &command).await
    }

    /// The ring's version and the live nodes.
    pub async fn nodes(&mut self) -> anyhow::Result<(u64, RingNodes)> {
        live_nodes(&mut self.server, &self.ring_keys).await
    }
}
