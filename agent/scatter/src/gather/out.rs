//! Output of a gather as JSON lines or as one JSON object, with backpressure by the caller.

use axum::{body::Bytes, http::StatusCode};
use serde_json::{Value as Json, json};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

use crate::answer::Value;

/// Size in bytes from which a chunk is sent; it is sent earlier if no row follows at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Maximum chunks queued for the caller.
pub const CHUNKS: usize = 2;

/// Format of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON line per row.
    Lines,
    /// One JSON object.
    Object,
}

/// Error: the caller does not take the answer.
#[derive(Debug)]
pub struct Left;

/// Status and body of a response in place of an answer.
pub type Instead = (StatusCode, Json);

/// Writer of one answer.
pub struct Out {
    format: Format,
    /// Whether an answer that fits in one chunk is held back until it is complete.
    hold: bool,
    chunks: mpsc::Sender<Bytes>,
    begun: Option<oneshot::Sender<Result<(), Instead>>>,
    chunk: Vec<u8>,
    has_columns: bool,
    rows: u64,
    /// Bytes sent so far.
    pub bytes: u64,
    /// Time until which the caller may take the answer.
    until: Instant,
}

impl Out {
    pub fn new(
        format: Format,
        hold: bool,
        until: Instant,
        chunks: mpsc::Sender<Bytes>,
        begun: oneshot::Sender<Result<(), Instead>>,
    ) -> Self {
        Out {
            format,
            hold,
            chunks,
            begun: Some(begun),
            chunk: Vec::with_capacity(CHUNK_BYTES + (8 << 10)),
            has_columns: false,
            rows: 0,
            bytes: 0,
            until,
        }
    }

    /// Returns when the caller has left.
    pub fn left(&self) -> impl Future<Output = ()> + use<> {
        let chunks = self.chunks.clone();
        async move { chunks.closed().await }
    }

    /// Writes the columns, before the first row. Repeated calls have no effect.
    pub fn columns(&mut self, columns: &[String]) {
        if self.has_columns {
            return;
        }
        self.has_columns = true;
        match self.format {
            Format::Lines => self.json(&json!({ "columns": columns })),
            Format::Object => {
                self.chunk.extend_from_slice(b"{\"columns\":");
                self.json(&json!(columns));
                self.chunk.extend_from_slice(b",\"rows\":[\n");
            }
        }
        if self.format == Format::Lines {
            self.chunk.push(b'\n');
        }
    }

    /// Writes a row, a JSON array. Returns whether a chunk was sent.
    pub async fn row(&mut self, row: &[u8]) -> Result<bool, Left> {
        if self.format == Format::Object && self.rows > 0 {
            self.chunk.extend_from_slice(b",\n");
        }
        self.chunk.extend_from_slice(row);
        if self.format == Format::Lines {
            self.chunk.push(b'\n');
        }
        self.rows += 1;
        if self.chunk.len() < CHUNK_BYTES {
            return Ok(false);
        }
        self.send().await?;
        Ok(true)
    }

    /// Writes the row of a reduction.
    pub async fn values(&mut self, row: &[Value]) -> Result<(), Left> {
        let row = serde_json::to_vec(row).unwrap_or_default();
        self.row(&row).await?;
        Ok(())
    }

    /// Sends the pending chunk, as no row follows at once.
    pub async fn pause(&mut self) -> Result<(), Left> {
        let waits = self.hold && self.begun.is_some();
        match self.rows == 0 || waits {
            true => Ok(()),
            false => self.send().await,
        }
    }

    /// Writes the last line: `end`, or `error`, whose status applies if nothing has been sent yet.
    pub async fn end(
        &mut self,
        word: &str,
        report: Json,
        status: Option<StatusCode>,
    ) -> Result<(), Left> {
        if let (Some(status), true) = (status, self.begun.is_some()) {
            if let Some(begun) = self.begun.take() {
                let _ = begun.send(Err((status, json!({ word: report }))));
            }
            return Ok(());
        }
        match self.format {
            Format::Lines => self.json(&json!({ word: report })),
            Format::Object => {
                self.chunk.extend_from_slice(b"\n],");
                self.json(&json!(word));
                self.chunk.push(b':');
                self.json(&report);
                self.chunk.push(b'}');
            }
        }
        self.chunk.push(b'\n');
        self.send().await
    }

    fn json(&mut self, value: &Json) {
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(&mut self.chunk, value);
    }

    async fn send(&mut self) -> Result<(), Left> {
        if let Some(begun) = self.begun.take() {
            let _ = begun.send(Ok(()));
        }
        let next = Vec::with_capacity(CHUNK_BYTES + (8 << 10));
        let chunk = std::mem::replace(&mut self.chunk, next);
        if chunk.is_empty() {
            return Ok(());
        }
        self.bytes += chunk.len() as u64;
        let sent = timeout_at(self.until, self.chunks.send(chunk.into())).await;
        match sent {
            Ok(Ok(())) => Ok(()),
            _ => Err(Left),
        }
    }
}
