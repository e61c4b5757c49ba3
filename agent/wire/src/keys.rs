//! Names of the keys in Redis, in the order in which the function libraries take them. All keys of a cluster have one
//! hash tag, so that a Redis Cluster keeps them together.

/// The keys of a cluster's ring.
pub fn ring_keys(cluster: &str) -> [String; 5] {
    ["nodes", "ring", "proxies", "shares", "observations"]
        .map(|part| format!("plimsoll:{{{cluster}}}:{part}"))
}

/// The keys of a cluster's table of primaries.
pub fn placement_keys(cluster: &str) -> [String; 7] {
    [
        "",
        ":table",
        ":log",
        ":dispatchers",
        ":busy",
        ":loads",
        ":gone",
    ]
    .map(|part| format!("plimsoll:{{{cluster}}}:placement{part}"))
}
