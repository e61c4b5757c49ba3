//! What commands show to the HTTP servers that they ask, and whom they trust.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use plimsoll_net::{Caller, HttpUrl};
use plimsoll_settings::{SharedTls, TlsSection, Wrong};

/// Arguments of commands that ask agents.
#[derive(Args, Clone, Debug)]
pub struct CallerArgs {
    /// File with a token of the agents, where they ask for one.
    #[arg(long, env = "PLIMSOLL_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with the authorities that are trusted for https://, in place of the system's.
    #[arg(long, env = "PLIMSOLL_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// File with a certificate, where the agents ask for one.
    #[arg(long, env = "PLIMSOLL_CERTIFICATE_FILE", value_name = "FILE")]
    certificate_file: Option<PathBuf>,
    /// File with the certificate's key.
    #[arg(long, env = "PLIMSOLL_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl CallerArgs {
    /// Reads the files, for these URLs.
    pub fn caller<'a>(
        &self,
        urls: impl IntoIterator<Item = &'a HttpUrl>,
    ) -> anyhow::Result<Caller> {
        let files = TlsSection {
            ca_file: self.ca_file.clone(),
            certificate_file: self.certificate_file.clone(),
            key_file: self.key_file.clone(),
        };
        let caller = SharedTls::new(&files)
            .and_then(|tls| tls.caller("token_file", self.token_file.as_deref(), urls));
        caller.map_err(|Wrong { key, problem }| {
            let option = key.trim_start_matches("tls.").replace('_', "-");
            anyhow!("--{option}: {problem}")
        })
    }
}
