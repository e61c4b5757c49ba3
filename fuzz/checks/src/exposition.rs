use std::{collections::BTreeMap, fmt::Write};

use plimsoll_exposition::{
    CounterDelta, Delta, Exposition, HistogramDelta, HistogramSeries, Labels, Selector,
};

const MAX_GAUGE: f64 = 1e9;
/// Counts are exact up to here.
const MAX_COUNT: f64 = 9_007_199_254_740_992.0;
const MAX_SERIES: usize = 1000;

/// One scrape, or two with a line `--` between them, of the counter `c`, the gauge `g` and the histogram `h`.
pub fn exposition(data: &[u8]) {
    let (mut counters, mut histograms) = (CounterDelta::default(), HistogramDelta::default());
    let end = data.windows(4).position(|bytes| bytes == b"\n--\n");
    let (first, second) = end.map_or((data, None), |end| (&data[..=end], Some(&data[end + 4..])));
    for body in [Some(first), second].into_iter().flatten() {
        let Ok(scrape) = Exposition::new(body) else {
            return;
        };
        check_counters(&scrape, body, &mut counters);
        check_histogram(&scrape, &mut histograms);
        let gauges = scrape.gauges(&select("g")).unwrap_or_default();
        assert!(gauges.iter().all(|it| (0.0..=MAX_GAUGE).contains(it)));
    }
}

fn select(name: &str) -> Selector {
    Selector::new(name, &Labels::new())
}

fn check_counters(scrape: &Exposition, body: &[u8], deltas: &mut CounterDelta) {
    let found = scrape.counters(&select("c"));
    if let Some(plain) = read_plainly(std::str::from_utf8(body).unwrap())
        && plain.len() <= MAX_SERIES
    {
        let mut values: Vec<f64> = found.as_ref().unwrap().values().copied().collect();
        let mut plain: Vec<f64> = plain.into_values().collect();
        values.sort_by(f64::total_cmp);
        plain.sort_by(f64::total_cmp);
        assert_eq!(values, plain);
    }
    let Ok(found) = found else { return };
    assert!(found.len() <= MAX_SERIES);
    assert!(found.values().all(|it| (0.0..=MAX_COUNT).contains(it)));
    let added = deltas.add(found);
    assert!(added.is_finite() && added >= 0.0);
}

/// The series of `c` by their labels, by splitting lines; `None` where that is not enough to read one.
fn read_plainly(text: &str) -> Option<BTreeMap<Vec<(&str, &str)>, f64>> {
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let mut found = BTreeMap::new();
    for line in text
        .lines()
        .filter(|line| line.trim_start().starts_with('c'))
    {
        let rest = line.strip_prefix('c')?;
        let (labels, value) = match rest.chars().next() {
            Some('{') => rest[1..].split_once('}')?,
            Some(' ') => ("", rest),
            Some('\t') => return None,
            // Another metric.
            _ => continue,
        };
        let pairs = labels.split_terminator(',').map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let value = value.strip_prefix('"')?.strip_suffix('"')?;
            (is_plain(name) && is_plain(value)).then_some((name, value))
        });
        let mut pairs = pairs.collect::<Option<Vec<_>>>()?;
        pairs.sort_unstable();
        let value: u32 = value.strip_prefix(' ')?.parse().ok()?;
        found.insert(pairs, f64::from(value));
    }
    Some(found)
}

fn check_histogram(scrape: &Exposition, deltas: &mut HistogramDelta) {
    let Ok(found) = scrape.histogram(&select("h")) else {
        return;
    };
    assert!((1..=MAX_SERIES).contains(&found.len()));
    for series in found.values() {
        let (bounds, counts): (Vec<f64>, Vec<f64>) = series.buckets.iter().copied().unzip();
        assert!(bounds[0] > 0.0 && bounds.iter().all(|bound| bound.is_finite()));
        assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]));
        let counts = [&[0.0], &counts[..], &[series.all, MAX_COUNT]].concat();
        assert!(counts.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!((0.0..=MAX_COUNT).contains(&series.sum));
    }
    let text = written(found.values());
    let again = Exposition::new(text.as_bytes()).unwrap();
    let again = again.histogram(&select("h")).unwrap();
    assert!(again.values().eq(found.values()), "{text}");
    let count: f64 = found.values().map(|series| series.all).sum();
    if let Ok(Delta::Added(added)) = deltas.add(found) {
        let sum = added.sum().get();
        assert!(sum.is_finite() && sum >= 0.0);
        assert!(added.count() as f64 <= count * (1.0 + 1e-9) + added.counts().len() as f64);
    }
}

fn written<'a>(all: impl Iterator<Item = &'a HistogramSeries>) -> String {
    let mut text = String::new();
    for (number, series) in all.enumerate() {
        let own = format!("n=\"{number:04}\"");
        let HistogramSeries { buckets, all, sum } = series;
        for (bound, count) in buckets {
            writeln!(text, "h_bucket{{{own},le=\"{bound}\"}} {count}").unwrap();
        }
        writeln!(text, "h_bucket{{{own},le=\"+Inf\"}} {all}").unwrap();
        writeln!(text, "h_sum{{{own}}} {sum}\nh_count{{{own}}} {all}").unwrap();
    }
    text
}
