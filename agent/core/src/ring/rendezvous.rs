//! Weighted rendezvous hashing: no table, no shared state, exact shares in expectation.

use super::{key_hash, probe_hash};

/// The node for a key: the smallest `-ln(u) / w`, with `u` drawn from key and node name; `None`
/// where no weight is above 0. A change of one weight moves only keys to or from that node.
pub fn rendezvous<'a>(
    key: &[u8],
    nodes: impl IntoIterator<Item = (&'a str, f64)>,
) -> Option<&'a str> {
    let hash = key_hash(key);
    let mut best: Option<(f64, &str)> = None;
    for (name, weight) in nodes {
        if !(weight.is_finite() && weight > 0.0) {
            continue;
        }
        let drawn = probe_hash(hash ^ key_hash(name.as_bytes()), 1);
        // In (0, 1): the logarithm is finite and below 0.
        let u = (f64::from(drawn) + 0.5) / 4_294_967_296.0;
        let score = -u.ln() / weight;
        if best.is_none_or(|(least, first)| score < least || (score == least && name < first)) {
            best = Some((score, name));
        }
    }
    best.map(|(_, name)| name)
}
