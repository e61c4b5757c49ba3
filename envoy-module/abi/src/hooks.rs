//! The hooks of HTTP filters that Envoy calls. Envoy rejects a module if one is missing.

use std::{cell::RefCell, rc::Rc};

use crate::{
    buffer::{array, bytes},
    configuration::Configuration,
    guard::guard,
    http::{Answer, HttpFilter, HttpFilterConfig, Next},
    made,
    stream::Stream,
    sys::{
        EnvoyBuffer, EnvoyHttpHeader, HttpCalloutResult, HttpFilterConfigEnvoyPtr,
        HttpFilterConfigModulePtr, HttpFilterEnvoyPtr, HttpFilterModulePtr, HttpStreamResetReason,
        OnHttpFilterRequestBodyStatus, OnHttpFilterRequestHeadersStatus,
        OnHttpFilterRequestTrailersStatus, OnHttpFilterResponseBodyStatus,
        OnHttpFilterResponseHeadersStatus, OnHttpFilterResponseTrailersStatus,
    },
};

struct Config(Box<dyn HttpFilterConfig>);

impl Config {
    /// # Safety
    ///
    /// `config` must be from `config_new`, and not destroyed before `'a` ends.
    unsafe fn of<'a>(config: HttpFilterConfigModulePtr) -> &'a Config {
        // SAFETY: `config_new` made it from a box; it is never borrowed exclusively.
        unsafe { &*config.cast() }
    }
}

/// One stream's filter; empty once it has panicked, or if it panicked when it was made.
struct Slot(RefCell<Option<Box<dyn HttpFilter>>>);

impl Slot {
    /// A shared reference, so that the slot outlives the hook even if Envoy destroys the stream while the hook runs.
    ///
    /// # Safety
    ///
    /// `slot` must be from `filter_new`, and not destroyed yet.
    unsafe fn of(slot: HttpFilterModulePtr) -> Rc<Slot> {
        let slot: *const Slot = slot.cast();
        // SAFETY: `filter_new` made it from an `Rc`, of which Envoy holds one count; hooks run on one thread.
        unsafe { Rc::increment_strong_count(slot) };
        // SAFETY: as above; the count is the one that was just added.
        unsafe { Rc::from_raw(slot) }
    }

