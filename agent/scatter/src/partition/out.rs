//! Output of a query's lines to its caller.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::{
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    time::timeout,
};
use tokio_util::bytes::Bytes;

use super::{Trouble, board::Place, cores::Core};
use crate::client::LAST_WORD;

/// Size in bytes from which a chunk is sent; it is sent earlier if no line follows at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Maximum chunks queued for the caller.
const CHUNKS: usize = 2;

/// Writer of one answer.
pub struct Out {
    core: Core,
    /// Place in its service's backlog, if the partition has a service.
    pub place: Option<Place>,
    chunks: mpsc::Sender<Bytes>,
    begun: Option<oneshot::Sender<Result<(), Trouble>>>,
    chunk: Vec<u8>,
    rows: u64,
    bytes: u64,
    waited: Duration,
    /// Time since which it has been waiting for the caller.
    waits: Option<Instant>,
}

/// Receivers of an answer's begin and of its chunks.
pub type Answer = (
    oneshot::Receiver<Result<(), Trouble>>,
    mpsc::Receiver<Bytes>,
);

impl Out {
    /// Creates a writer. It releases the core while the caller keeps a chunk waiting.
    pub fn new(core: Core, place: Option<Place>) -> (Self, Answer) {
        let (chunks, lines) = mpsc::channel(CHUNKS);
        let (begun, begins) = oneshot::channel();
        let out = Out {
            core,
            place,
            chunks,
            begun: Some(begun),
            chunk: Vec::new(),
            rows: 0,
            bytes: 0,
            waited: Duration::ZERO,
            waits: None,
        };
        (out, (begins, lines))
    }

    /// Ends the output; returns core and place for the remaining work.
    pub fn close(self) -> (Core, Option<Place>) {
        (self.core, self.place)
    }

    /// Waits until the caller has left.
    pub fn gone(&self) -> impl Future<Output = ()> + use<> {
        let listener = self.chunks.clone();
        async move { listener.closed().await }
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes sent so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Total time that the answer has waited for the caller.
    pub fn waited(&self) -> Duration {
        self.waited + self.waits.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether the caller has left.
    pub fn is_gone(&self) -> bool {
        self.chunks.is_closed()
    }

    /// Discards the output for a retry. Returns false if some of it was already sent.
    pub fn begin_again(&mut self) -> bool {
        let may = self.begun.is_some();
        if may {
            self.chunk.clear();
            self.rows = 0;
        }
        may
    }

    /// Writes the first line.
    pub fn columns(&mut self, names: &[String]) {
        self.line(json!({ "columns": names }).to_string().as_bytes());
    }

    /// Writes a row, a JSON array.
    pub async fn row(&mut self, row: &[u8]) {
        self.line(row);
        self.rows += 1;
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush().await;
        }
    }

    /// Writes the last line.
    pub async fn end(&mut self) {
        let end = json!({ "end": { "rows": self.rows } });
        self.line(end.to_string().as_bytes());
        self.send().await;
    }

    /// Fails the query or, if rows were already sent, writes an error as the last line.
    pub async fn fail(&mut self, trouble: Trouble) {
        if let Some(begun) = self.begun.take() {
            let _ = begun.send(Err(trouble));
            return;
        }
        let error = json!({ "state": trouble.state(), "problem": trouble.to_string() });
        self.line(json!({ "error": error }).to_string().as_bytes());
        // Do not wait for a caller that takes nothing.
        let _ = timeout(LAST_WORD, self.send()).await;
    }

    /// Sends the pending chunk, and acquires a core again. A failure shows in `gone`.
    pub async fn flush(&mut self) {
        self.send().await;
        self.core.work().await;
    }

    async fn send(&mut self) {
        if let Some(begun) = self.begun.take() {
            let _ = begun.send(Ok(()));
        }
        if self.chunk.is_empty() {
            return;
        }
        let chunk = Bytes::from(std::mem::take(&mut self.chunk));
        self.bytes += chunk.len() as u64;
        if let Err(TrySendError::Full(chunk)) = self.chunks.try_send(chunk) {
            // The caller may be waiting for another query, which waits for a core.
            self.core.rest();
            self.place.iter().for_each(Place::waits);
            // The query may be cancelled meanwhile.
            self.waits = Some(Instant::now());
            let _ = self.chunks.send(chunk).await;
            self.waited = self.waited();
            self.waits = None;
            self.place.iter().for_each(Place::goes_on);
        }
    }

    /// Appends a line, with any newlines between values replaced by blanks.
    fn line(&mut self, text: &[u8]) {
        let blank = |byte: &u8| match byte {
            b'\n' | b'\r' => b' ',
            other => *other,
        };
        self.chunk.extend(text.iter().map(blank));
        self.chunk.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::{super::cores::Cores, *};

    #[tokio::test]
    async fn slow_reader_gets_the_reason_of_an_answers_end() {
        let core = Cores::new(1).query();
        core.work().await;
        let (mut out, (_begins, mut lines)) = Out::new(core, None);
        for _ in 0..CHUNKS {
            out.row(&[b'1'; CHUNK_BYTES]).await;
        }
        let ended = async {
            out.fail(Trouble::Refused("division by zero".to_owned()))
                .await;
            drop(out);
        };
        let read = async {
            let mut last = Bytes::new();
            while let Some(chunk) = lines.recv().await {
                tokio::task::yield_now().await;
                last = chunk;
            }
            last
        };
        let ((), last) = tokio::join!(ended, read);
        assert!(last.ends_with(b"\"problem\":\"division by zero\",\"state\":\"refused\"}}\n"));
    }
}
