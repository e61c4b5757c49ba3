//! Plimsoll's filter for Envoy, by the proxy-wasm ABI: thin over `plimsoll_core`.
//!
//! One module in two positions of one VM: among the HTTP filters it admits a request and names the
//! hosts it may go to; among the router's upstream filters, once per attempt, it counts what is in
//! flight at each host and measures its delay. One VM of a process talks to an agent for all.

pub mod config;
pub mod engine;
pub mod naming;
pub mod part;
pub mod primaries;
pub mod wire;

#[cfg(target_arch = "wasm32")]
mod board;
#[cfg(target_arch = "wasm32")]
mod call;
#[cfg(target_arch = "wasm32")]
mod fetcher;
#[cfg(target_arch = "wasm32")]
mod filter;
#[cfg(target_arch = "wasm32")]
mod follower;
#[cfg(target_arch = "wasm32")]
mod host;
#[cfg(target_arch = "wasm32")]
mod metrics;
#[cfg(target_arch = "wasm32")]
mod primary_filter;
#[cfg(target_arch = "wasm32")]
mod roots;

#[cfg(target_arch = "wasm32")]
#[allow(missing_docs)]
mod start {
    proxy_wasm::main! {{
        proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
        proxy_wasm::set_root_context(|_| Box::new(crate::roots::Root::default()));
    }}
}
