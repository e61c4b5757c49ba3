//! Function libraries for Redis (`lua/redis/`).

/// A Redis function library. Agents load it if it is missing or older.
#[derive(Debug)]
pub struct Library {
    /// Source text for `FUNCTION LOAD`.
    pub text: &'static str,
    /// Name of the function that returns the loaded version.
    pub asks: &'static str,
    /// Version of `text`.
    pub version: i64,
}

/// Concatenates the shebang, the prelude common to all libraries, and the parts of this one.
macro_rules! function_library {
    ($name:literal, $($part:literal),+ $(,)?) => {
        concat!(
            "#!lua name=", $name, "\n",
            include_str!("../../../lua/redis/prelude.lua"),
            $(include_str!(concat!("../../../lua/redis/", $name, "/", $part))),+
        )
    };
}

/// Library for the ring, shares and observations.
pub const RING: Library = Library {
    text: function_library!(
        "plimsoll",
        "1-records.lua",
        "2-leases.lua",
        "3-ring.lua",
        "4-shares.lua",
        "5-calls.lua",
    ),
    asks: "plimsoll_version",
    version: 8,
};

/// Library for the table of primaries.
pub const PLACEMENT: Library = Library {
    text: function_library!(
        "plimsoll_placement",
        "1-records.lua",
        "2-table.lua",
        "3-dispatchers.lua",
        "4-keeper.lua",
        "5-changes.lua",
        "6-calls.lua",
    ),
    asks: "plimsoll_placement_version",
    version: 2,
};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{fs, path::Path};

    use super::*;

    /// Concatenates the prelude and all parts in the directory, in the order of their names.
    fn put_together(name: &str) -> String {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lua/redis");
        let entries = fs::read_dir(directory.join(name)).unwrap();
        let mut parts: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        parts.sort();
        parts.insert(0, directory.join("prelude.lua"));
        let texts: Vec<_> = parts
            .iter()
            .map(|part| fs::read_to_string(part).unwrap())
            .collect();
        format!("#!lua name={name}\n{}", texts.concat())
    }

    #[test]
    fn a_library_has_all_its_parts_and_its_version() {
        for (name, library) in [("plimsoll", RING), ("plimsoll_placement", PLACEMENT)] {
            assert_eq!(library.text, put_together(name));
            let version = format!("\nlocal VERSION = {}\n", library.version);
            assert!(library.text.contains(&version), "{name}");
        }
    }
}
