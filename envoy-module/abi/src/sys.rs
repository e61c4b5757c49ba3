//! Envoy's side of the ABI: types, and the callbacks that a module may call. Names are Envoy's without their prefixes, so
//! that `check_header.py` can compare them with the header of an Envoy.

#![allow(non_upper_case_globals)]

use std::ffi::{CStr, c_char, c_void};

/// The ABI that these declarations follow.
pub const VERSION: &CStr = c"v0.2.0";

/// Declares C enumerations as integers, since Envoy may pass values that are not declared here.
macro_rules! enumeration {
    ($($name:ident { $($value:ident = $number:literal,)* })*) => {$(
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub u32);

        #[allow(dead_code)]
        impl $name {
            $(pub const $value: $name = $name($number);)*
        }

        // As a C `int`.
        const _: () = assert!(size_of::<$name>() == 4 && align_of::<$name>() == 4);
    )*};
}

enumeration! {
    HttpHeaderType {
        RequestHeader = 0,
        ResponseHeader = 2,
    }
    LogLevel {
        Trace = 0,
        Debug = 1,
        Info = 2,
        Warn = 3,
        Error = 4,
    }
    HttpCalloutInitResult {
        Success = 0,
        MissingRequiredHeaders = 1,
        ClusterNotFound = 2,
        DuplicateCalloutId = 3,
        CannotCreateRequest = 4,
    }
    HttpCalloutResult {
        Success = 0,
        Reset = 1,
        ExceedResponseBufferLimit = 2,
    }
    HttpStreamResetReason {
        ConnectionFailure = 0,
    }
    MetricsResult {
        Success = 0,
    }
    AttributeId {
        ResponseCodeDetails = 16,
        ResponseFlags = 17,
        UpstreamAddress = 41,
    }
    OnHttpFilterRequestHeadersStatus {
        Continue = 0,
        StopIteration = 1,
        StopAllIterationAndWatermark = 4,
    }
    OnHttpFilterRequestBodyStatus {
        Continue = 0,
    }
    OnHttpFilterRequestTrailersStatus {
        Continue = 0,
    }
    OnHttpFilterResponseHeadersStatus {
        Continue = 0,
    }
    OnHttpFilterResponseBodyStatus {
        Continue = 0,
    }
    OnHttpFilterResponseTrailersStatus {
        Continue = 0,
    }
}

