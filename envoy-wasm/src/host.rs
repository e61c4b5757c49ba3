//! Calls to Envoy that report failures as values, where the SDK's own wrappers panic.

use std::{
    cell::OnceCell,
    time::{Duration, Instant},
};

use envoy_policy::{call::Request, refusal::Refusal};
use proxy_wasm::{
    hostcalls,
    types::{MapType, Status},
};

thread_local! {
    static START: OnceCell<Instant> = const { OnceCell::new() };
}

/// Monotonic time since this VM's first call, seconds.
pub fn now() -> f64 {
    START.with(|start| start.get_or_init(Instant::now).elapsed().as_secs_f64())
}

/// A seed from the clock, nanoseconds since 1970; differs between VMs and processes unless they start at the same time.
pub fn seed() -> u64 {
    let time = hostcalls::get_current_time().ok();
    let since = time.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or(1, |since| since.as_nanos() as u64)
}

/// A value of the data that VMs share, and its compare-and-swap number for [`share_if`].
pub fn shared(key: &str) -> Option<(Vec<u8>, u32)> {
    match hostcalls::get_shared_data(key) {
        Ok((Some(value), cas)) => Some((value, cas.unwrap_or(0))),
        _ => None,
    }
}

/// Sets a value of the shared data unconditionally.
pub fn share(key: &str, value: &[u8]) {
    // A failure does no harm: the value is written again later.
    let _ = hostcalls::set_shared_data(key, Some(value), None);
}

/// Sets a value of the shared data unless it has changed since `cas`. Returns false if it has. With `None`, for the
/// first value, there is no such check: the last writer wins.
pub fn share_if(key: &str, value: &[u8], cas: Option<u32>) -> bool {
    hostcalls::set_shared_data(key, Some(value), cas).is_ok()
}

fn header(map: MapType, name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(map, name).ok().flatten()
}

/// The value of a request header.
pub fn request_header(name: &str) -> Option<Vec<u8>> {
    header(MapType::HttpRequestHeaders, name)
}

/// All request headers, in order; names are in lower case.
pub fn request_headers() -> Vec<(String, Vec<u8>)> {
    hostcalls::get_map_bytes(MapType::HttpRequestHeaders).unwrap_or_default()
}

/// Sets a request header, or removes it if `value` is `None`. Returns false if Envoy refuses.
pub fn set_request_header(name: &str, value: Option<&str>) -> bool {
    hostcalls::set_map_value(MapType::HttpRequestHeaders, name, value).is_ok()
}

/// The value of a response header.
pub fn response_header(name: &str) -> Option<Vec<u8>> {
    header(MapType::HttpResponseHeaders, name)
}

/// A property of the stream or of Envoy, as bytes.
pub fn property(path: &[&str]) -> Option<Vec<u8>> {
    hostcalls::get_property(path.to_vec()).ok().flatten()
}

/// A numeric property: 8 bytes, little-endian.
pub fn number(path: &[&str]) -> Option<u64> {
    Some(u64::from_le_bytes(property(path)?.try_into().ok()?))
}

/// Keeps a property with the stream, for the filter in the other position. Returns false if Envoy refuses.
pub fn set_property(name: &str, value: &[u8]) -> bool {
    hostcalls::set_property(vec![name], Some(value)).is_ok()
}

/// Calls an agent, and returns the token of its answer. `agents` is the name of the agents' cluster in Envoy, `token` a
/// bearer token.
///
/// # Errors
///
/// If Envoy cannot make the call.
pub fn ask(agents: &str, token: Option<&str>, request: &Request) -> Result<u64, String> {
    let headers = request.headers(agents, token);
    let headers = headers.iter().map(|(name, value)| (*name, value.as_str()));
    let timeout = Duration::from_secs_f64(request.timeout);
    let body = request.body.as_deref();
    let called = hostcalls::dispatch_http_call(agents, headers.collect(), body, vec![], timeout);
    called.map(u64::from).map_err(|status| match status {
        Status::BadArgument => format!("Envoy has no cluster {agents}"),
        other => format!("Envoy does not call {agents}: {other:?}"),
    })
}

/// Answers the current stream's request with a refusal. Returns false if Envoy cannot.
pub fn refuse(refusal: &Refusal) -> bool {
    let headers = refusal.headers();
    let headers = headers.iter().map(|(name, value)| (*name, value.as_str()));
    let body = Some(refusal.body.as_bytes());
    hostcalls::send_http_response(refusal.status, headers.collect(), body).is_ok()
}

/// Envoy's node id.
pub fn node_id() -> Option<String> {
    String::from_utf8(property(&["xds", "node", "id"])?).ok()
}
