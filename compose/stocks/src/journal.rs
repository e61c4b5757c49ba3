//! What a node did, for a checker: a JSON line as a request begins, ends or is refused. The clock is the machine's
//! monotonic one, so that the lines of all its nodes can be put in order.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use axum::http::HeaderMap;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use tracing::error;

use crate::{fence, witness};

/// The header by which a client names its request.
const REQUEST: &str = "x-request-id";

pub struct Journal {
    file: File,
    node: String,
    next: AtomicU64,
}

/// A request at this node, until it is dropped.
pub struct Entry {
    journal: Arc<Journal>,
    number: u64,
}

impl Journal {
    pub fn open(path: &Path, node: &str) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let journal = Self {
            file: file.with_context(|| format!("--journal {}: cannot open it", path.display()))?,
            node: node.to_owned(),
            next: AtomicU64::new(0),
        };
        journal.append("start", json!({}));
        Ok(journal)
    }

    pub fn begin(self: &Arc<Self>, class: &str, headers: &HeaderMap, items: usize) -> Entry {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.append(
            "begin",
            named(
                headers,
                json!({ "number": number, "class": class, "items": items }),
            ),
        );
        Entry {
            journal: Arc::clone(self),
            number,
        }
    }

    pub fn refused(&self, headers: &HeaderMap, why: &str) {
        self.append("refused", named(headers, json!({ "why": why })));
    }

    fn append(&self, event: &str, more: Value) {
        let now = clock_gettime(ClockId::Monotonic);
        let at = now.tv_sec as f64 + now.tv_nsec as f64 / 1e9;
        let mut line = json!({ "at": at, "event": event, "node": self.node });
        if let (Value::Object(line), Value::Object(mut more)) = (&mut line, more) {
            line.append(&mut more);
        }
        // One call, so that lines of several threads do not mix.
        if let Err(why) = write(&self.file, &line) {
            // A journal with gaps proves nothing.
            error!("--journal: cannot write: {why}");
            std::process::exit(74);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.journal.append("end", json!({ "number": self.number }));
    }
}

fn write(mut file: &File, line: &Value) -> io::Result<()> {
    file.write_all(format!("{line}\n").as_bytes())
}

/// With what the request names: itself, its object set, its fencing token.
fn named(headers: &HeaderMap, mut line: Value) -> Value {
    let known = [
        ("request", REQUEST),
        ("set", witness::HEADER),
        ("fence", fence::HEADER),
    ];
    let found: Map<String, Value> = known
        .into_iter()
        .filter_map(|(key, header)| {
            let text = headers.get(header)?.to_str().ok()?;
            Some((key.to_owned(), text.into()))
        })
        .collect();
    if let Value::Object(line) = &mut line {
        line.extend(found);
    }
    line
}
