//! `/v1/ring`: the ring as this agent last knew it, whole or as changes.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use plimsoll_core::ring::RingTable;
use plimsoll_node::ring::{RingBoard, RingState};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

/// Followers that may wait for news at a time.
pub(super) const MAX_WAITING: usize = 256;
/// The longest a follower may wait for news.
const MAX_WAIT: f64 = 60.0;
/// With a run of changes for fewer slots than this, the table is hardly larger.
const SLOTS_PER_CHANGE: usize = 4;

/// What the route goes by.
#[derive(Clone)]
pub struct RingRoute {
    /// The rings followed.
    pub rings: Arc<RingBoard>,
    /// One for each follower that waits, [`MAX_WAITING`].
    pub permits: Arc<Semaphore>,
}

/// What is asked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// Which service's ring; the only one where there is one.
    service: Option<String>,
    /// The version the follower has.
    since: Option<u64>,
    /// Seconds to wait for a later version.
    wait: Option<f64>,
}

#[derive(Serialize)]
struct RingView<'a> {
    service: &'a str,
    version: u64,
    slots: u32,
    nodes: &'a [String],
    /// Owner and number of slots, by turns; 255 is nobody. The whole table.
    #[serde(skip_serializing_if = "Option::is_none")]
    owners: Option<Vec<u32>>,
    /// First slot, number and owner of what moved since the version asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<[u32; 3]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
}

/// The table; with `since` the changes from there where they are known, 304 where there are none. A
/// follower may be ahead, for it may have asked another agent before: it waits until this one has caught
/// up, and is given the table only if that does not happen. Then Redis lost what the follower has.
pub async fn ring(State(context): State<RingRoute>, Query(asked): Query<Asked>) -> Response {
    let board = &context.rings;
    let Some(service) = asked.service.clone().or_else(|| board.only()) else {
        return refused("service: say which; this agent follows no ring, or several");
    };
    let wait = asked.wait.unwrap_or(0.0);
    if !(0.0..=MAX_WAIT).contains(&wait) {
        return refused("wait: must be from 0 to 60 seconds");
    }
    // One that does not wait holds nothing up.
    let _permit = match context.permits.try_acquire() {
        Err(_) if wait > 0.0 => {
            let problem = format!("{MAX_WAITING} followers are waiting, which is the most\n");
            return (StatusCode::TOO_MANY_REQUESTS, problem).into_response();
        }
        permit => permit,
    };
    let mut news = board.watch();
    let until = tokio::time::Instant::now() + Duration::from_secs_f64(wait);
    loop {
        news.borrow_and_update();
        let held = board.of(&service);
        let is_news =
            |ring: &RingState| asked.since.is_none_or(|since| since < ring.table.version());
        if let Some(ring) = held.as_deref().filter(|ring| is_news(ring)) {
            return Json(view(board, &service, ring, asked.since)).into_response();
        }
        tokio::select! {
            _ = news.changed() => {}
            () = tokio::time::sleep_until(until) => {
                return match held {
                    Some(ring) if asked.since == Some(ring.table.version()) => {
                        StatusCode::NOT_MODIFIED.into_response()
                    }
                    Some(ring) => Json(view(board, &service, &ring, None)).into_response(),
                    None => (StatusCode::NOT_FOUND, "no ring yet\n").into_response(),
                };
            }
        }
    }
}

fn refused(why: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response()
}

fn view<'a>(
    board: &RingBoard,
    service: &'a str,
    ring: &'a RingState,
    since: Option<u64>,
) -> RingView<'a> {
    let deltas = since.and_then(|version| board.since(service, version));
    // Later changes win where two name one slot.
    let changes = deltas.as_ref().map(|deltas| {
        let moves = deltas.iter().flat_map(|delta| delta.moves.iter().copied());
        let last: std::collections::BTreeMap<u32, u8> = moves.collect();
        runs(last)
    });
    let most = ring.table.slots() as usize / SLOTS_PER_CHANGE;
    let changes = changes.filter(|changes| changes.len() <= most);
    RingView {
        service,
        version: ring.table.version(),
        slots: ring.table.slots(),
        nodes: &ring.names,
        owners: changes.is_none().then(|| owners(&ring.table)),
        since: since.filter(|_| changes.is_some()),
        changes,
    }
}

fn owners(table: &RingTable) -> Vec<u32> {
    let all = (0..).zip(table.owners().iter().copied());
    runs(all)
        .into_iter()
        .flat_map(|[_, count, owner]| [owner, count])
        .collect()
}

fn runs(slots: impl IntoIterator<Item = (u32, u8)>) -> Vec<[u32; 3]> {
    let mut runs: Vec<[u32; 3]> = Vec::new();
    for (slot, owner) in slots {
        let owner = u32::from(owner);
        match runs.last_mut() {
            Some([first, count, held]) if *first + *count == slot && *held == owner => *count += 1,
            _ => runs.push([slot, 1, owner]),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn state(version: u64, owners: Vec<u8>) -> RingState {
        RingState {
            table: RingTable::from_owners(version, 255, owners).unwrap(),
            names: vec!["x".repeat(128); 255],
        }
    }

    fn size(board: &RingBoard, since: Option<u64>) -> usize {
        let ring = board.of("stocks").unwrap();
        let view = view(board, "stocks", &ring, since);
        assert_eq!(view.owners.is_some(), view.changes.is_none());
        serde_json::to_vec(&view).unwrap().len()
    }

    #[test]
    fn an_answer_is_no_larger_than_the_guide_says() {
        let worst = |first: usize| (0..65_536).map(move |slot| 253 + ((first + slot) % 2) as u8);
        let board = RingBoard::default();
        board.put("stocks", state(999_999_999_999_998, worst(0).collect()));
        let whole = size(&board, None);
        assert!(whole < 430_000, "{whole}");
        // Every slot has changed.
        board.put("stocks", state(999_999_999_999_999, worst(1).collect()));
        let changed = size(&board, Some(999_999_999_999_998));
        assert_eq!(changed, whole);
    }
}
