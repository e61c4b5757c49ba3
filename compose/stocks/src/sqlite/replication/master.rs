//! The master's side: a bounded log, one connection per slave, and the wait for every slave.

use std::collections::{HashMap, VecDeque};
use std::io::{BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use rusqlite::types::ValueRef;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tracing::{error, info, warn};

use super::wire::{FromMaster, FromSlave, Outcome, encode, receive, send};
use crate::metrics::Metrics;
use crate::sqlite::data;
use crate::sqlite::writer::{Position, REPLICATED, SharedWriter};
use crate::transaction::{Order, Refusal, Transaction};

/// Connections over this many are closed at once.
const MAX_SLAVES: usize = 64;
const ROWS_A_CHUNK: usize = 1000;
/// Orders of one slave that wait for the other slaves; as many as it can have workers.
const MAX_ORDERS: usize = 256;

pub struct Master {
    writer: Arc<SharedWriter>,
    metrics: Arc<Metrics>,
    timeout: Duration,
    log_limit: usize,
    state: Mutex<State>,
    /// Woken whenever a slave acknowledges, joins or leaves.
    changed: watch::Sender<()>,
    connections: AtomicUsize,
    /// On which answers to slaves' orders wait for the other slaves.
    runtime: Handle,
}

/// Locked after the writer where both are held.
struct State {
    sequence: u64,
    log: VecDeque<Transaction>,
    slaves: HashMap<u64, Slave>,
    next_id: u64,
}

struct Slave {
    name: String,
    applied: u64,
    /// Only slaves that were once level with the master are waited for.
    synced: bool,
    /// Its orders that are not answered yet.
    orders: usize,
    outgoing: SyncSender<Arc<str>>,
    socket: TcpStream,
}

/// Method of bringing a slave up to date.
enum Start {
    Log {
        lineage: String,
        missed: Vec<Transaction>,
    },
    Snapshot {
        position: Position,
        db: rusqlite::Connection,
    },
}

impl Master {
    pub fn new(
        writer: Arc<SharedWriter>,
        metrics: Arc<Metrics>,
        timeout: Duration,
        log_limit: usize,
        runtime: Handle,
    ) -> Self {
        let sequence = writer.lock().position.sequence;
        Self {
            writer,
            metrics,
            timeout,
            log_limit,
            state: Mutex::new(State {
                sequence,
                log: VecDeque::new(),
                slaves: HashMap::new(),
                next_id: 0,
            }),
            changed: watch::Sender::new(()),
            connections: AtomicUsize::new(0),
            runtime,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits an order and sends its effects to the slaves, without waiting for them.
    pub fn transact(&self, order: &Order) -> Result<Result<Transaction, Refusal>> {
        let mut writer = self.writer.lock();
        let planned = match writer.plan(order)? {
            Ok(planned) => planned,
            Err(refusal) => return Ok(Err(refusal)),
        };
        writer.apply(&planned)?;
        self.publish(&planned)?;
        Ok(Ok(planned))
    }

    /// Sends a committed transaction to every slave. The caller holds the writer's lock, so
    /// that transactions are published in the order of their commits.
    fn publish(&self, transaction: &Transaction) -> Result<()> {
        let line: Arc<str> = encode(&FromMaster::Transaction {
            transaction: transaction.clone(),
        })?
        .into();
        let mut state = self.lock();
        state.sequence = transaction.sequence;
        self.metrics.sequence.set(transaction.sequence as i64);
        state.log.push_back(transaction.clone());
        if state.log.len() > self.log_limit {
            state.log.pop_front();
        }
        let stuck: Vec<u64> = state
            .slaves
            .iter()
            .filter(|(_, slave)| slave.outgoing.try_send(Arc::clone(&line)).is_err())
            .map(|(&id, _)| id)
            .collect();
        for id in stuck {
            self.drop_slave(&mut state, id, "it does not take what is sent");
        }
        Ok(())
    }

    /// Waits until every synced slave has applied `sequence`; a slave that does not within the
    /// timeout is dropped.
    pub async fn acknowledged(&self, sequence: u64) {
        let deadline = Instant::now() + self.timeout;
        let mut changed = self.changed.subscribe();
        loop {
            if self.laggards(&self.lock(), sequence).is_empty() {
                return;
            }
            if timeout_at(deadline, changed.changed()).await.is_err() {
                break;
            }
        }
        let mut state = self.lock();
        for id in self.laggards(&state, sequence) {
            self.drop_slave(&mut state, id, "it did not acknowledge in time");
        }
    }

    fn laggards(&self, state: &State, sequence: u64) -> Vec<u64> {
        state
            .slaves
            .iter()
            .filter(|(_, slave)| slave.synced && slave.applied < sequence)
            .map(|(&id, _)| id)
            .collect()
    }

    fn drop_slave(&self, state: &mut State, id: u64, why: &str) {
        let Some(slave) = state.slaves.remove(&id) else {
            return;
        };
        warn!(slave = slave.name, "slave dropped: {why}");
        // Ends both of its threads; fails only if the connection is gone already.
        let _ = slave.socket.shutdown(Shutdown::Both);
        self.metrics.slaves_dropped.inc();
        self.count_slaves(state);
        self.changed.send_replace(());
    }

    fn count_slaves(&self, state: &State) {
        let synced = state.slaves.values().filter(|slave| slave.synced).count();
        self.metrics.slaves.set(synced as i64);
    }

    /// Accepts slaves until the process ends.
    pub fn listen(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            let socket = match listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) => {
                    // Out of descriptors, most likely: give connections time to end.
                    warn!("cannot accept a slave: {error}");
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            if self.connections.fetch_add(1, Ordering::Relaxed) >= MAX_SLAVES {
                self.connections.fetch_sub(1, Ordering::Relaxed);
                warn!("connection refused: {MAX_SLAVES} slaves are connected");
                continue;
            }
            let master = Arc::clone(self);
            let spawned = std::thread::Builder::new()
                .name("slave".to_owned())
                .spawn(move || {
                    if let Err(error) = master.serve(socket) {
                        warn!("replication connection ended: {error:#}");
                    }
                    master.connections.fetch_sub(1, Ordering::Relaxed);
                });
            if let Err(error) = spawned {
                self.connections.fetch_sub(1, Ordering::Relaxed);
                warn!("cannot start a thread for a slave: {error}");
            }
        }
    }

    fn serve(self: &Arc<Self>, mut socket: TcpStream) -> Result<()> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(self.timeout))?;
        socket.set_write_timeout(Some(self.timeout))?;
        let mut incoming = BufReader::new(socket.try_clone()?);
        let FromSlave::Hello {
            name,
            dimensions,
            position,
        } = receive(&mut incoming)?
        else {
            bail!("the first message is not a hello");
        };
        let ours = self.writer.lock().dimensions;
        if dimensions != ours {
            let reason = format!("the master's data are {ours:?}, the slave's {dimensions:?}");
            return send(&mut socket, &FromMaster::Refused { reason });
        }
        let (id, start, outgoing) = self.join(&name, &position, &socket)?;
        let master = Arc::clone(self);
        let acknowledgements = std::thread::Builder::new()
            .name("slave-acks".to_owned())
            .spawn(move || {
                let ended = master.take_acknowledgements(id, &mut incoming);
                let why = ended.err().map_or_else(String::new, |e| format!("{e:#}"));
                master.drop_slave(&mut master.lock(), id, &why);
            })?;
        if let Err(error) = self.feed(&mut socket, start, &outgoing) {
            self.drop_slave(&mut self.lock(), id, &format!("{error:#}"));
        }
        let _ = acknowledgements.join();
        Ok(())
    }

    /// Registers a slave. What it missed ends exactly where its queue of new ones begins, as
    /// both are settled under the writer's lock.
    fn join(
        &self,
        name: &str,
        theirs: &Position,
        socket: &TcpStream,
    ) -> Result<(u64, Start, Receiver<Arc<str>>)> {
        let writer = self.writer.lock();
        let ours = &writer.position;
        let mut state = self.lock();
        // Before the first transaction all lineages of one seed are the same.
        let same_lineage = theirs.lineage == ours.lineage || theirs.sequence == 0;
        let in_log = theirs.sequence == ours.sequence
            || state
                .log
                .front()
                .is_some_and(|first| first.sequence <= theirs.sequence + 1);
        let start = if same_lineage && theirs.sequence <= ours.sequence && in_log {
            Start::Log {
                lineage: ours.lineage.clone(),
                missed: state
                    .log
                    .iter()
                    .filter(|t| t.sequence > theirs.sequence)
                    .cloned()
                    .collect(),
            }
        } else {
            let db = data::open_reader(&writer.path)?;
            // The first read fixes the snapshot at our position.
            db.execute_batch("BEGIN; SELECT sequence FROM replication_state;")?;
            Start::Snapshot {
                position: ours.clone(),
                db,
            }
        };
        let (sender, outgoing) = sync_channel(self.log_limit);
        let id = state.next_id;
        state.next_id += 1;
        state.slaves.insert(
            id,
            Slave {
                name: name.to_owned(),
                applied: 0,
                synced: false,
                orders: 0,
                outgoing: sender,
                socket: socket.try_clone()?,
            },
        );
        Ok((id, start, outgoing))
    }

    fn feed(
        &self,
        socket: &mut TcpStream,
        start: Start,
        outgoing: &Receiver<Arc<str>>,
    ) -> Result<()> {
        match start {
            Start::Log { lineage, missed } => {
                info!(missed = missed.len(), "slave resumes from the log");
                send(socket, &FromMaster::Resume { lineage })?;
                for transaction in missed {
                    send(socket, &FromMaster::Transaction { transaction })?;
                }
            }
            Start::Snapshot { position, db } => {
                info!(sequence = position.sequence, "slave takes a snapshot");
                self.metrics.snapshots.inc();
                send(socket, &FromMaster::Snapshot { position })?;
                for (table, columns) in REPLICATED {
                    send_table(socket, &db, table, columns)?;
                }
                send(socket, &FromMaster::SnapshotEnd)?;
            }
        }
        let heartbeat = encode(&FromMaster::Heartbeat)?;
        loop {
            match outgoing.recv_timeout(self.timeout / 8) {
                Ok(line) => socket.write_all(line.as_bytes())?,
                Err(RecvTimeoutError::Timeout) => socket.write_all(heartbeat.as_bytes())?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    fn take_acknowledgements(
        self: &Arc<Self>,
        id: u64,
        incoming: &mut BufReader<TcpStream>,
    ) -> Result<()> {
        let synced: Arc<str> = encode(&FromMaster::Synced)?.into();
        loop {
            match receive(incoming)? {
                FromSlave::Applied { sequence } => {
                    let mut state = self.lock();
                    let newest = state.sequence;
                    let Some(slave) = state.slaves.get_mut(&id) else {
                        return Ok(());
                    };
                    slave.applied = sequence;
                    if !slave.synced && sequence == newest {
                        slave.synced = true;
                        slave.outgoing.try_send(Arc::clone(&synced))?;
                        info!(slave = slave.name, sequence, "slave has caught up");
                    }
                    self.count_slaves(&state);
                    self.changed.send_replace(());
                }
                FromSlave::Alive => {}
                FromSlave::Order {
                    id: order_id,
                    order,
                } => self.order(id, order_id, order)?,
                FromSlave::Hello { .. } => bail!("a second hello"),
            }
        }
    }
}

impl Master {
    /// Commits an order of a slave, which gets the answer once every slave shows it.
    fn order(self: &Arc<Self>, slave: u64, id: u64, order: Order) -> Result<()> {
        {
            let mut state = self.lock();
            let Some(slave) = state.slaves.get_mut(&slave) else {
                return Ok(());
            };
            if !slave.synced {
                bail!("an order of a slave that is not level");
            }
            if slave.orders >= MAX_ORDERS {
                let why = format!("{MAX_ORDERS} orders of this node are not answered yet");
                let line = answer(id, Outcome::Unavailable(why))?;
                return Ok(slave.outgoing.try_send(line)?);
            }
            slave.orders += 1;
        }
        let made = match order.check() {
            Ok(order) => self.transact(&order),
            Err(why) => Err(anyhow!(why)),
        };
        let (sequence, outcome) = match made {
            Ok(Ok(made)) => (Some(made.sequence), Outcome::Made(made)),
            Ok(Err(refusal)) => (None, Outcome::Refused(refusal)),
            Err(error) => {
                error!("an order of a slave failed: {error:#}");
                (None, Outcome::Failed(format!("{error:#}")))
            }
        };
        let line = answer(id, outcome)?;
        let master = Arc::clone(self);
        self.runtime.spawn(async move {
            if let Some(sequence) = sequence {
                master.acknowledged(sequence).await;
            }
            master.tell(slave, line);
        });
        Ok(())
    }

    fn tell(&self, id: u64, line: Arc<str>) {
        let mut state = self.lock();
        // Gone: its connection ended, which told it that its orders are in doubt.
        let Some(slave) = state.slaves.get_mut(&id) else {
            return;
        };
        slave.orders -= 1;
        if slave.outgoing.try_send(line).is_err() {
            self.drop_slave(&mut state, id, "it does not take what is sent");
        }
    }
}

fn answer(id: u64, outcome: Outcome) -> Result<Arc<str>> {
    Ok(encode(&FromMaster::Answer { id, outcome })?.into())
}

fn send_table(
    socket: &mut TcpStream,
    db: &rusqlite::Connection,
    table: &str,
    columns: usize,
) -> Result<()> {
    let mut select = db.prepare(&format!("SELECT * FROM {table}"))?;
    let mut found = select.query([])?;
    loop {
        let mut rows = Vec::new();
        while rows.len() < ROWS_A_CHUNK
            && let Some(row) = found.next()?
        {
            let values: rusqlite::Result<Vec<_>> = (0..columns)
                .map(|column| {
                    Ok(match row.get_ref(column)? {
                        ValueRef::Integer(n) => n.into(),
                        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
                        _ => serde_json::Value::Null,
                    })
                })
                .collect();
            rows.push(values?);
        }
        if rows.is_empty() {
            return Ok(());
        }
        let table = table.to_owned();
        send(socket, &FromMaster::Rows { table, rows })?;
    }
}
