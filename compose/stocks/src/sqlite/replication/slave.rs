//! The slave's side: follows the master, applies in order, and knows whether it is level.

use std::io::BufReader;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tracing::{info, warn};

use super::orders::Orders;
use super::wire::{FromMaster, FromSlave, receive, send};
use crate::metrics::Metrics;
use crate::sqlite::writer::{Position, SharedWriter};
use crate::transaction::{Order, Refusal, Transaction};

/// Between two attempts to reach the master.
const RECONNECT: Duration = Duration::from_millis(200);

pub struct Link {
    name: String,
    master: SocketAddr,
    timeout: Duration,
    writer: Arc<SharedWriter>,
    metrics: Arc<Metrics>,
    orders: Orders,
    /// When the master was last heard, while level with it.
    level: Mutex<Option<Instant>>,
}

impl Link {
    pub fn new(
        name: String,
        master: SocketAddr,
        timeout: Duration,
        writer: Arc<SharedWriter>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            name,
            master,
            timeout,
            writer,
            metrics,
            // A slave that dies holds a commit up for the timeout.
            orders: Orders::new(timeout * 2),
            level: Mutex::new(None),
        }
    }

    /// Level with the master, and heard from it within half the timeout: by the time the master
    /// gives a silent slave up and goes on, the slave has long stopped to answer.
    pub fn ready(&self) -> Result<(), &'static str> {
        match *self.level() {
            None => Err("not caught up with the master"),
            Some(heard) if heard.elapsed() > self.timeout / 2 => Err("the master is silent"),
            Some(_) => Ok(()),
        }
    }

    /// Has the master commit an order and waits until every slave that serves shows it, this one
    /// among them.
    pub fn transact(&self, order: &Order) -> Result<Result<Transaction, Refusal>> {
        self.orders.commit(*order)
    }

    fn level(&self) -> MutexGuard<'_, Option<Instant>> {
        self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_level(&self, heard: Option<Instant>) {
        self.metrics
            .replication_ready
            .set(i64::from(heard.is_some()));
        *self.level() = heard;
    }

    /// Follows the master; returns only if that can never work.
    pub fn run(&self) -> anyhow::Error {
        let mut said = String::new();
        loop {
            let ended = self.follow();
            self.set_level(None);
            self.orders.disconnected();
            match ended {
                Ok(refused) => {
                    return anyhow::anyhow!("--master {} refuses: {refused}", self.master);
                }
                Err(error) => {
                    let text = format!("{error:#}");
                    if text != said {
                        warn!(master = %self.master, "replication: {text}");
                        said = text;
                    }
                }
            }
            std::thread::sleep(RECONNECT);
        }
    }

    /// Returns the reason when the master refuses for good.
    fn follow(&self) -> Result<String> {
        let mut socket = TcpStream::connect_timeout(&self.master, self.timeout)
            .context("cannot reach the master")?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(self.timeout))?;
        socket.set_write_timeout(Some(self.timeout))?;
        let mut incoming = BufReader::new(socket.try_clone()?);
        let hello = {
            let writer = self.writer.lock();
            FromSlave::Hello {
                name: self.name.clone(),
                dimensions: writer.dimensions,
                position: writer.position.clone(),
            }
        };
        send(&mut socket, &hello)?;
        loop {
            let message = receive(&mut incoming)?;
            let heard = Instant::now();
            // Messages in the socket of a process that was stopped are old: the master may have continued without it.
            if let Some(before) = *self.level()
                && heard.duration_since(before) > self.timeout / 2
            {
                bail!("heard nothing for {:?}", heard.duration_since(before));
            }
            match message {
                FromMaster::Refused { reason } => return Ok(reason),
                FromMaster::Resume { lineage } => self.writer.lock().adopt_lineage(&lineage)?,
                FromMaster::Snapshot { position } => {
                    self.restore(position, &mut incoming, &mut socket)?;
                }
                FromMaster::Transaction { transaction } => {
                    self.writer.lock().apply(&transaction)?;
                }
                FromMaster::Synced => {
                    info!("caught up with the master");
                    self.orders.connected(socket.try_clone()?);
                    self.set_level(Some(heard));
                }
                FromMaster::Answer { id, outcome } => self.orders.answered(id, outcome),
                FromMaster::Heartbeat => {}
                FromMaster::Rows { .. } | FromMaster::SnapshotEnd => {
                    bail!("part of a snapshot outside a snapshot")
                }
            }
            if self.level().is_some() {
                self.set_level(Some(heard));
            }
            let sequence = self.writer.lock().position.sequence;
            self.metrics.sequence.set(sequence as i64);
            // The lock of the orders keeps their lines apart from this one.
            self.orders
                .locked(|| send(&mut socket, &FromSlave::Applied { sequence }))?;
        }
    }

    fn restore(
        &self,
        position: Position,
        incoming: &mut BufReader<TcpStream>,
        socket: &mut TcpStream,
    ) -> Result<()> {
        info!(sequence = position.sequence, "taking a snapshot");
        self.metrics.snapshots.inc();
        self.writer.lock().restore(position, || {
            let message = receive(incoming)?;
            send(socket, &FromSlave::Alive)?;
            match message {
                FromMaster::Rows { table, rows } => Ok(Some((table, rows))),
                FromMaster::SnapshotEnd => Ok(None),
                _ => bail!("a snapshot was cut short by another message"),
            }
        })
    }
}
