//! Queries to this node's partitions, with rows as JSON lines.
//!
//! An answer is a line `{"columns":[…]}`, a line `[…]` for each row, and a last line: `{"end":{"rows":N}}`, or
//! `{"error":{"state":…,"problem":…}}` if it broke off. Without its last line it is incomplete.

mod board;
mod connector;
mod cores;
mod http;
mod kept;
mod metrics;
mod out;
mod pool;
mod postgresql;
mod settings;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use plimsoll_core::{Cost, DelayHistogram, HistogramError};

use serde_json::Value;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, timeout_at},
};
use tokio_util::bytes::Bytes;

use board::Place;
pub use board::{Board, Full};
use connector::Connector;
use cores::{Core, Cores};
pub use metrics::{PartitionMetrics, QueryMetrics};
use out::Out;

use crate::answer::MAX_HOPS;

pub use postgresql::{Driver, login, probe as probe_partition};
pub use settings::{
    PartitionConfig, PartitionDatabase, PartitionSection, PartitionServer, PartitionService,
    databases, partitions,
};

/// Maximum queries in progress. Further ones are refused, not queued: a gather that waits for a queued query's rows
/// before it takes those of others could deadlock.
const MAX_QUERIES: usize = 64;

/// Maximum deadline of a query.
pub const MAX_DEADLINE: Duration = Duration::from_secs(60);

/// Query to a partition.
#[derive(Debug)]
pub struct Asked {
    /// Configuration of the partition.
    pub partition: Arc<PartitionConfig>,
    /// SQL with `$1`, `$2`… for the parameters, or the service's name for the query.
    pub text: String,
    /// Whether it is one of the partition's named queries.
    pub is_named: bool,
    /// Parameters: JSON scalars.
    pub parameters: Vec<Value>,
    /// Maximum number of rows.
    pub limit: Option<u64>,
    /// Key of the query's learned cost within its partition.
    pub label: String,
    /// Bound of the partition's service, if it has one.
    pub bound: Option<Cost>,
    /// Number of agents that it has come through, at most [`MAX_HOPS`].
    pub hops: usize,
    /// Time of arrival.
    pub since: Instant,
    /// Time by which the answer must end.
    pub deadline: Instant,
}

/// Reason for which a query failed.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// Too many queries.
    Busy(String),
    /// The partition's service has no room for it within its bound.
    Full(Full),
    /// Deadline exceeded.
    Late,
    /// The partition's server refused the query, or its answer is malformed; with the reason.
    Refused(String),
    /// The partition's server is unavailable; with the reason.
    Down(String),
}

impl Trouble {
    /// Name of the state in answers and metrics.
    pub fn state(&self) -> &'static str {
        match self {
            Trouble::Busy(_) | Trouble::Full(_) | Trouble::Refused(_) => "refused",
            Trouble::Late => "late",
            Trouble::Down(_) => "down",
        }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Full(Full { backlog, bound }) => {
                let (backlog, bound) = (backlog.get(), bound.get());
                write!(
                    f,
                    "the backlog is {backlog:.1}, the bound {bound:.1} cost units"
                )
            }
            Trouble::Late => write!(f, "the deadline passed"),
            Trouble::Busy(why) | Trouble::Refused(why) | Trouble::Down(why) => f.write_str(why),
        }
    }
}

/// The node's partitions: cores, connections and backlogs of their queries.
#[derive(Debug)]
pub struct Partitions {
    places: Arc<Semaphore>,
    /// Cores by number of hops, since a query that waits for another agent keeps its core.
    cores: [Arc<Cores>; MAX_HOPS + 1],
    /// Connectors by partition.
    connectors: Mutex<BTreeMap<String, Connector>>,
    /// Boards by service.
    boards: Mutex<BTreeMap<String, Arc<Board>>>,
    empty: DelayHistogram,
    metrics: PartitionMetrics,
}

