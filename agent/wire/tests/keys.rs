//! Keys in Redis: HAProxy's Lua uses the same.

use plimsoll_wire::{placement_keys, ring_keys};

/// The parts of a list in Lua, as `local NAME = { "a", "b" }` has it.
fn parts<'a>(lua: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!("local {name} = {{ ");
    let list = lua.lines().find_map(|line| line.strip_prefix(&start));
    let list = list.and_then(|list| list.strip_suffix(" }"));
    let parts = list.into_iter().flat_map(|list| list.split(", "));
    parts.map(|part| part.trim_matches('"')).collect()
}

#[test]
fn lua_has_the_same_keys() {
    let ring = include_str!("../../../lua/plimsoll/follower.lua");
    assert!(ring.contains(r#"("plimsoll:{%s}:%s"):format("#));
    let of_ring = parts(ring, "FUNCTIONS");
    let of_ring: Vec<String> = of_ring
        .iter()
        .map(|part| format!("plimsoll:{{c}}:{part}"))
        .collect();
    assert_eq!(of_ring, ring_keys("c"));
    let placement = include_str!("../../../lua/plimsoll/placement/link.lua");
    assert!(placement.contains(r#"("plimsoll:{%s}:placement"):format("#));
    let of_placement = parts(placement, "PARTS");
    let of_placement: Vec<String> = of_placement
        .iter()
        .map(|part| format!("plimsoll:{{c}}:placement{part}"))
        .collect();
    assert_eq!(of_placement, placement_keys("c"));
}
