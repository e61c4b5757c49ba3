//! How a stream ended, by Envoy's response flags and response code details.

/// Response flags of a client that left: it closed its connection (`DownstreamConnectionTermination`), or reset its
/// stream (`DownstreamRemoteReset`).
const CLIENT_LEFT: u64 = 1 << 14 | 1 << 28;
/// Response flags of requests that reached no node: no healthy host, connection failed, circuit breaker open, no route,
/// no cluster.
const UNREACHED: u64 = 0x2 | 0x20 | 0x80 | 0x100 | 0x100_0000;
/// Response code details of an answer that a node gave.
const BY_NODE: &[u8] = b"via_upstream";

/// True if the client left.
pub fn client_left(flags: u64) -> bool {
    flags & CLIENT_LEFT != 0
}

/// True if no node is still working on the request: either a node has answered it, or it reached none.
pub fn is_through(details: Option<&[u8]>, flags: u64) -> bool {
    let is_unreached = flags != 0 && flags & !UNREACHED == 0;
    details == Some(BY_NODE) || is_unreached
}