pub type BufferModulePtr = *const c_char;
pub type BufferEnvoyPtr = *const c_char;
pub type HttpFilterConfigEnvoyPtr = *mut c_void;
pub type HttpFilterConfigModulePtr = *const c_void;
pub type HttpFilterEnvoyPtr = *mut c_void;
pub type HttpFilterModulePtr = *const c_void;
pub type LbConfigEnvoyPtr = *mut c_void;
pub type LbConfigModulePtr = *const c_void;
pub type LbEnvoyPtr = *mut c_void;
pub type LbModulePtr = *const c_void;
pub type LbContextEnvoyPtr = *mut c_void;
pub type HttpFilterSchedulerModulePtr = *mut c_void;
pub type HttpFilterConfigSchedulerModulePtr = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EnvoyBuffer {
    pub ptr: BufferEnvoyPtr,
    pub length: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ModuleBuffer {
    pub ptr: BufferModulePtr,
    pub length: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EnvoyHttpHeader {
    pub key_ptr: BufferEnvoyPtr,
    pub key_length: usize,
    pub value_ptr: BufferEnvoyPtr,
    pub value_length: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ModuleHttpHeader {
    pub key_ptr: BufferModulePtr,
    pub key_length: usize,
    pub value_ptr: BufferModulePtr,
    pub value_length: usize,
}

// The layout in C: fields of one word each, in this order, without padding.
const _: () = {
    use std::mem::offset_of;

    const WORD: usize = size_of::<*const c_void>();

    assert!(size_of::<usize>() == WORD);
    assert!(size_of::<EnvoyBuffer>() == 2 * WORD);
    assert!(align_of::<EnvoyBuffer>() == WORD);
    assert!(offset_of!(EnvoyBuffer, length) == WORD);
    assert!(size_of::<ModuleBuffer>() == size_of::<EnvoyBuffer>());
    assert!(offset_of!(ModuleBuffer, length) == WORD);
    assert!(size_of::<EnvoyHttpHeader>() == 4 * WORD);
    assert!(align_of::<EnvoyHttpHeader>() == WORD);
    assert!(offset_of!(EnvoyHttpHeader, key_length) == WORD);
    assert!(offset_of!(EnvoyHttpHeader, value_ptr) == 2 * WORD);
    assert!(offset_of!(EnvoyHttpHeader, value_length) == 3 * WORD);
    assert!(size_of::<ModuleHttpHeader>() == size_of::<EnvoyHttpHeader>());
    assert!(offset_of!(ModuleHttpHeader, key_length) == WORD);
    assert!(offset_of!(ModuleHttpHeader, value_ptr) == 2 * WORD);
    assert!(offset_of!(ModuleHttpHeader, value_length) == 3 * WORD);
};

unsafe extern "C" {
    pub fn envoy_dynamic_module_callback_log(level: LogLevel, message: ModuleBuffer);
    pub fn envoy_dynamic_module_callback_log_enabled(level: LogLevel) -> bool;
    pub fn envoy_dynamic_module_callback_get_concurrency() -> u32;
    pub fn envoy_dynamic_module_callback_is_validation_mode() -> bool;

    pub fn envoy_dynamic_module_callback_http_filter_config_define_counter(
        filter_config_envoy_ptr: HttpFilterConfigEnvoyPtr,
        name: ModuleBuffer,
        label_names: *mut ModuleBuffer,
        label_names_length: usize,
        counter_id_ptr: *mut usize,
    ) -> MetricsResult;
    pub fn envoy_dynamic_module_callback_http_filter_config_define_gauge(
        filter_config_envoy_ptr: HttpFilterConfigEnvoyPtr,
        name: ModuleBuffer,
        label_names: *mut ModuleBuffer,
        label_names_length: usize,
        gauge_id_ptr: *mut usize,
    ) -> MetricsResult;
    pub fn envoy_dynamic_module_callback_http_filter_config_increment_counter(
        filter_config_envoy_ptr: HttpFilterConfigEnvoyPtr,
        id: usize,
        label_values: *mut ModuleBuffer,
        label_values_length: usize,
        value: u64,
    ) -> MetricsResult;
    pub fn envoy_dynamic_module_callback_http_filter_config_set_gauge(
        filter_config_envoy_ptr: HttpFilterConfigEnvoyPtr,
        id: usize,
        label_values: *mut ModuleBuffer,
        label_values_length: usize,
        value: u64,
    ) -> MetricsResult;
    pub fn envoy_dynamic_module_callback_http_filter_config_http_callout(
        filter_config_envoy_ptr: HttpFilterConfigEnvoyPtr,
        callout_id_out: *mut u64,
        cluster_name: ModuleBuffer,
        headers: *mut ModuleHttpHeader,
        headers_size: usize,
        body: ModuleBuffer,
        timeout_milliseconds: u64,
    ) -> HttpCalloutInitResult;
    pub fn envoy_dynamic_module_callback_http_filter_config_scheduler_new(
        filter_config_envoy_ptr: HttpFilterConfigEnvoyPtr,
    ) -> HttpFilterConfigSchedulerModulePtr;
    pub fn envoy_dynamic_module_callback_http_filter_config_scheduler_commit(
        scheduler_module_ptr: HttpFilterConfigSchedulerModulePtr,
        event_id: u64,
    );
    pub fn envoy_dynamic_module_callback_http_filter_config_scheduler_delete(
        scheduler_module_ptr: HttpFilterConfigSchedulerModulePtr,
    );

    pub fn envoy_dynamic_module_callback_http_filter_get_worker_index(
        filter_envoy_ptr: HttpFilterEnvoyPtr,
    ) -> u32;
    pub fn envoy_dynamic_module_callback_http_get_header(
        filter_envoy_ptr: HttpFilterEnvoyPtr,
        header_type: HttpHeaderType,
        key: ModuleBuffer,
        result_buffer: *mut EnvoyBuffer,
        index: usize,
        optional_size: *mut usize,
    ) -> bool;
    pub fn envoy_dynamic_module_callback_http_get_headers_size(
        filter_envoy_ptr: HttpFilterEnvoyPtr,
        header_type: HttpHeaderType,
    ) -> usize;
    pub fn envoy_dynamic_module_callback_http_get_headers(
        filter_envoy_ptr: HttpFilterEnvoyPtr,
        header_type: HttpHeaderType,
        result_headers: *mut EnvoyHttpHeader,
    ) -> bool;
    pub fn envoy_dynamic_module_callback_http_set_header(
        filter_envoy_ptr: HttpFilterEnvoyPtr,
        header_type: HttpHeaderType,
        key: ModuleBuffer,
        value: ModuleBuffer,
    ) -> bool;
    pub fn envoy_dynamic_module_callback_http_filter_get_attribute_string(
        filter_envoy_ptr: HttpFilterEnvoyPtr,
        attribute_id: AttributeId,
        result: *mut EnvoyBuffer,
    ) -> bool;
    pub fn envoy_dynamic_module_callback_http_filter_get_attribute_int(
        filter_envoy_ptr: HttpFilterEnvoyPtr,
        attribute_id: AttributeId,
        result: *mut u64,
    ) -> bool;
    pub fn envoy_dynamic_module_callback_http_set_filter_state_bytes(
        filter_envoy_ptr: HttpFilterEnvoyPtr,
        key: ModuleBuffer,
        value: ModuleBuffer,
    ) -> bool;
    pub fn envoy_dynamic_module_callback_http_get_filter_state_bytes(
        filter_envoy_ptr: HttpFilterEnvoyPtr,
        key: ModuleBuffer,
        result: *mut EnvoyBuffer,
    ) -> bool;
    pub fn envoy_dynamic_module_callback_http_set_upstream_override_host(
        filter_envoy_ptr: HttpFilterEnvoyPtr,
        host: ModuleBuffer,
        strict: bool,
    ) -> bool;
    pub fn envoy_dynamic_module_callback_http_clear_route_cache(
        filter_envoy_ptr: HttpFilterEnvoyPtr,
    );
    pub fn envoy_dynamic_module_callback_http_send_response(
        filter_envoy_ptr: HttpFilterEnvoyPtr,
        status_code: u32,
        headers_vector: *mut ModuleHttpHeader,
        headers_vector_size: usize,
        body: ModuleBuffer,
        details: ModuleBuffer,
    );
    pub fn envoy_dynamic_module_callback_http_filter_continue_decoding(
        filter_envoy_ptr: HttpFilterEnvoyPtr,
    );
    pub fn envoy_dynamic_module_callback_http_filter_scheduler_new(
        filter_envoy_ptr: HttpFilterEnvoyPtr,
    ) -> HttpFilterSchedulerModulePtr;
    pub fn envoy_dynamic_module_callback_http_filter_scheduler_commit(
        scheduler_module_ptr: HttpFilterSchedulerModulePtr,
        event_id: u64,
    );
    pub fn envoy_dynamic_module_callback_http_filter_scheduler_delete(
        scheduler_module_ptr: HttpFilterSchedulerModulePtr,
    );

    pub fn envoy_dynamic_module_callback_lb_get_priority_set_size(
        lb_envoy_ptr: LbEnvoyPtr,
    ) -> usize;
    pub fn envoy_dynamic_module_callback_lb_get_hosts_count(
        lb_envoy_ptr: LbEnvoyPtr,
        priority: u32,
    ) -> usize;
    pub fn envoy_dynamic_module_callback_lb_get_host_address(
        lb_envoy_ptr: LbEnvoyPtr,
        priority: u32,
        index: usize,
        result: *mut EnvoyBuffer,
    ) -> bool;
    pub fn envoy_dynamic_module_callback_lb_get_healthy_hosts_count(
        lb_envoy_ptr: LbEnvoyPtr,
        priority: u32,
    ) -> usize;
    pub fn envoy_dynamic_module_callback_lb_get_healthy_host_address(
        lb_envoy_ptr: LbEnvoyPtr,
        priority: u32,
        index: usize,
        result: *mut EnvoyBuffer,
    ) -> bool;
    pub fn envoy_dynamic_module_callback_lb_context_should_select_another_host(
        lb_envoy_ptr: LbEnvoyPtr,
        context_envoy_ptr: LbContextEnvoyPtr,
        priority: u32,
        index: usize,
    ) -> bool;
}
