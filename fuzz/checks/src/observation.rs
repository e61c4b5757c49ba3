use plimsoll_core::{
    MAX_NUMBER,
    dispatch::{MAX_COST, Observed},
};

const DAY_MILLIS: u32 = 86_400_000;

/// Two lines of one dispatcher, an earlier and a later one; and what a dispatcher writes after events that the bytes
/// stand for.
pub fn observation(data: &[u8]) {
    let events = counted(data);
    let read = Observed::parse(&events.text());
    assert_eq!(read.expect("what is written").text(), events.text());
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut lines = text.lines().map(Observed::parse);
    let (old, new) = (lines.next().flatten(), lines.next().flatten());
    for observed in [&old, &new].into_iter().flatten() {
        check(observed);
    }
    let (Some(mut old), Some(new)) = (old, new) else {
        return;
    };
    if let Some(since) = new.since(&old) {
        check(&since);
        old.add(&since);
        assert_eq!(old.failures(), new.failures());
        let count = |observed: &Observed| observed.delays().unwrap().count();
        assert_eq!(count(&old), count(&new));
    }
}

fn check(observed: &Observed) {
    assert!((0.0..=MAX_NUMBER).contains(&observed.cost()));
    assert!(observed.delays().is_ok() && observed.left_ages().is_ok());
    let text = observed.text();
    // Rounded, a sum may no longer fit its buckets.
    if let Some(again) = Observed::parse(&text) {
        assert_eq!(again.text(), text);
    }
}

fn counted(data: &[u8]) -> Observed {
    let mut observed = Observed::default();
    for event in data.as_chunks::<9>().0 {
        let [kind, d0, d1, d2, d3, c0, c1, c2, c3] = *event;
        let millis = u32::from_le_bytes([d0, d1, d2, d3]) % DAY_MILLIS;
        let seconds = f64::from(millis) / 1000.0;
        let cost = f64::from(u32::from_le_bytes([c0, c1, c2, c3])) / 1000.0;
        match kind % 3 {
            0 => observed.answered(seconds, cost.min(MAX_COST)),
            1 => observed.failed(),
            _ => observed.left(seconds),
        }
    }
    observed
}
