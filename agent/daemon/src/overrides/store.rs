//! The file in the state directory.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::ServiceOverride;
use crate::agent_check::ProxyId;

/// Version of the file's layout.
pub const VERSION: u32 = 1;
/// A file larger than this is not ours.
const MAX_FILE: u64 = 4 << 20;

/// What a restart must find again.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// [`VERSION`].
    pub version: u32,
    /// Overrides by service.
    pub services: BTreeMap<String, ServiceOverride>,
    /// Proxies that were told to drain.
    pub owed_ready: BTreeSet<ProxyId>,
}

/// Reads the file; a missing one is empty.
pub fn read(file: &Path) -> anyhow::Result<Kept> {
    let length = match std::fs::metadata(file) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
        Err(error) => return Err(error.into()),
    };
    anyhow::ensure!(
        length <= MAX_FILE,
        "{length} bytes are more than the {MAX_FILE} it may have"
    );
    let kept: Kept = serde_json::from_slice(&std::fs::read(file)?)?;
    anyhow::ensure!(
        kept.version == VERSION,
        "version {} is not the known {VERSION}",
        kept.version
    );
    Ok(kept)
}

/// Replaces the file as a whole, so that a crash leaves the old one or the new one.
pub async fn write(file: &Path, kept: &Kept) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(kept)?;
    let beside = file.with_extension("json.new");
    tokio::fs::write(&beside, &text).await?;
    tokio::fs::File::open(&beside).await?.sync_all().await?;
    tokio::fs::rename(&beside, file).await?;
    Ok(())
}
