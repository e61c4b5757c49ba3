//! Reads request bodies within limits of size and time, and a memory limit for all of them.

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    body::{Body, HttpBody},
    http::StatusCode,
};
use http_body_util::BodyExt;
use tokio_util::sync::CancellationToken;

/// Timeout for a body, so that a slow one does not keep others out.
const WAIT: Duration = Duration::from_secs(2);
/// Memory limit for all bodies that are being read or answered.
const MAX_BYTES: usize = 8 << 20;

/// Bodies are kept in parts while they arrive: freed large blocks would stay with the allocator. Each counts as a whole,
/// as it takes that much memory.
const PART: usize = 16 << 10;

/// Status and message of a refused body.
pub type Refusal = (StatusCode, String);

/// The memory shared by all bodies.
#[derive(Debug)]
pub struct Bodies(Mutex<State>);

#[derive(Debug)]
struct State {
    left: usize,
    next: u64,
    /// Incomplete bodies, oldest first.
    unfinished: BTreeMap<u64, Unfinished>,
}

#[derive(Debug)]
struct Unfinished {
    bytes: usize,
    gives_way: CancellationToken,
}

impl Default for Bodies {
    fn default() -> Self {
        Bodies(Mutex::new(State {
            left: MAX_BYTES,
            next: 0,
            unfinished: BTreeMap::new(),
        }))
    }
}

impl Bodies {
    /// Reads the whole body, of at most `most` bytes. If memory runs out, the oldest incomplete body is evicted:
    /// well-behaved clients send theirs at once.
    pub async fn read(self: &Arc<Self>, body: Body, most: usize) -> Result<Whole, Refusal> {
        if body.size_hint().lower() > most as u64 {
            return Err(too_large(most));
        }
        let gives_way = CancellationToken::new();
        let mut text = self.begin(gives_way.clone());
        let read = tokio::time::timeout(WAIT, text.fill(body, most));
        tokio::select! {
            read = read => read.map_err(|_| {
                let problem = format!("the body took over {} s", WAIT.as_secs());
                (StatusCode::REQUEST_TIMEOUT, problem)
            })??,
            () = gives_way.cancelled() => return Err(no_room()),
        }
        match text.finish() {
            true => Ok(text),
            false => Err(no_room()),
        }
    }

    fn begin(self: &Arc<Self>, gives_way: CancellationToken) -> Whole {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let unfinished = Unfinished {
            bytes: 0,
            gives_way,
        };
        state.unfinished.insert(number, unfinished);
        Whole {
            parts: Vec::new(),
            text: Vec::new(),
            number,
            kept: 0,
            bodies: Arc::clone(self),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Reserves memory for a body; false if there is none or the body was evicted.
    fn take(&mut self, number: u64, bytes: usize) -> bool {
        while self.left < bytes {
            match self.unfinished.pop_first() {
                Some((_, oldest)) => {
                    self.left += oldest.bytes;
                    oldest.gives_way.cancel();
                }
                None => return false,
            }
        }
        let Some(own) = self.unfinished.get_mut(&number) else {
            return false;
        };
        own.bytes += bytes;
        self.left -= bytes;
        true
    }
}

/// A complete body and the memory it holds.
#[derive(Debug)]
pub struct Whole {
    /// Used until the body is complete.
    parts: Vec<Vec<u8>>,
    text: Vec<u8>,
    number: u64,
    /// Set once the body is complete.
    kept: usize,
    bodies: Arc<Bodies>,
}

impl Whole {
    async fn fill(&mut self, mut body: Body, most: usize) -> Result<(), Refusal> {
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            length += data.len();
            if length > most {
                return Err(too_large(most));
            }
            self.keep(&data)?;
        }
        Ok(())
    }

    fn keep(&mut self, mut data: &[u8]) -> Result<(), Refusal> {
        while !data.is_empty() {
            let mut part = match self.parts.pop_if(|part| part.len() < PART) {
                Some(part) => part,
                None if self.bodies.lock().take(self.number, PART) => Vec::with_capacity(PART),
                None => return Err(no_room()),
            };
            let (now, later) = data.split_at(data.len().min(PART - part.len()));
            part.extend_from_slice(now);
            self.parts.push(part);
            data = later;
        }
        Ok(())
    }

    /// Completes the body; false if it was evicted meanwhile.
    fn finish(&mut self) -> bool {
        let parts = std::mem::take(&mut self.parts);
        self.text = parts.concat();
        let own = self.bodies.lock().unfinished.remove(&self.number);
        self.kept = own.as_ref().map_or(0, |own| own.bytes);
        own.is_some()
    }
}

impl Deref for Whole {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.text
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        let mut state = self.bodies.lock();
        let unfinished = state.unfinished.remove(&self.number);
        state.left += self.kept + unfinished.map_or(0, |own| own.bytes);
    }
}

fn too_large(most: usize) -> Refusal {
    let problem = format!("the body may have {most} bytes");
    (StatusCode::PAYLOAD_TOO_LARGE, problem)
}

fn no_room() -> Refusal {
    let problem = format!("the bodies under way have {MAX_BYTES} bytes, which is the most");
    (StatusCode::TOO_MANY_REQUESTS, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_of_one_byte_counts_with_the_memory_that_it_takes() {
        let bodies = Arc::new(Bodies::default());
        let begin = || {
            let gives_way = CancellationToken::new();
            let mut body = bodies.begin(gives_way.clone());
            assert!(body.keep(b"x").is_ok());
            (body, gives_way)
        };
        let held: Vec<_> = (0..MAX_BYTES / PART).map(|_| begin()).collect();
        assert!(!held.iter().any(|(_, gives_way)| gives_way.is_cancelled()));
        assert_eq!(bodies.lock().left, 0);
        let _one_more = begin();
        assert!(held[0].1.is_cancelled());
        assert!(!held[1].1.is_cancelled());
    }
}
