//! JSON files in the state directory, read and replaced as a whole.

use std::{io, path::Path};

use serde::{Serialize, de::DeserializeOwned};

/// Maximum size of a file in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Reads a file; `None` if it does not exist. Fails if it is too large or malformed.
pub fn read<T: DeserializeOwned>(file: &Path) -> anyhow::Result<Option<T>> {
    let length = match std::fs::metadata(file) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    anyhow::ensure!(length <= MAX_FILE, "{length} bytes, limit {MAX_FILE}");
    Ok(Some(serde_json::from_slice(&std::fs::read(file)?)?))
}

/// Fails if the version of the layout is not the known one.
pub fn check_version(found: u32, known: u32) -> anyhow::Result<()> {
    anyhow::ensure!(found == known, "layout version {found}, expected {known}");
    Ok(())
}

/// Replaces the file atomically: a crash leaves either the old or the new one.
pub async fn write<T: Serialize>(file: &Path, value: &T) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(value)?;
    let beside = file.with_extension("json.new");
    tokio::fs::write(&beside, &text).await?;
    tokio::fs::File::open(&beside).await?.sync_all().await?;
    tokio::fs::rename(&beside, file).await?;
    Ok(())
}
