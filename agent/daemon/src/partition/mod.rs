//! The partitions of this node: one query, and its rows as lines of JSON.
//!
//! An answer is a line `{"columns":[…]}`, a line `[…]` for each row, and a last one: `{"end":{"rows":N}}`, or
//! `{"error":{"state":…,"problem":…}}` where it broke off. Without its last line it is not whole.

mod out;
mod pool;
mod postgresql;
mod session;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, timeout_at},
};
use tokio_util::bytes::Bytes;

use crate::config::PartitionConfig;
use out::Out;
use pool::Pool;

pub use session::{Driver, login};

/// Queries that run or wait for a core.
const MOST_QUERIES: usize = 64;
/// Of a line, so that nobody has to hold a longer one.
pub const MOST_ROW_BYTES: usize = 1 << 20;

/// What is asked of a partition.
#[derive(Debug)]
pub struct Asked {
    /// Whose.
    pub partition: Arc<PartitionConfig>,
    /// With `$1`, `$2`… for the parameters.
    pub sql: String,
    /// Whether it is one of the partition's own.
    pub is_named: bool,
    /// Values that JSON has.
    pub parameters: Vec<Value>,
    /// No more rows than this.
    pub limit: Option<u64>,
    /// Nobody waits any longer.
    pub deadline: Instant,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Too many queries.
    Busy,
    /// Not before the deadline.
    Late,
    /// The database would not, and why.
    Refused(String),
    /// The database is not there, and why.
    Down(String),
}

impl Trouble {
    /// One word for it.
    pub fn state(&self) -> &'static str {
        match self {
            Trouble::Busy | Trouble::Refused(_) => "refused",
            Trouble::Late => "late",
            Trouble::Down(_) => "down",
        }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Busy => write!(f, "{MOST_QUERIES} queries run or wait, which is the most"),
            Trouble::Late => write!(f, "the deadline passed"),
            Trouble::Refused(why) | Trouble::Down(why) => f.write_str(why),
        }
    }
}

/// How many queries run in this node at once, one a core, and the connections that they run on.
#[derive(Debug)]
pub struct Partitions {
    places: Arc<Semaphore>,
    cores: Arc<Semaphore>,
    /// By partition.
    pools: Mutex<BTreeMap<String, Arc<Pool>>>,
}

impl Partitions {
    /// By the machine's cores.
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Partitions {
            places: Arc::new(Semaphore::new(MOST_QUERIES)),
            cores: Arc::new(Semaphore::new(cores)),
            pools: Mutex::default(),
        }
    }

    /// The lines of an answer, once there is the first row or none. The work ends where these are dropped.
    pub async fn ask(&self, asked: Asked) -> Result<mpsc::Receiver<Bytes>, Trouble> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| Trouble::Busy)?;
        let core = Arc::clone(&self.cores).acquire_owned();
        let core = timeout_at(asked.deadline, core).await;
        let Ok(Ok(core)) = core else {
            return Err(Trouble::Late);
        };
        let (out, (begins, lines)) = Out::new();
        tokio::spawn(serve(
            self.pool(&asked.partition),
            asked,
            out,
            [place, core],
        ));
        match begins.await {
            Ok(Ok(())) => Ok(lines),
            Ok(Err(trouble)) => Err(trouble),
            Err(_) => Err(Trouble::Down("the query ended without a word".to_owned())),
        }
    }

    fn pool(&self, partition: &Arc<PartitionConfig>) -> Arc<Pool> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        match pools.get(&partition.name) {
            Some(pool) if pool.is_for(partition) => Arc::clone(pool),
            _ => {
                let pool = Arc::new(Pool::new(Arc::clone(partition)));
                pools.insert(partition.name.clone(), Arc::clone(&pool));
                pool
            }
        }
    }

    /// Closes what no partition of these needs; queries under way end as they began.
    pub fn reconfigure(&self, partitions: &[Arc<PartitionConfig>]) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|_, pool| {
            let stays = partitions.iter().any(|partition| pool.is_for(partition));
            if !stays {
                pool.clear();
            }
            stays
        });
    }
}

/// Keeps its permits until the database is through with it.
async fn serve(pool: Arc<Pool>, asked: Asked, mut out: Out, _permits: [OwnedSemaphorePermit; 2]) {
    let (left, ended) = postgresql::run(&pool, &asked, &mut out).await;
    if let Err(trouble) = ended {
        tracing::debug!(partition = asked.partition.name, "query: {trouble}");
        out.fail(trouble);
    }
    // Who asked does not wait for the rest.
    drop(out);
    left.finish(&pool, &asked).await;
}
