//! `/v1/ring`: the ring as this agent last knew it, whole or as changes.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use plimsoll_node::ring::RingBoard;
use plimsoll_wire::{Ring, RingView};
use serde::Deserialize;
use tokio::sync::Semaphore;

/// Followers that may wait for news at a time.
pub(super) const MAX_WAITING: usize = 256;
/// The longest a follower may wait for news.
const MAX_WAIT: f64 = 60.0;

/// State of the route.
#[derive(Clone)]
pub struct RingRoute {
    /// The rings followed.
    pub rings: Arc<RingBoard>,
    /// One for each follower that waits, [`MAX_WAITING`].
    pub permits: Arc<Semaphore>,
}

/// Query parameters.
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
        let is_news = |ring: &Ring| asked.since.is_none_or(|since| since < ring.table.version());
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

fn view(board: &RingBoard, service: &str, ring: &Ring, since: Option<u64>) -> RingView {
    let deltas = since.and_then(|since| Some((since, board.since(service, since)?)));
    match deltas {
        Some((since, deltas)) => {
            let moves = deltas.iter().flat_map(|delta| delta.moves.iter().copied());
            RingView::changes(service, ring, since, moves)
        }
        None => RingView::whole(service, ring),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use plimsoll_core::ring::RingTable;

    use super::*;

    fn state(version: u64, owners: Vec<u8>) -> Ring {
        Ring {
            table: RingTable::from_owners(version, 255, owners).unwrap(),
            names: vec!["x".repeat(128); 255],
        }
    }

    fn size(board: &RingBoard, since: Option<u64>) -> usize {
        let ring = board.of("stocks").unwrap();
        serde_json::to_vec(&view(board, "stocks", &ring, since))
            .unwrap()
            .len()
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
