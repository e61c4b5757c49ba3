//! Access to Envoy for a filter's configuration while one of its hooks runs on the main thread.

use std::{ffi::c_void, marker::PhantomData, time::Duration};

use crate::{
    buffer::{lent, lent_headers, lent_or_null},
    sys::{self, HttpCalloutInitResult, HttpFilterConfigEnvoyPtr, MetricsResult, ModuleBuffer},
};

/// A configuration's handle to Envoy; valid for one hook, on the main thread.
#[derive(Debug)]
pub struct Configuration {
    pointer: HttpFilterConfigEnvoyPtr,
    /// Keeps the handle on the main thread.
    thread: PhantomData<*mut c_void>,
}

/// A configuration's counter with labels.
#[derive(Clone, Copy, Debug)]
pub struct Counter(usize);

/// A configuration's gauge with labels.
#[derive(Clone, Copy, Debug)]
pub struct Gauge(usize);

fn lent_all(texts: &[&str]) -> Vec<ModuleBuffer> {
    texts.iter().map(|text| lent(text.as_bytes())).collect()
}

type Define = unsafe extern "C" fn(
    HttpFilterConfigEnvoyPtr,
    ModuleBuffer,
    *mut ModuleBuffer,
    usize,
    *mut usize,
) -> MetricsResult;

impl Configuration {
    /// # Safety
    ///
    /// Envoy must have passed `pointer` to the hook that runs, on its main thread, and this must not outlive it.
    pub(crate) unsafe fn new(pointer: HttpFilterConfigEnvoyPtr) -> Self {
        Configuration {
            pointer,
            thread: PhantomData,
        }
    }

    /// Number of Envoy's workers.
    pub fn workers(&self) -> usize {
        // SAFETY: takes no pointers; this is the main thread.
        unsafe { sys::envoy_dynamic_module_callback_get_concurrency() as usize }
    }

    /// True if Envoy only validates the configuration, so that no stream will come.
    pub fn is_validation(&self) -> bool {
        // SAFETY: takes no pointers; this is the main thread.
        unsafe { sys::envoy_dynamic_module_callback_is_validation_mode() }
    }

    fn define(&self, define: Define, name: &str, labels: &[&str]) -> Option<usize> {
        let (mut labels, mut id) = (lent_all(labels), 0);
        // SAFETY: the pointer is good for the hook's duration, as in all that follows; Envoy copies the names.
        let result = unsafe {
            define(
                self.pointer,
                lent(name.as_bytes()),
                labels.as_mut_ptr(),
                labels.len(),
                &mut id,
            )
        };
        (result == MetricsResult::Success).then_some(id)
    }

    /// Defines a counter with labels of these names; `None` if Envoy refuses. Only while the configuration is being
    /// made.
    pub fn define_counter(&self, name: &str, labels: &[&str]) -> Option<Counter> {
        let define = sys::envoy_dynamic_module_callback_http_filter_config_define_counter;
        self.define(define, name, labels).map(Counter)
    }

    /// Defines a gauge with labels of these names; `None` if Envoy refuses. Only while the configuration is being made.
    pub fn define_gauge(&self, name: &str, labels: &[&str]) -> Option<Gauge> {
        let define = sys::envoy_dynamic_module_callback_http_filter_config_define_gauge;
        self.define(define, name, labels).map(Gauge)
    }

    /// Adds to a counter, for these values of the labels.
    pub fn add(&self, counter: Counter, labels: &[&str], value: u64) {
        let mut labels = lent_all(labels);
        // SAFETY: the pointer is good, and the labels are read before Envoy returns. A count that Envoy refuses is lost.
        let _ = unsafe {
            sys::envoy_dynamic_module_callback_http_filter_config_increment_counter(
                self.pointer,
                counter.0,
                labels.as_mut_ptr(),
                labels.len(),
                value,
            )
        };
    }

    /// Sets a gauge, for these values of the labels.
    pub fn set(&self, gauge: Gauge, labels: &[&str], value: u64) {
        let mut labels = lent_all(labels);
        // SAFETY: the pointer is good, and the labels are read before Envoy returns.
        let _ = unsafe {
            sys::envoy_dynamic_module_callback_http_filter_config_set_gauge(
                self.pointer,
                gauge.0,
                labels.as_mut_ptr(),
                labels.len(),
                value,
            )
        };
    }

    /// Sends a request to a host of one of Envoy's clusters. The headers must include `:method`, `:path`, and `host` or
    /// `:authority`; the timeout is cut to whole milliseconds. Returns the number of the call, with which the answer
    /// comes; Envoy may deliver it before this returns.
    ///
    /// # Errors
    ///
    /// If Envoy does not have the cluster, or no healthy host in it, or refuses the call.
    pub fn call(
        &self,
        cluster: &str,
        headers: &[(&str, String)],
        body: Option<&[u8]>,
        timeout: Duration,
    ) -> Result<u64, String> {
        let mut headers = lent_headers(headers);
        let mut call = 0;
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        // SAFETY: the pointer is good, Envoy copies what is lent, and writes to a place that is ours.
        let result = unsafe {
            sys::envoy_dynamic_module_callback_http_filter_config_http_callout(
                self.pointer,
                &mut call,
                lent(cluster.as_bytes()),
                headers.as_mut_ptr(),
                headers.len(),
                lent_or_null(body),
                timeout,
            )
        };
        match result {
            HttpCalloutInitResult::Success => Ok(call),
            HttpCalloutInitResult::ClusterNotFound => {
                Err(format!("Envoy has no cluster {cluster}"))
            }
            HttpCalloutInitResult::CannotCreateRequest => {
                Err(format!("no healthy host in Envoy's cluster {cluster}"))
            }
            other => Err(format!("Envoy does not call {cluster}: {other:?}")),
        }
    }

    /// A scheduler with which to wake the configuration later.
    pub fn scheduler(&self) -> ConfigScheduler {
        // SAFETY: the pointer is good; what is made is ours to delete.
        ConfigScheduler(unsafe {
            sys::envoy_dynamic_module_callback_http_filter_config_scheduler_new(self.pointer)
        })
    }
}

/// Wakes a configuration on the main thread, from any thread. It must be dropped no later than its configuration, as
/// Envoy's main thread may be gone after that.
#[derive(Debug)]
pub struct ConfigScheduler(sys::HttpFilterConfigSchedulerModulePtr);

// SAFETY: Envoy's scheduler is made for other threads, and has no state of the thread that made it.
unsafe impl Send for ConfigScheduler {}
// SAFETY: as for `Send`; `commit` changes nothing in it.
unsafe impl Sync for ConfigScheduler {}

impl ConfigScheduler {
    /// Schedules a call of [`HttpFilterConfig::on_wake`](crate::HttpFilterConfig::on_wake).
    pub fn wake(&self) {
        // SAFETY: the scheduler is deleted by `drop` alone.
        unsafe { sys::envoy_dynamic_module_callback_http_filter_config_scheduler_commit(self.0, 0) }
    }
}

impl Drop for ConfigScheduler {
    fn drop(&mut self) {
        // SAFETY: the scheduler is ours, and is not used after this.
        unsafe { sys::envoy_dynamic_module_callback_http_filter_config_scheduler_delete(self.0) }
    }
}
