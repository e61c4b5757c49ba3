//! Access to Envoy for a stream's filter while one of its hooks runs.

use std::{ffi::c_void, marker::PhantomData};

use crate::{
    buffer::{EMPTY, bytes, lent, lent_headers, lent_or_null},
    headers::Headers,
    sys::{self, AttributeId, HttpFilterEnvoyPtr, HttpHeaderType},
};

/// An attribute of a stream in Envoy.
#[derive(Clone, Copy, Debug)]
pub enum Attribute {
    /// `response.code_details`, text.
    ResponseCodeDetails,
    /// `response.flags`, a number.
    ResponseFlags,
    /// `upstream.address`, text.
    UpstreamAddress,
}

impl Attribute {
    fn id(self) -> AttributeId {
        match self {
            Attribute::ResponseCodeDetails => AttributeId::ResponseCodeDetails,
            Attribute::ResponseFlags => AttributeId::ResponseFlags,
            Attribute::UpstreamAddress => AttributeId::UpstreamAddress,
        }
    }
}

/// A local reply to a request, which then goes no further.
#[derive(Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(&'static str, String)>,
    /// Body.
    pub body: &'static str,
    /// Details of the response code: `%RESPONSE_CODE_DETAILS%` in access logs.
    pub details: &'static str,
}

/// A stream's handle to Envoy; valid for one hook, on one worker. Values read from the stream borrow it, and setters
/// borrow it exclusively, since Envoy's buffers are valid only until the hook ends or a setter is called.
#[derive(Debug)]
pub struct Stream<'a> {
    filter: HttpFilterEnvoyPtr,
    hook: PhantomData<&'a mut c_void>,
}

