//! The partitions of this node: one query, and its rows as lines of JSON.
//!
//! An answer is a line `{"columns":[…]}`, a line `[…]` for each row, and a last one: `{"end":{"rows":N}}`, or
//! `{"error":{"state":…,"problem":…}}` where it broke off. Without its last line it is not whole.

mod postgresql;

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, timeout_at},
};
use tokio_util::bytes::Bytes;

use crate::config::PartitionConfig;

pub use postgresql::{Driver, login};

/// Queries that run or wait for a core.
const MOST_QUERIES: usize = 64;
/// Of a line, so that nobody has to hold a longer one.
pub const MOST_ROW_BYTES: usize = 1 << 20;
/// Lines travel together until they are so long, or none follows at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks that wait for who asked.
const CHUNKS: usize = 2;

/// What is asked of a partition.
#[derive(Debug)]
pub struct Asked {
    /// Whose.
    pub partition: Arc<PartitionConfig>,
    /// With `$1`, `$2`… for the parameters.
    pub sql: String,
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

/// How many queries run in this node at once: one a core.
#[derive(Debug)]
pub struct Partitions {
    places: Arc<Semaphore>,
    cores: Arc<Semaphore>,
}

impl Partitions {
    /// By the machine's cores.
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Partitions {
            places: Arc::new(Semaphore::new(MOST_QUERIES)),
            cores: Arc::new(Semaphore::new(cores)),
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
        let (out, lines) = mpsc::channel(CHUNKS);
        let (begun, begins) = oneshot::channel();
        tokio::spawn(serve(asked, Out::new(out, begun), [place, core]));
        match begins.await {
            Ok(Ok(())) => Ok(lines),
            Ok(Err(trouble)) => Err(trouble),
            Err(_) => Err(Trouble::Down("the query ended without a word".to_owned())),
        }
    }
}

/// Keeps its permits until the database is through with it.
async fn serve(asked: Asked, mut out: Out, _permits: [OwnedSemaphorePermit; 2]) {
    if let Err(trouble) = postgresql::run(&asked, &mut out).await {
        tracing::debug!(partition = asked.partition.name, "query: {trouble}");
        out.fail(trouble).await;
    }
}

/// Where the lines go.
struct Out {
    chunks: mpsc::Sender<Bytes>,
    begun: Option<oneshot::Sender<Result<(), Trouble>>>,
    chunk: Vec<u8>,
    rows: u64,
}

impl Out {
    fn new(chunks: mpsc::Sender<Bytes>, begun: oneshot::Sender<Result<(), Trouble>>) -> Self {
        Out {
            chunks,
            begun: Some(begun),
            chunk: Vec::new(),
            rows: 0,
        }
    }

    fn columns(&mut self, names: &[&str]) {
        self.line(json!({ "columns": names }).to_string().as_bytes());
    }

    /// One row, as a JSON array.
    async fn row(&mut self, row: &[u8]) {
        self.line(row);
        self.rows += 1;
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush().await;
        }
    }

    async fn end(&mut self) {
        self.line(
            json!({ "end": { "rows": self.rows } })
                .to_string()
                .as_bytes(),
        );
        self.flush().await;
    }

    async fn fail(&mut self, trouble: Trouble) {
        if let Some(begun) = self.begun.take() {
            let _ = begun.send(Err(trouble));
            return;
        }
        let error = json!({ "state": trouble.state(), "problem": trouble.to_string() });
        self.line(json!({ "error": error }).to_string().as_bytes());
        // Who takes nothing is not waited for.
        let chunk = std::mem::take(&mut self.chunk);
        let _ = self.chunks.try_send(chunk.into());
    }

    /// Sends what there is. A failure shows in `closed`.
    async fn flush(&mut self) {
        if let Some(begun) = self.begun.take() {
            let _ = begun.send(Ok(()));
        }
        if !self.chunk.is_empty() {
            let chunk = std::mem::take(&mut self.chunk);
            let _ = self.chunks.send(chunk.into()).await;
        }
    }

    /// A newline between the values of a row is a blank as any other.
    fn line(&mut self, text: &[u8]) {
        let blank = |byte: &u8| match byte {
            b'\n' | b'\r' => b' ',
            other => *other,
        };
        self.chunk.extend(text.iter().map(blank));
        self.chunk.push(b'\n');
    }
}
