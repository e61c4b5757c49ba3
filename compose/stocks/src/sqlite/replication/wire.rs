//! Messages between master and slave.

use std::io::{BufRead, Read, Write};

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::catalog::Dimensions;
use crate::sqlite::writer::Position;
use crate::transaction::{Order, Refusal, Transaction};

/// Longest line, in bytes; a chunk of a snapshot is the longest message.
const MAX_LINE: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromMaster {
    /// The slave's data can never match: it must not try again.
    Refused {
        reason: String,
    },
    /// The log reaches back to the slave's position; transactions follow.
    Resume {
        lineage: String,
    },
    /// Rows of the replicated tables follow, as of `position`.
    Snapshot {
        position: Position,
    },
    Rows {
        table: String,
        rows: Vec<Vec<serde_json::Value>>,
    },
    SnapshotEnd,
    Transaction {
        transaction: Transaction,
    },
    /// From here on the master acknowledges nothing that this slave has not applied.
    Synced,
    Heartbeat,
    /// Outcome of an order, whose transaction was sent before.
    Answer {
        id: u64,
        outcome: Outcome,
    },
}

/// Master's answer to an order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every serving slave has applied it.
    Made(Transaction),
    Refused(Refusal),
    /// Nothing was changed, and it may go better later.
    Unavailable(String),
    Failed(String),
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromSlave {
    Hello {
        name: String,
        dimensions: Dimensions,
        position: Position,
    },
    /// Everything up to `sequence` is committed and visible to readers.
    Applied { sequence: u64 },
    /// A piece of a snapshot was taken; the position is not yet the master's.
    Alive,
    /// To be committed for a slave that is a primary; `id` is the slave's own, for the answer.
    Order { id: u64, order: Order },
}

pub fn encode(message: &impl Serialize) -> Result<String> {
    let mut line = serde_json::to_string(message)?;
    line.push('\n');
    Ok(line)
}

pub fn send(stream: &mut impl Write, message: &impl Serialize) -> Result<()> {
    Ok(stream.write_all(encode(message)?.as_bytes())?)
}

/// Reads one message; an error at the end of the stream.
pub fn receive<T: DeserializeOwned>(stream: &mut impl BufRead) -> Result<T> {
    let mut line = Vec::new();
    stream.take(MAX_LINE).read_until(b'\n', &mut line)?;
    ensure!(!line.is_empty(), "the other side closed the connection");
    if line.last() != Some(&b'\n') {
        bail!("cut short, or longer than {MAX_LINE} bytes");
    }
    serde_json::from_slice(&line).with_context(|| {
        let start = &line[..line.len().min(80)];
        format!("not a message: {:?}", String::from_utf8_lossy(start))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn refuses_garbage_cuts_and_floods() {
        let mut garbage: &[u8] = b"hello\n";
        assert!(receive::<FromSlave>(&mut garbage).is_err());
        let mut cut: &[u8] = br#"{"type":"alive"}"#;
        assert!(receive::<FromSlave>(&mut cut).is_err());
        let mut flood = std::io::BufReader::new(std::io::repeat(b'x'));
        let error = receive::<FromSlave>(&mut flood).err().unwrap();
        assert!(error.to_string().contains("longer than"), "{error}");
    }

    #[test]
    fn messages_round_trip() {
        let mut line: &[u8] = &encode(&FromSlave::Applied { sequence: 7 })
            .unwrap()
            .into_bytes();
        assert!(matches!(
            receive(&mut line).unwrap(),
            FromSlave::Applied { sequence: 7 }
        ));
    }
}
