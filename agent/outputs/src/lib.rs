//! Outputs to proxies and operators: agent checks, endpoint discovery, load reports, HTTP and the control socket.

pub mod agent_check;
pub mod control_socket;
pub mod envoy;
pub mod http;
pub mod orca;
