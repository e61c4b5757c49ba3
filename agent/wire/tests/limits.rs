//! Limits that the function library and Lua share.

use plimsoll_wire::{
    LEASE_SECONDS, MAX_CONFIGURED_NAME_BYTES, MAX_MESSAGE_SETS, MAX_NAME_BYTES, MAX_NODES,
    MAX_NUMBER, MAX_OBSERVATION_BYTES,
};

const RING: &str = concat!(
    include_str!("../../../lua/redis/prelude.lua"),
    include_str!("../../../lua/redis/plimsoll/1-records.lua"),
);
const PLACEMENT: &str = include_str!("../../../lua/redis/plimsoll_placement/1-records.lua");

/// Value of a limit in a library.
fn told(library: &str, name: &str) -> Option<f64> {
    let start = format!("local {name} = ");
    let line = library.lines().find_map(|line| line.strip_prefix(&start))?;
    line.split_whitespace().next()?.parse().ok()
}

#[test]
fn function_libraries_have_the_same_limits() {
    for (name, limit) in [
        ("MAX_NODES", MAX_NODES as f64),
        ("MAX_NAME", MAX_NAME_BYTES as f64),
        ("MAX_OBSERVATION_BYTES", MAX_OBSERVATION_BYTES as f64),
        ("MAX_LEASE_MS", 1000.0 * LEASE_SECONDS.end()),
        ("MIN_LEASE_MS", 1000.0 * LEASE_SECONDS.start()),
        ("MAX_NUMBER", MAX_NUMBER),
    ] {
        assert_eq!(told(RING, name), Some(limit), "{name}");
    }
    for name in ["MAX_BUSY", "MAX_PAIRS"] {
        assert_eq!(
            told(PLACEMENT, name),
            Some(MAX_MESSAGE_SETS as f64),
            "{name}"
        );
    }
}

#[test]
fn lua_takes_names_of_clusters_as_agents_do() {
    let settings = include_str!("../../../lua/plimsoll/settings.lua");
    let check = format!("cluster = {{ check = name({MAX_CONFIGURED_NAME_BYTES})");
    assert_eq!(settings.matches(&check).count(), 2);
    assert_eq!(settings.matches("cluster = { check").count(), 2);
}