impl Partitions {
    /// Creates as many cores per hop as the machine has.
    pub fn new(metrics: PartitionMetrics) -> Result<Self, HistogramError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Partitions {
            places: Arc::new(Semaphore::new(MAX_QUERIES)),
            cores: [(); MAX_HOPS + 1].map(|()| Cores::new(cores)),
            connectors: Mutex::default(),
            boards: Mutex::default(),
            empty: DelayHistogram::empty(DelayHistogram::fine_bounds())?,
            metrics,
        })
    }

    /// Runs a query and returns the lines of its answer, once there is a first row or the end. Dropping the receiver
    /// cancels the query.
    pub async fn ask(&self, asked: Asked) -> Result<mpsc::Receiver<Bytes>, Trouble> {
        let mut metrics = self.metrics.query(&asked.partition.name);
        let taken = match asked.deadline > Instant::now() {
            true => self.take(&asked).await,
            // The deadline is already exceeded.
            false => Err(Trouble::Late),
        };
        let taken = taken.inspect_err(|trouble| metrics.ends(trouble.state()));
        let (counted, place, core) = taken?;
        metrics.runs();
        let (out, (begins, lines)) = Out::new(core, counted);
        let connector = self.connector(&asked.partition);
        tokio::spawn(serve(connector, asked, out, metrics, place));
        match begins.await {
            Ok(Ok(())) => Ok(lines),
            Ok(Err(trouble)) => Err(trouble),
            Err(_) => Err(Trouble::Down("the query ended without a word".to_owned())),
        }
    }

    /// Reserves a place and a core for a query.
    async fn take(
        &self,
        asked: &Asked,
    ) -> Result<(Option<Place>, OwnedSemaphorePermit, Core), Trouble> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let busy = || format!("{MAX_QUERIES} queries run or wait, which is the most");
        let place = place.map_err(|_| Trouble::Busy(busy()))?;
        let counted = self.count(asked)?;
        let core = self.cores[asked.hops.min(MAX_HOPS)].query();
        match timeout_at(asked.deadline, core.work()).await {
            Ok(()) => Ok((counted, place, core)),
            Err(_) => {
                let age = asked.since.elapsed();
                counted.iter().for_each(|place| place.left(age));
                Err(Trouble::Late)
            }
        }
    }

    /// Admits a query to its service's backlog, if the partition has a service.
    fn count(&self, asked: &Asked) -> Result<Option<Place>, Trouble> {
        let (Some(service), Some(bound)) = (&asked.partition.service, asked.bound) else {
            return Ok(None);
        };
        let query = format!("{} {}", asked.partition.name, asked.label);
        let taken = self.board(service).take(&query, asked.limit, bound);
        taken.map(Some).map_err(Trouble::Full)
    }

    /// Board of a service's queries.
    pub fn board(&self, service: &str) -> Arc<Board> {
        let mut boards = self.boards.lock().unwrap_or_else(PoisonError::into_inner);
        let board = boards.entry(service.to_owned());
        Arc::clone(board.or_insert_with(|| Arc::new(Board::new(self.empty.clone()))))
    }

    fn connector(&self, partition: &PartitionConfig) -> Connector {
        let mut connectors = self.connectors();
        match connectors.get(&partition.name) {
            Some(connector) if connector.is_for(partition) => connector.clone(),
            old => {
                old.into_iter().for_each(Connector::clear);
                let connector = Connector::new(partition, &self.metrics);
                connectors.insert(partition.name.clone(), connector.clone());
                connector
            }
        }
    }

    fn connectors(&self) -> MutexGuard<'_, BTreeMap<String, Connector>> {
        let connectors = self.connectors.lock();
        connectors.unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes connections that these partitions do not need; running queries end with their old configuration.
    pub fn reconfigure(&self, partitions: &[Arc<PartitionConfig>]) {
        for partition in partitions {
            self.metrics.announce(&partition.name);
            self.connector(partition);
        }
        self.connectors().retain(|name, connector| {
            let stays = partitions.iter().any(|partition| partition.name == *name);
            if !stays {
                connector.clear();
                self.metrics.forget(name);
            }
            stays
        });
    }
}

/// Runs a query, and keeps its place and core until the database has finished with it.
async fn serve(
    connector: Connector,
    asked: Asked,
    mut out: Out,
    mut metrics: QueryMetrics,
    _place: OwnedSemaphorePermit,
) {
    let (left, ended) = connector.run(&asked, &mut out).await;
    metrics.sent(out.rows(), out.bytes());
    let delay = asked.since.elapsed().saturating_sub(out.waited());
    let failed = match ended {
        Ok(()) => {
            metrics.answered(delay);
            if let Some(place) = &out.place {
                place.answered(delay, out.rows());
            }
            None
        }
        // A caller that left or a short deadline is no failure of the node.
        Err(_) if out.is_gone() => {
            out.place.iter().for_each(|place| place.left(delay));
            None
        }
        Err(trouble) => {
            tracing::debug!(partition = asked.partition.name, "query: {trouble}");
            metrics.ends(trouble.state());
            match (&out.place, &trouble) {
                (Some(place), Trouble::Late) => place.left(delay),
                (Some(place), Trouble::Down(_)) => place.failed(),
                _ => {}
            }
            Some(trouble)
        }
    };
    let told = async move {
        if let Some(trouble) = failed {
            out.fail(trouble).await;
        }
        out.close()
    };
    // The caller and the cleanup do not wait for each other.
    let (_kept, ()) = tokio::join!(told, left.finish());
}
