//! Conformance vectors of the ring, under `vectors/`, for Lua, Redis and the filter.
//!
//! `PLIMSOLL_WRITE_VECTORS=1 cargo test -p plimsoll-core --test ring_vectors` writes them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod vectors;

use plimsoll_core::ring::{
    DEFAULT_SLOTS, NOBODY, RingTable, key_hash, probe_hash, ring_sizes, ring_weights, slot_of_hash,
    worth_moving,
};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::json;
use vectors::compare;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Owners as runs: `[owner, how many slots, owner, …]`.
fn runs(owners: &[u8]) -> Vec<u32> {
    let mut runs: Vec<u32> = Vec::new();
    for owner in owners {
        match runs.len() {
            n if n > 0 && runs[n - 2] == u32::from(*owner) => runs[n - 1] += 1,
            _ => runs.extend([u32::from(*owner), 1]),
        }
    }
    runs
}

fn bounds(random: &mut SmallRng, nodes: usize) -> Vec<f64> {
    (0..nodes)
        .map(|_| {
            if random.random_bool(0.1) {
                0.0
            } else {
                f64::from(random.random_range(1..8000_u32))
            }
        })
        .collect()
}

#[test]
fn key_hashes_match_vectors() {
    let mut random = SmallRng::seed_from_u64(1);
    let mut keys: Vec<Vec<u8>> = (0..=130).map(|length| vec![b'k'; length]).collect();
    keys.extend((0..=u8::MAX).map(|byte| vec![byte]));
    keys.extend((0..64).map(|_| {
        (0..random.random_range(1..300))
            .map(|_| random.random())
            .collect()
    }));
    for text in [
        "S0000",
        "S2999",
        "/stock/S0042",
        "Ünïcødé",
        "株価",
        "a\0b",
        " ",
        "\r\n",
        "🚢",
    ] {
        keys.push(text.as_bytes().to_vec());
    }
    let cases = keys.iter().map(|key| {
        let hash = key_hash(key);
        let slots = [1, 3, 1000, DEFAULT_SLOTS, 65_536].map(|slots| slot_of_hash(hash, slots));
        let probes = [1, 2, 63].map(|probe| probe_hash(hash, probe));
        json!({"key": hex(key), "hash": hash, "slots": slots, "probes": probes})
    });
    compare(
        "keys.json",
        "key in hex; hash: its XXH32; its slot of 1, 3, 1000, 16384, 65536; the hashes of probes 1, 2, 63",
        cases.collect(),
    );
}

#[test]
fn ring_sizes_match_vectors() {
    let mut random = SmallRng::seed_from_u64(2);
    let mut all = vec![
        vec![],
        vec![1.0],
        vec![0.0],
        vec![1.0; 3],
        vec![1.0; 255],
        vec![5120.0, 5120.0, 0.0, 1e-9],
        vec![1e308, 1e308, 1e308],
    ];
    for nodes in [2, 3, 5, 17, 100, 255] {
        all.extend((0..6).map(|_| bounds(&mut random, nodes)));
    }
    let cases = all.iter().flat_map(|bounds| {
        [1000, DEFAULT_SLOTS]
            .map(|slots| json!({"bounds": bounds, "slots": slots, "sizes": ring_sizes(bounds, slots).unwrap()}))
    });
    compare(
        "sizes.json",
        "ring sizes by largest remainders, ties to the smaller index",
        cases.collect(),
    );
}

#[test]
fn ring_weights_match_vectors() {
    let mut random = SmallRng::seed_from_u64(9);
    let mut all = vec![
        vec![None; 3],
        vec![Some(80.0), None],
        vec![Some(0.1), Some(0.2), None, Some(0.3), None],
        vec![Some(120.0), Some(40.5)],
    ];
    all.extend([3, 17, 100].map(|nodes| {
        let mut capacity = || f64::from(random.random_range(1..8000_u32)) / 7.0;
        let mut some: Vec<_> = (0..nodes).map(|_| Some(capacity())).collect();
        some.iter_mut().step_by(3).for_each(|it| *it = None);
        some
    }));
    let cases = all
        .iter()
        .map(|capacities| json!({"capacities": capacities, "weights": ring_weights(capacities)}));
    compare(
        "weights.json",
        "the mean of the known capacities where one is not known, summed in order",
        cases.collect(),
    );
}

#[test]
fn ring_changes_match_vectors() {
    let mut random = SmallRng::seed_from_u64(3);
    let mut cases = Vec::new();
    for (slots, most) in [
        (16, 3),
        (1000, 20),
        (DEFAULT_SLOTS, 5),
        (DEFAULT_SLOTS, 255),
    ] {
        let mut table = RingTable::empty(slots).unwrap();
        for step in 0..8 {
            let nodes = if step == 0 {
                1
            } else {
                random.random_range(1..=most)
            };
            let wanted = if step == 6 {
                vec![0; nodes]
            } else {
                ring_sizes(&bounds(&mut random, nodes), slots).unwrap()
            };
            let worth = worth_moving(&table.sizes(), &wanted, 0.05);
            let delta = table.change_to(&wanted).unwrap();
            let before = runs(table.owners());
            table.apply(&delta, table.nodes().max(nodes)).unwrap();
            cases.push(json!({
                "slots": slots, "before": before, "sizes": wanted, "worth_moving_at_5_percent": worth,
                "moves": delta.moves.len(), "after": runs(table.owners()),
            }));
        }
    }
    compare(
        "changes.json",
        "owners before and after as runs [owner, slots, …], 255 for nobody; the sizes wanted; how many slots move",
        cases,
    );
}

#[test]
fn candidates_match_vectors() {
    let mut random = SmallRng::seed_from_u64(4);
    let mut cases = Vec::new();
    for nodes in [1, 2, 5, 255] {
        let mut table = RingTable::empty(DEFAULT_SLOTS).unwrap();
        let sizes = ring_sizes(&bounds(&mut random, nodes), DEFAULT_SLOTS).unwrap();
        table
            .apply(&table.change_to(&sizes).unwrap(), nodes)
            .unwrap();
        for _ in 0..12 {
            let hash: u32 = random.random();
            let found: Vec<u8> = table.candidates(hash).collect();
            cases.push(json!({"sizes": sizes, "owners": runs(table.owners()), "hash": hash, "candidates": found}));
        }
    }
    assert!(cases.iter().all(|case| {
        case["candidates"]
            .as_array()
            .unwrap()
            .iter()
            .all(|c| *c != json!(NOBODY))
    }));
    compare(
        "candidates.json",
        "the nodes to try for a hash, in order, on the table of these owners",
        cases,
    );
}
