//! What Envoy says of how a stream went: its response flags and its code's details.

/// Flags of a client that left: it closed its connection (`DownstreamConnectionTermination`), or reset its
/// stream (`DownstreamRemoteReset`).
const CLIENT_LEFT: u64 = 1 << 14 | 1 << 28;
/// Flags of requests that reached no node: no healthy host, connection failed, circuit breaker open, no route,
/// no cluster.
const UNREACHED: u64 = 0x2 | 0x20 | 0x80 | 0x100 | 0x100_0000;
/// Details of an answer that a node gave.
const BY_NODE: &[u8] = b"via_upstream";

/// Whether nobody waited for the answer any longer.
pub fn client_left(flags: u64) -> bool {
    flags & CLIENT_LEFT != 0
}

/// Whether no node is at work on the request any more: one has answered it, or it reached none.
pub fn is_through(details: Option<&[u8]>, flags: u64) -> bool {
    let is_unreached = flags != 0 && flags & !UNREACHED == 0;
    details == Some(BY_NODE) || is_unreached
}
