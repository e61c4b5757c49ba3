//! Files in the state directory: JSON, read and replaced as a whole.

use std::{io, path::Path};

use serde::{Serialize, de::DeserializeOwned};

/// A file larger than this is not ours.
const MAX_FILE: u64 = 4 << 20;

/// Reads a file; `None` where there is none.
pub fn read<T: DeserializeOwned>(file: &Path) -> anyhow::Result<Option<T>> {
    let length = match std::fs::metadata(file) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    anyhow::ensure!(
        length <= MAX_FILE,
        "{length} bytes are more than the {MAX_FILE} it may have"
    );
    Ok(Some(serde_json::from_slice(&std::fs::read(file)?)?))
}

/// Refuses another layout than the known one.
pub fn check_version(found: u32, known: u32) -> anyhow::Result<()> {
    anyhow::ensure!(found == known, "version {found} is not the known {known}");
    Ok(())
}

/// Replaces the file as a whole, so that a crash leaves the old one or the new one.
pub async fn write<T: Serialize>(file: &Path, value: &T) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(value)?;
    let beside = file.with_extension("json.new");
    tokio::fs::write(&beside, &text).await?;
    tokio::fs::File::open(&beside).await?.sync_all().await?;
    tokio::fs::rename(&beside, file).await?;
    Ok(())
}
