//! Names of the Redis keys, in the order the function libraries take them. All keys of a cluster have the same hash
//! tag, so that a Redis Cluster keeps them on one node.

/// Keys of a cluster's ring.
pub fn ring_keys(cluster: &str) -> [String; 5] {
    ["nodes", "ring", "proxies", "shares", "observations"]
        .map(|part| format!("plimsoll:{{{cluster}}}:{part}"))
}

/// Keys of a cluster's placement table.
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
