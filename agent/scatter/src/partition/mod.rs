//! The partitions of this node: one query, and its rows as lines of JSON.
//!
//! An answer is a line `{"columns":[…]}`, a line `[…]` for each row, and a last one: `{"end":{"rows":N}}`, or
//! `{"error":{"state":…,"problem":…}}` where it broke off. Without its last line it is not whole.

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

use plimsoll_core::{Cost, DelayHistogram, HistogramError, gather::MAX_HOPS};
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

pub use postgresql::{Driver, login};
pub use settings::{
    PartitionConfig, PartitionDatabase, PartitionSection, PartitionServer, PartitionService,
    REFERENCE, databases, partitions,
};

/// Queries that were taken and have not ended. One more is refused: if it waited, those who wait for its rows before they
/// take those of others could wait for themselves.
const MAX_QUERIES: usize = 64;

/// The latest that a question may still be answered.
pub const MAX_DEADLINE: Duration = Duration::from_secs(60);

/// What is asked of a partition.
#[derive(Debug)]
pub struct Asked {
    /// Whose.
    pub partition: Arc<PartitionConfig>,
    /// In SQL, with `$1`, `$2`… for the parameters; or the name that the service has for it.
    pub text: String,
    /// Whether it is one of the partition's own.
    pub is_named: bool,
    /// Values that JSON has.
    pub parameters: Vec<Value>,
    /// No more rows than this.
    pub limit: Option<u64>,
    /// What it counts as, among those of its partition.
    pub label: String,
    /// Of the partition's service, where it has one.
    pub bound: Option<Cost>,
    /// Agents that it came through, at most [`MAX_HOPS`].
    pub hops: usize,
    /// When the question came.
    pub since: Instant,
    /// Nobody waits any longer.
    pub deadline: Instant,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// There are too many queries.
    Busy(String),
    /// The partition's service has no room for it within its bound.
    Full(Full),
    /// Not before the deadline.
    Late,
    /// Who serves the partition would not, and why.
    Refused(String),
    /// They are not there, and why.
    Down(String),
}

impl Trouble {
    /// One word for it.
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

/// How many queries work in this node at once, one a core, and the connections that they use.
#[derive(Debug)]
pub struct Partitions {
    places: Arc<Semaphore>,
    /// By hops: a query that waits for another agent may keep one here.
    cores: [Arc<Cores>; MAX_HOPS + 1],
    /// By partition.
    connectors: Mutex<BTreeMap<String, Connector>>,
    /// By service.
    boards: Mutex<BTreeMap<String, Arc<Board>>>,
    empty: DelayHistogram,
    metrics: PartitionMetrics,
}

impl Partitions {
    /// By the machine's cores.
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

    /// The lines of an answer, once there is the first row or none. The work ends where these are dropped.
    pub async fn ask(&self, asked: Asked) -> Result<mpsc::Receiver<Bytes>, Trouble> {
        let mut metrics = self.metrics.query(&asked.partition.name);
        let taken = match asked.deadline > Instant::now() {
            true => self.take(&asked).await,
            // Nobody could answer it in time, so nothing is begun.
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

    /// Room for a query.
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

    /// In its service's backlog, where it has one.
    fn count(&self, asked: &Asked) -> Result<Option<Place>, Trouble> {
        let (Some(service), Some(bound)) = (&asked.partition.service, asked.bound) else {
            return Ok(None);
        };
        let query = format!("{} {}", asked.partition.name, asked.label);
        let taken = self.board(service).take(&query, asked.limit, bound);
        taken.map(Some).map_err(Trouble::Full)
    }

    /// What there is to know of a service's queries.
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

    /// Closes what no partition of these needs; queries under way end as they began.
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

/// Keeps its place, and its core where it has one, until the database is through with it.
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
        // Neither who left nor how short a deadline was is a failure of the node's.
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
    // Who asked does not wait for the rest, nor the rest for who asked.
    let (_kept, ()) = tokio::join!(told, left.finish());
}