impl Stream<'_> {
    /// # Safety
    ///
    /// Envoy must have passed `filter` to the hook that runs, and `'a` must end with it.
    pub(crate) unsafe fn new(filter: HttpFilterEnvoyPtr) -> Self {
        Stream {
            filter,
            hook: PhantomData,
        }
    }

    /// Number of the stream's worker, from 0.
    pub fn worker(&self) -> usize {
        // SAFETY: `filter` is good for the hook's duration, as in all that follows.
        unsafe {
            sys::envoy_dynamic_module_callback_http_filter_get_worker_index(self.filter) as usize
        }
    }

    /// The first value of a request header; `name` is in lower case.
    pub fn request_header(&self, name: &str) -> Option<&[u8]> {
        let (mut value, mut count) = (EMPTY, 0);
        // SAFETY: `filter` is good, and Envoy writes to two places that are ours.
        let found = unsafe {
            sys::envoy_dynamic_module_callback_http_get_header(
                self.filter,
                HttpHeaderType::RequestHeader,
                lent(name.as_bytes()),
                &mut value,
                0,
                &mut count,
            )
        };
        // SAFETY: no setter is called while the value borrows `self`.
        (found && count > 0).then(|| unsafe { bytes(value) })
    }

    /// All request headers.
    pub fn request_headers(&self) -> Headers<'_> {
        self.headers(HttpHeaderType::RequestHeader)
    }

    /// All response headers. To look up several of them this is cheaper than one call of Envoy for each.
    pub fn response_headers(&self) -> Headers<'_> {
        self.headers(HttpHeaderType::ResponseHeader)
    }

    fn headers(&self, kind: HttpHeaderType) -> Headers<'_> {
        // SAFETY: `filter` is good.
        let count =
            unsafe { sys::envoy_dynamic_module_callback_http_get_headers_size(self.filter, kind) };
        let mut headers = Vec::with_capacity(count);
        // SAFETY: `filter` is good, and there is room for as many as Envoy has just said there are.
        let found = unsafe {
            sys::envoy_dynamic_module_callback_http_get_headers(
                self.filter,
                kind,
                headers.as_mut_ptr(),
            )
        };
        if found {
            // SAFETY: Envoy has written as many as it said there are.
            unsafe { headers.set_len(count) };
        }
        // SAFETY: no setter is called while the headers borrow `self`.
        unsafe { Headers::new(headers) }
    }

    /// Sets a request header, or removes it if `value` is `None`. Returns false if Envoy refuses.
    pub fn set_request_header(&mut self, name: &str, value: Option<&[u8]>) -> bool {
        // SAFETY: `filter` is good, and Envoy copies both before it returns.
        unsafe {
            sys::envoy_dynamic_module_callback_http_set_header(
                self.filter,
                HttpHeaderType::RequestHeader,
                lent(name.as_bytes()),
                lent_or_null(value),
            )
        }
    }

    /// The value of a text attribute; `None` if the stream does not have it.
    pub fn text(&self, attribute: Attribute) -> Option<&[u8]> {
        let mut value = EMPTY;
        // SAFETY: `filter` is good, and Envoy writes to a place that is ours.
        let found = unsafe {
            sys::envoy_dynamic_module_callback_http_filter_get_attribute_string(
                self.filter,
                attribute.id(),
                &mut value,
            )
        };
        // SAFETY: no setter is called while the value borrows `self`.
        found.then(|| unsafe { bytes(value) })
    }

    /// The value of a numeric attribute; `None` if the stream does not have it.
    pub fn number(&self, attribute: Attribute) -> Option<u64> {
        let mut value = 0;
        // SAFETY: `filter` is good, and Envoy writes to a place that is ours.
        let found = unsafe {
            sys::envoy_dynamic_module_callback_http_filter_get_attribute_int(
                self.filter,
                attribute.id(),
                &mut value,
            )
        };
        found.then_some(value)
    }

    /// The bytes kept with the request under this name ([`Stream::keep`]).
    pub fn kept(&self, name: &str) -> Option<&[u8]> {
        let mut value = EMPTY;
        // SAFETY: `filter` is good, and Envoy writes to a place that is ours.
        let found = unsafe {
            sys::envoy_dynamic_module_callback_http_get_filter_state_bytes(
                self.filter,
                lent(name.as_bytes()),
                &mut value,
            )
        };
        // SAFETY: no setter is called while the value borrows `self`.
        found.then(|| unsafe { bytes(value) })
    }

    /// Keeps bytes with the request in filter state, for all its filters, including those of its attempts. Returns
    /// false if Envoy refuses.
    pub fn keep(&mut self, name: &str, value: &[u8]) -> bool {
        // SAFETY: `filter` is good, and Envoy copies both before it returns.
        unsafe {
            sys::envoy_dynamic_module_callback_http_set_filter_state_bytes(
                self.filter,
                lent(name.as_bytes()),
                lent(value),
            )
        }
    }

    /// Sets the host of the first attempt, by IP address and port. If it is not among the healthy hosts, the load
    /// balancing policy chooses, as it does for retries. Returns false if Envoy refuses.
    pub fn prefer_host(&mut self, address: &str) -> bool {
        // SAFETY: `filter` is good, and Envoy copies the address before it returns.
        unsafe {
            sys::envoy_dynamic_module_callback_http_set_upstream_override_host(
                self.filter,
                lent(address.as_bytes()),
                false,
            )
        }
    }

    /// Makes Envoy look up the route again.
    pub fn clear_route(&mut self) {
        // SAFETY: `filter` is good.
        unsafe { sys::envoy_dynamic_module_callback_http_clear_route_cache(self.filter) }
    }

    /// A scheduler with which to wake the stream later.
    pub fn scheduler(&self) -> StreamScheduler {
        // SAFETY: `filter` is good; what is made is ours to delete.
        StreamScheduler(unsafe {
            sys::envoy_dynamic_module_callback_http_filter_scheduler_new(self.filter)
        })
    }

    /// Answers the request. Envoy may call other hooks of this filter, and end the stream, before this returns.
    pub(crate) fn send(self, reply: &Reply) {
        let mut headers = lent_headers(&reply.headers);
        // SAFETY: `filter` is good, and Envoy copies everything before it returns.
        unsafe {
            sys::envoy_dynamic_module_callback_http_send_response(
                self.filter,
                u32::from(reply.status),
                headers.as_mut_ptr(),
                headers.len(),
                lent(reply.body.as_bytes()),
                lent(reply.details.as_bytes()),
            );
        }
    }

    /// Passes on a request that waits. Envoy may call other hooks of this filter, and end the stream, before this
    /// returns.
    pub(crate) fn resume(self) {
        // SAFETY: `filter` is good.
        unsafe { sys::envoy_dynamic_module_callback_http_filter_continue_decoding(self.filter) }
    }
}

/// Wakes a stream on its worker, from any thread; does nothing once the stream has ended.
#[derive(Debug)]
pub struct StreamScheduler(sys::HttpFilterSchedulerModulePtr);

// SAFETY: Envoy's scheduler is made for other threads, and has no state of the thread that made it.
unsafe impl Send for StreamScheduler {}
// SAFETY: as for `Send`; `commit` changes nothing in it.
unsafe impl Sync for StreamScheduler {}

impl StreamScheduler {
    /// Schedules a call of [`HttpFilter::on_wake`](crate::HttpFilter::on_wake).
    pub fn wake(&self) {
        // SAFETY: the scheduler is deleted by `drop` alone.
        unsafe { sys::envoy_dynamic_module_callback_http_filter_scheduler_commit(self.0, 0) }
    }
}

impl Drop for StreamScheduler {
    fn drop(&mut self) {
        // SAFETY: the scheduler is ours, and is not used after this.
        unsafe { sys::envoy_dynamic_module_callback_http_filter_scheduler_delete(self.0) }
    }
}
