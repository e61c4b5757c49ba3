//! Names of policies.

/// All names; in addition, `static-` and a number is `static` with that limit.
pub const NAMES: [&str; 31] = [
    "rr",
    "random",
    "leastconn",
    "static",
    "prop",
    "ac",
    "fc-prop-mean",
    "fc-hash-mean",
    "fc-prop",
    "fc-hash",
    "fc-native",
    "fc-prop-mpl",
    "fc-prop-auto",
    "fc-prop-mean-updates",
    "fc-prop-updates",
    "round-robin",
    "weighted-round-robin",
    "weighted-random",
    "basic-li",
    "job-informed",
    "load-informed",
    "p2c-ewma",
    "prequal",
    "aimd",
    "gradient2",
    "codel",
    "oracle",
    "primary-one",
    "primary-even",
    "placement",
    "placement-even",
];

/// Whether a policy has this name.
pub fn is_known(name: &str) -> bool {
    NAMES.contains(&name) || static_limit(name).is_some()
}

/// Limit in the name `static-N`, in jobs.
pub fn static_limit(name: &str) -> Option<f64> {
    let jobs: u32 = name.strip_prefix("static-")?.parse().ok()?;
    (jobs > 0).then(|| f64::from(jobs))
}
