//! Plimsoll's filter for Envoy, by the proxy-wasm ABI: thin over `envoy_policy`.
//!
//! One module has two positions in the same VM. Among the HTTP filters it admits a request and names the hosts it may
//! go to, or names its primary; among the router's upstream filters, once per attempt, it counts what is in flight at
//! each host and measures its delay. One VM of a process fetches shares and the ring from the agents for all its VMs.
#![cfg(target_arch = "wasm32")]

mod board;
mod fetcher;
mod filter;
mod follower;
mod host;
mod metrics;
mod primary_filter;
mod roots;
mod vm;

#[allow(missing_docs)]
mod start {
    proxy_wasm::main! {{
        proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
        proxy_wasm::set_root_context(|_| Box::new(crate::roots::Root::default()));
    }}
}
