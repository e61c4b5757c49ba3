//! The file of overrides in the state directory.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::ServiceOverride;
use crate::{kept_file, overrides::ProxyId};

/// Version of the file's layout.
pub const VERSION: u32 = 1;

/// Content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// [`VERSION`].
    pub version: u32,
    /// Overrides by service name.
    pub services: BTreeMap<String, ServiceOverride>,
    /// Drained proxies that need a `ready`.
    pub owed_ready: BTreeSet<ProxyId>,
}

/// Reads the file; a missing file counts as empty.
pub fn read(file: &Path) -> anyhow::Result<Kept> {
    let Some(kept) = kept_file::read::<Kept>(file)? else {
        return Ok(Kept::default());
    };
    kept_file::check_version(kept.version, VERSION)?;
    Ok(kept)
}
