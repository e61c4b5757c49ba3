//! Addresses, backoff, an HTTP client, and listeners and HTTP servers with connection limits that evict idle clients.

mod access;
mod address;
mod backoff;
mod body;
mod caller;
mod client;
mod connection;
mod http;
mod places;
mod reread;
mod server;
mod socket;
mod tls;

pub use access::{Endpoint, Guard, REFUSED, Role, Tokens};
pub use address::{
    DatabaseAddress, HttpUrl, address, database_address, host_of, host_port, http_or_https_url,
    http_url, network, without_user,
};
pub use backoff::{Backoff, backoff};
pub use body::{Bodies, Refusal, Whole};
pub use caller::{Caller, HttpStream};
pub use client::{FetchError, FetchFailure, get, get_as, post_as, printable};
pub use connection::{CLOSED, Connection, Door, Heads, bind, is_allowed};
pub use http::{parse_body, scrape};
pub use places::{Entered, Place, Places};
pub use reread::Reread;
pub use server::{Rules, serve};
pub use socket::{DatabaseSocket, Socket, connect};
pub use tls::{ClientTls, ServerTls, TextTls, TlsFile, TlsFiles, TlsProblem, TlsTexts};
