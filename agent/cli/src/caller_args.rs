//! What commands show to the HTTP servers that they ask.

use std::path::PathBuf;

use clap::Args;
use plimsoll_net::Caller;
use plimsoll_settings::token;

/// Arguments of commands that ask agents.
#[derive(Args, Clone, Debug)]
pub struct CallerArgs {
    /// File with a token of the agent, where it asks for one.
    #[arg(long, env = "PLIMSOLL_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl CallerArgs {
    /// Reads the files.
    pub fn caller(&self) -> anyhow::Result<Caller> {
        let token = token("--token-file", self.token_file.as_deref());
        let token = token.map_err(|it| anyhow::anyhow!("{}: {}", it.key, it.problem))?;
        Ok(Caller { token })
    }
}
