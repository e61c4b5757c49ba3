//! What Envoy offers, without the SDK's panics where a call fails.

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

/// Seconds since this VM's first look at the clock.
pub fn now() -> f64 {
    START.with(|start| start.get_or_init(Instant::now).elapsed().as_secs_f64())
}

/// A number that another VM or process does not get.
pub fn seed() -> u64 {
    let time = hostcalls::get_current_time().ok();
    let since = time.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or(1, |since| since.as_nanos() as u64)
}

/// A value that VMs share, and what its next change is compared with.
pub fn shared(key: &str) -> Option<(Vec<u8>, u32)> {
    match hostcalls::get_shared_data(key) {
        Ok((Some(value), cas)) => Some((value, cas.unwrap_or(0))),
        _ => None,
    }
}

/// Shares a value, whatever there was.
pub fn share(key: &str, value: &[u8]) {
    // It is written again.
    let _ = hostcalls::set_shared_data(key, Some(value), None);
}

/// Shares a value unless another was shared meanwhile. The first one cannot be guarded: whoever comes
/// last wins.
pub fn share_if(key: &str, value: &[u8], cas: Option<u32>) -> bool {
    hostcalls::set_shared_data(key, Some(value), cas).is_ok()
}

fn header(map: MapType, name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(map, name).ok().flatten()
}

/// A request header.
pub fn request_header(name: &str) -> Option<Vec<u8>> {
    header(MapType::HttpRequestHeaders, name)
}

/// All request headers, by names in lower case, in one call.
pub fn request_headers() -> Vec<(String, Vec<u8>)> {
    hostcalls::get_map_bytes(MapType::HttpRequestHeaders).unwrap_or_default()
}

/// Sets or removes a request header.
pub fn set_request_header(name: &str, value: Option<&str>) -> bool {
    hostcalls::set_map_value(MapType::HttpRequestHeaders, name, value).is_ok()
}

/// A response header.
pub fn response_header(name: &str) -> Option<Vec<u8>> {
    header(MapType::HttpResponseHeaders, name)
}

/// A property of the stream or of the proxy.
pub fn property(path: &[&str]) -> Option<Vec<u8>> {
    hostcalls::get_property(path.to_vec()).ok().flatten()
}

/// A property that is a number.
pub fn number(path: &[&str]) -> Option<u64> {
    Some(u64::from_le_bytes(property(path)?.try_into().ok()?))
}

/// Keeps a property with the stream, for the filter in the other position.
pub fn set_property(name: &str, value: &[u8]) -> bool {
    hostcalls::set_property(vec![name], Some(value)).is_ok()
}

/// Calls an agent; the token of its answer.
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

/// Answers in a node's place.
pub fn refuse(refusal: &Refusal) -> bool {
    let headers = refusal.headers();
    let headers = headers.iter().map(|(name, value)| (*name, value.as_str()));
    let body = Some(refusal.body.as_bytes());
    hostcalls::send_http_response(refusal.status, headers.collect(), body).is_ok()
}

/// What Envoy calls this process.
pub fn node_id() -> Option<String> {
    String::from_utf8(property(&["xds", "node", "id"])?).ok()
}