    /// Runs a hook of the filter. `None` if there is no filter, if one of its hooks is already running, or if this one
    /// panics; then the filter is dropped.
    fn call<T>(&self, hook: impl FnOnce(&mut (dyn HttpFilter + 'static)) -> T) -> Option<T> {
        let called = guard(|| {
            let mut filter = self.0.try_borrow_mut().ok()?;
            filter.as_deref_mut().map(hook)
        });
        if called.is_none() {
            // Releases what the filter holds, which may panic, too.
            guard(|| drop(self.0.try_borrow_mut().map(|mut filter| filter.take())));
        }
        called.flatten()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let filter = self.0.take();
        guard(|| drop(filter));
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
    filter_config_envoy_ptr: HttpFilterConfigEnvoyPtr,
    _name: EnvoyBuffer,
    config: EnvoyBuffer,
) -> HttpFilterConfigModulePtr {
    // SAFETY: Envoy keeps the text for the duration of the hook.
    let text = unsafe { bytes(config) };
    // SAFETY: Envoy calls this on its main thread, and `configuration` does not outlive the call.
    let configuration = unsafe { Configuration::new(filter_config_envoy_ptr) };
    made(|module| Ok(Config(module.http_filter(&configuration, text)?))).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(
    filter_config_ptr: HttpFilterConfigModulePtr,
) {
    let config: *mut Config = filter_config_ptr.cast_mut().cast();
    // SAFETY: `config_new` made it from a box, and Envoy has no streams with it any longer.
    let config = unsafe { Box::from_raw(config) };
    guard(|| drop(config));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_scheduled(
    filter_config_envoy_ptr: HttpFilterConfigEnvoyPtr,
    filter_config_ptr: HttpFilterConfigModulePtr,
    _event_id: u64,
) {
    // SAFETY: Envoy holds the configuration for the duration of the hook.
    let config = unsafe { Config::of(filter_config_ptr) };
    // SAFETY: Envoy calls this on its main thread, and `configuration` does not outlive the call.
    let configuration = unsafe { Configuration::new(filter_config_envoy_ptr) };
    guard(|| config.0.on_wake(&configuration));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_http_callout_done(
    filter_config_envoy_ptr: HttpFilterConfigEnvoyPtr,
    filter_config_ptr: HttpFilterConfigModulePtr,
    callout_id: u64,
    result: HttpCalloutResult,
    headers: *mut EnvoyHttpHeader,
    headers_size: usize,
    body_chunks: *mut EnvoyBuffer,
    body_chunks_size: usize,
) {
    // SAFETY: Envoy holds the configuration for the duration of the hook.
    let config = unsafe { Config::of(filter_config_ptr) };
    // SAFETY: Envoy calls this on its main thread, and `configuration` does not outlive the call.
    let configuration = unsafe { Configuration::new(filter_config_envoy_ptr) };
    // SAFETY: Envoy keeps the headers for the duration of the hook, or there are none.
    let headers = unsafe { array(headers, headers_size) };
    // SAFETY: the same holds for the body.
    let chunks = unsafe { array(body_chunks, body_chunks_size) };
    guard(|| {
        let status = match result {
            HttpCalloutResult::Success => status_of(headers),
            _ => 0,
        };
        // SAFETY: Envoy keeps the body for the duration of the hook.
        let chunk = |chunk: &EnvoyBuffer| unsafe { bytes(*chunk) };
        let body = chunks.iter().map(chunk).collect::<Vec<_>>().concat();
        config
            .0
            .on_answer(&configuration, callout_id, Answer { status, body });
    });
}

fn status_of(headers: &[EnvoyHttpHeader]) -> u16 {
    let text = |ptr, length| {
        // SAFETY: Envoy keeps the headers for the duration of the hook that called this.
        unsafe { bytes(EnvoyBuffer { ptr, length }) }
    };
    let is_status =
        |header: &&EnvoyHttpHeader| text(header.key_ptr, header.key_length) == b":status";
    let status = headers.iter().find(is_status);
    let status = status.map(|header| text(header.value_ptr, header.value_length));
    let status = status.and_then(|status| std::str::from_utf8(status).ok());
    status.and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_new(
    filter_config_ptr: HttpFilterConfigModulePtr,
    filter_envoy_ptr: HttpFilterEnvoyPtr,
) -> HttpFilterModulePtr {
    // SAFETY: Envoy holds the configuration as long as it has streams.
    let config = unsafe { Config::of(filter_config_ptr) };
    // SAFETY: Envoy passed the stream to this hook, and `stream` does not outlive it.
    let stream = unsafe { Stream::new(filter_envoy_ptr) };
    // A stream with an empty slot goes on; with a null pointer Envoy would close it.
    let filter = guard(|| config.0.filter(&stream));
    Rc::into_raw(Rc::new(Slot(RefCell::new(filter)))).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_destroy(
    filter_module_ptr: HttpFilterModulePtr,
) {
    let slot: *const Slot = filter_module_ptr.cast();
    // SAFETY: `filter_new` made it from an `Rc`; this is the count that Envoy held.
    drop(unsafe { Rc::from_raw(slot) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
    filter_envoy_ptr: HttpFilterEnvoyPtr,
    filter_module_ptr: HttpFilterModulePtr,
    _end_of_stream: bool,
) -> OnHttpFilterRequestHeadersStatus {
    // SAFETY: Envoy destroys the filter after its other hooks.
    let slot = unsafe { Slot::of(filter_module_ptr) };
    // SAFETY: Envoy passed the stream to this hook, and `stream` does not outlive it.
    let mut stream = unsafe { Stream::new(filter_envoy_ptr) };
    match slot.call(|filter| filter.on_request_headers(&mut stream)) {
        Some(Next::Answer(reply)) => {
            // The filter is no longer borrowed: Envoy may call its other hooks before this returns.
            stream.send(&reply);
            OnHttpFilterRequestHeadersStatus::StopIteration
        }
        Some(Next::Wait) => OnHttpFilterRequestHeadersStatus::StopAllIterationAndWatermark,
        Some(Next::Continue) | None => OnHttpFilterRequestHeadersStatus::Continue,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_scheduled(
    filter_envoy_ptr: HttpFilterEnvoyPtr,
    filter_module_ptr: HttpFilterModulePtr,
    _event_id: u64,
) {
    // SAFETY: Envoy destroys the filter after its other hooks.
    let slot = unsafe { Slot::of(filter_module_ptr) };
    // SAFETY: Envoy passed the stream to this hook, and `stream` does not outlive it.
    let mut stream = unsafe { Stream::new(filter_envoy_ptr) };
    match slot.call(|filter| filter.on_wake(&mut stream)) {
        Some(Next::Answer(reply)) => stream.send(&reply),
        Some(Next::Wait) => {}
        Some(Next::Continue) | None => stream.resume(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(
    filter_envoy_ptr: HttpFilterEnvoyPtr,
    filter_module_ptr: HttpFilterModulePtr,
    _end_of_stream: bool,
) -> OnHttpFilterResponseHeadersStatus {
    // SAFETY: Envoy destroys the filter after its other hooks.
    let slot = unsafe { Slot::of(filter_module_ptr) };
    // SAFETY: Envoy passed the stream to this hook, and `stream` does not outlive it.
    let mut stream = unsafe { Stream::new(filter_envoy_ptr) };
    slot.call(|filter| filter.on_response_headers(&mut stream));
    OnHttpFilterResponseHeadersStatus::Continue
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_stream_complete(
    filter_envoy_ptr: HttpFilterEnvoyPtr,
    filter_module_ptr: HttpFilterModulePtr,
) {
    // SAFETY: Envoy destroys the filter after its other hooks.
    let slot = unsafe { Slot::of(filter_module_ptr) };
    // SAFETY: Envoy passed the stream to this hook, and `stream` does not outlive it.
    let mut stream = unsafe { Stream::new(filter_envoy_ptr) };
    slot.call(|filter| filter.on_complete(&mut stream));
}

// The hooks below do nothing, but Envoy requires them.

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_body(
    _filter_envoy_ptr: HttpFilterEnvoyPtr,
    _filter_module_ptr: HttpFilterModulePtr,
    _end_of_stream: bool,
) -> OnHttpFilterRequestBodyStatus {
    OnHttpFilterRequestBodyStatus::Continue
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_trailers(
    _filter_envoy_ptr: HttpFilterEnvoyPtr,
    _filter_module_ptr: HttpFilterModulePtr,
) -> OnHttpFilterRequestTrailersStatus {
    OnHttpFilterRequestTrailersStatus::Continue
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_body(
    _filter_envoy_ptr: HttpFilterEnvoyPtr,
    _filter_module_ptr: HttpFilterModulePtr,
    _end_of_stream: bool,
) -> OnHttpFilterResponseBodyStatus {
    OnHttpFilterResponseBodyStatus::Continue
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_trailers(
    _filter_envoy_ptr: HttpFilterEnvoyPtr,
    _filter_module_ptr: HttpFilterModulePtr,
) -> OnHttpFilterResponseTrailersStatus {
    OnHttpFilterResponseTrailersStatus::Continue
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_callout_done(
    _filter_envoy_ptr: HttpFilterEnvoyPtr,
    _filter_module_ptr: HttpFilterModulePtr,
    _callout_id: u64,
    _result: HttpCalloutResult,
    _headers: *mut EnvoyHttpHeader,
    _headers_size: usize,
    _body_chunks: *mut EnvoyBuffer,
    _body_chunks_size: usize,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_headers(
    _filter_envoy_ptr: HttpFilterEnvoyPtr,
    _filter_module_ptr: HttpFilterModulePtr,
    _stream_id: u64,
    _headers: *mut EnvoyHttpHeader,
    _headers_size: usize,
    _end_stream: bool,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_data(
    _filter_envoy_ptr: HttpFilterEnvoyPtr,
    _filter_module_ptr: HttpFilterModulePtr,
    _stream_id: u64,
    _data: *const EnvoyBuffer,
    _data_count: usize,
    _end_stream: bool,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_trailers(
    _filter_envoy_ptr: HttpFilterEnvoyPtr,
    _filter_module_ptr: HttpFilterModulePtr,
    _stream_id: u64,
    _trailers: *mut EnvoyHttpHeader,
    _trailers_size: usize,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_complete(
    _filter_envoy_ptr: HttpFilterEnvoyPtr,
    _filter_module_ptr: HttpFilterModulePtr,
    _stream_id: u64,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_reset(
    _filter_envoy_ptr: HttpFilterEnvoyPtr,
    _filter_module_ptr: HttpFilterModulePtr,
    _stream_id: u64,
    _reason: HttpStreamResetReason,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
    _filter_envoy_ptr: HttpFilterEnvoyPtr,
    _filter_module_ptr: HttpFilterModulePtr,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(
    _filter_envoy_ptr: HttpFilterEnvoyPtr,
    _filter_module_ptr: HttpFilterModulePtr,
) {
}
