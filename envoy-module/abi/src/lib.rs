//! Envoy's ABI for dynamic modules, made safe.
//!
//! `sys` declares what Envoy exports, and `hooks` exports what Envoy calls: both follow Envoy's `abi.h`, and
//! `check_header.py` compares them with it. Above them are traits that a module implements without any unsafe code. A
//! panic in one of them is counted and logged, and the stream goes on without the filter.

mod balancer;
mod balancer_hooks;
mod buffer;
mod configuration;
mod guard;
mod headers;
mod hooks;
mod http;
mod logger;
mod stream;
mod sys;

use std::{ffi::c_char, ptr, sync::OnceLock};

pub use balancer::{Host, Hosts, LoadBalancer, LoadBalancerConfig};
pub use configuration::{ConfigScheduler, Configuration, Counter, Gauge};
pub use guard::{guard, panics};
pub use headers::Headers;
pub use http::{Answer, HttpFilter, HttpFilterConfig, Next};
pub use stream::{Attribute, Reply, Stream, StreamScheduler};

/// A dynamic module, which provides filters and policies for Envoy's configuration.
pub trait Module: Sync {
    /// Name of the module, which precedes every line that it logs.
    fn name(&self) -> &'static str;

    /// Makes a configuration of an HTTP filter from its text in Envoy's configuration.
    ///
    /// # Errors
    ///
    /// Describes what is wrong with it; this is logged, and Envoy rejects the configuration.
    fn http_filter(
        &self,
        configuration: &Configuration,
        config: &[u8],
    ) -> Result<Box<dyn HttpFilterConfig>, String>;

    /// As [`Module::http_filter`], for a load balancing policy.
    fn load_balancer(&self, _config: &[u8]) -> Result<Box<dyn LoadBalancerConfig>, String> {
        Err("has no load balancing policy".to_owned())
    }
}

static MODULE: OnceLock<&'static dyn Module> = OnceLock::new();

/// Called by [`module!`] when Envoy has loaded the module. Returns the version of the ABI, or null after a panic: Envoy
/// then rejects the module.
#[doc(hidden)]
pub fn start(module: &'static dyn Module) -> *const c_char {
    let started = guard(|| {
        // The first load counts if a module is loaded twice.
        let _ = MODULE.set(module);
        logger::install(module.name());
        guard::install();
    });
    started.map_or(ptr::null(), |()| sys::VERSION.as_ptr())
}

/// A configuration for Envoy to hold. Null if the module rejects it, which is logged, or panics.
fn made<T>(make: impl FnOnce(&dyn Module) -> Result<T, String>) -> *const T {
    let made = guard(|| make(*MODULE.get().ok_or("is not started")?));
    match made {
        Some(Ok(config)) => Box::into_raw(Box::new(config)),
        Some(Err(problem)) => {
            log::error!("{problem}");
            ptr::null()
        }
        None => ptr::null(),
    }
}

/// Makes a library a dynamic module of Envoy: `envoy_abi::module!(Example);`, where `Example` is a constant [`Module`].
#[macro_export]
macro_rules! module {
    ($module:expr) => {
        /// Called by Envoy when it has loaded the library.
        #[unsafe(no_mangle)]
        pub extern "C" fn envoy_dynamic_module_on_program_init() -> *const ::std::ffi::c_char {
            $crate::start(&$module)
        }
    };
}
