use plimsoll_core::ring::{MAX_NODES, MAX_SLOTS, NOBODY, RingTable};
use plimsoll_wire::{Ring, RingView, is_name};

/// A ring as JSON, whole or as changes of [`held`], or as bytes.
pub fn wire_ring(data: &[u8]) {
    if let Some(ring) = Ring::from_bytes(data) {
        assert_eq!(ring.to_bytes(), data);
        check(&ring);
    }
    let Ok(view) = RingView::parse(data) else {
        return;
    };
    let held = held();
    for before in [None, Some(&held)] {
        if let Ok(ring) = view.clone().ring(before) {
            assert!(
                ring.names
                    .iter()
                    .all(|name| name.is_empty() || is_name(name))
            );
            assert_eq!(Ring::from_bytes(&ring.to_bytes()).as_ref(), Some(&ring));
            assert_eq!(told(&RingView::whole("s", &ring), None), ring);
            check(&ring);
            check_changes(&ring);
        }
    }
}

/// The ring that changes lead on from.
fn held() -> Ring {
    Ring {
        table: RingTable::from_owners(4, 2, vec![0, 0, 0, 1, 1, 1, 1, NOBODY]).unwrap(),
        names: vec!["a".to_owned(), "b".to_owned()],
    }
}

fn told(view: &RingView, held: Option<&Ring>) -> Ring {
    let text = serde_json::to_vec(view).unwrap();
    RingView::parse(&text).unwrap().ring(held).unwrap()
}

fn counted(table: &RingTable) -> [u32; 256] {
    let mut counts = [0; 256];
    for owner in table.owners() {
        counts[usize::from(*owner)] += 1;
    }
    counts
}

fn check(ring: &Ring) {
    let table = &ring.table;
    assert!((1..=MAX_SLOTS).contains(&table.slots()));
    assert!(table.nodes() <= MAX_NODES && table.nodes() == ring.names.len());
    let counts = counted(table);
    assert_eq!(table.sizes(), counts[..table.nodes()]);
    for hash in [0, 0x9e37_79b9, u32::MAX] {
        let mut tried: Vec<u8> = table.candidates(hash).collect();
        assert!(tried.iter().all(|owner| counts[usize::from(*owner)] > 0));
        let count = tried.len();
        tried.sort_unstable();
        tried.dedup();
        assert_eq!(tried.len(), count);
    }
}

/// Its nodes get each other's sizes: only the surplus moves, and whoever hears of the moves has the same ring.
fn check_changes(ring: &Ring) {
    let is_live = |at: &usize| !ring.names[*at].is_empty();
    let live: Vec<usize> = (0..ring.names.len()).filter(is_live).collect();
    let Some(first) = live.first() else { return };
    // It is the last that a version can be.
    if ring.table.version() == u64::MAX {
        return;
    }
    let counts = counted(&ring.table);
    let mut wanted = vec![0; ring.names.len()];
    for (at, next) in live.iter().zip(live.iter().cycle().skip(1)) {
        wanted[*next] = counts[*at];
    }
    wanted[*first] += counts[usize::from(NOBODY)];
    let change = ring.table.change_to(&wanted).unwrap();
    let gained: u32 = wanted
        .iter()
        .zip(counts)
        .map(|(new, old)| new.saturating_sub(old))
        .sum();
    assert_eq!(change.moves.len(), gained as usize);
    let mut next = ring.clone();
    next.table.apply(&change, ring.names.len()).unwrap();
    assert_eq!(next.table.sizes(), wanted);
    assert_eq!(ring.table.difference(&next.table).as_ref(), Ok(&change));
    let view = RingView::changes("s", &next, change.from, change.moves);
    assert_eq!(told(&view, Some(ring)), next);
}
