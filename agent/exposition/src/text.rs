//! Reads selected series from a Prometheus text exposition.

use std::collections::BTreeMap;

use crate::{ExpositionError, Labels};

/// More series of one metric than this are a mistake in the selection.
const MAX_SERIES: usize = 1000;
/// Gauges above this are a mistake, such as a point in time where an age is wanted.
const MAX_GAUGE: f64 = 1e9;
/// Counts above this are not exact in the exposition's floating point.
const MAX_COUNT: f64 = 9_007_199_254_740_992.0;

/// A metric and the labels its series must have.
#[derive(Clone, Debug)]
pub struct Selector {
    name: String,
    labels: Labels,
}

impl Selector {
    /// Selects series of `name` that have at least these labels.
    pub fn new(name: &str, labels: &Labels) -> Self {
        Selector {
            name: name.to_owned(),
            labels: labels.clone(),
        }
    }
}

/// One histogram series: cumulative counts by upper bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramSeries {
    /// Finite upper bounds with cumulative counts, increasing.
    pub buckets: Vec<(f64, f64)>,
    /// The `+Inf` bucket.
    pub all: f64,
    /// Sum of delays.
    pub sum: f64,
}

#[derive(Default)]
struct Partial {
    buckets: Vec<(f64, f64)>,
    inf: Option<f64>,
    sum: Option<f64>,
    count: Option<f64>,
}

/// A complete, checked text.
#[derive(Clone, Copy, Debug)]
pub struct Exposition<'a>(&'a str);

/// A series' labels and its value.
type LabelledValue<'a> = (Vec<(&'a str, String)>, f64);

impl<'a> Exposition<'a> {
    /// Refuses a body that is not text or does not end with a line end.
    pub fn new(body: &'a [u8]) -> Result<Self, ExpositionError> {
        let text = std::str::from_utf8(body)
            .map_err(|_| ExpositionError::malformed("the body is not UTF-8 text"))?;
        if !text.is_empty() && !text.ends_with('\n') {
            let problem = "the last line has no end: the body is cut off";
            return Err(ExpositionError::Truncated(problem.to_owned()));
        }
        Ok(Exposition(text))
    }

    fn series<'s>(
        &self,
        name: &'s str,
        labels: &'s Labels,
    ) -> impl Iterator<Item = Result<LabelledValue<'a>, ExpositionError>> + use<'a, 's> {
        let lines = self.0.lines().enumerate();
        lines.filter_map(move |(number, line)| {
            let rest = line.trim_start().strip_prefix(name)?;
            if !rest.starts_with(['{', ' ', '\t']) {
                return None;
            }
            let parsed = series(rest).ok_or_else(|| {
                let shown: String = line.chars().take(120).collect();
                ExpositionError::malformed(format!(
                    "line {} is not a series: {shown:?}",
                    number + 1
                ))
            });
            match parsed {
                Ok((own, _))
                    if !labels
                        .iter()
                        .all(|(k, v)| own.iter().any(|(ok, ov)| ok == k && ov == v)) =>
                {
                    None
                }
                other => Some(other),
            }
        })
    }

    /// The sum of a counter's series; `None` where there is none.
    pub fn counters(&self, selector: &Selector) -> Result<BTreeMap<String, f64>, ExpositionError> {
        let mut found = BTreeMap::new();
        for series in self.series(&selector.name, &selector.labels) {
            let (labels, value) = series?;
            found.insert(key(&labels), count(&selector.name, value)?);
            few_enough(&selector.name, found.len())?;
        }
        Ok(found)
    }

    /// Values of a gauge's series, each plausible as jobs or seconds.
    pub fn gauges(&self, selector: &Selector) -> Result<Vec<f64>, ExpositionError> {
        self.series(&selector.name, &selector.labels)
            .map(|series| {
                let (_, value) = series?;
                if (0.0..=MAX_GAUGE).contains(&value) {
                    Ok(value)
                } else {
                    Err(ExpositionError::malformed(format!(
                        "{} is {value}",
                        selector.name
                    )))
                }
            })
            .collect()
    }

    /// A histogram's series by their labels without `le`; an error if there is none or one lacks
    /// a part.
    pub fn histogram(
        &self,
        selector: &Selector,
    ) -> Result<BTreeMap<String, HistogramSeries>, ExpositionError> {
        let name = &selector.name;
        let mut found: BTreeMap<String, Partial> = BTreeMap::new();
        for series in self.series(&format!("{name}_bucket"), &selector.labels) {
            let (mut labels, value) = series?;
            let le = labels.iter().position(|(label, _)| *label == "le");
            let (_, le) =
                labels.remove(le.ok_or_else(|| {
                    ExpositionError::malformed(format!("{name}_bucket without le"))
                })?);
            let bound = number(&le).filter(|b| !b.is_nan());
            let bound = bound.ok_or_else(|| {
                ExpositionError::malformed(format!("{name}_bucket has le={le:?}"))
            })?;
            let count = count(name, value)?;
            let partial = found.entry(key(&labels)).or_default();
            if bound == f64::INFINITY {
                partial.inf = Some(count);
            } else {
                partial.buckets.push((bound, count));
            }
            few_enough(name, found.len())?;
        }
        for (suffix, sum) in [("_sum", true), ("_count", false)] {
            for series in self.series(&format!("{name}{suffix}"), &selector.labels) {
                let (labels, value) = series?;
                let Some(partial) = found.get_mut(&key(&labels)) else {
                    return Err(ExpositionError::malformed(format!(
                        "{name} has no buckets for {{{}}}",
                        key(&labels)
                    )));
                };
                if sum {
                    if !(0.0..=MAX_COUNT).contains(&value) {
                        return Err(ExpositionError::malformed(format!("{name}_sum is {value}")));
                    }
                    partial.sum = Some(value);
                } else {
                    partial.count = Some(count(name, value)?);
                }
            }
        }
        if found.is_empty() {
            let problem = format!("no series of histogram {name} with the labels wanted");
            return Err(ExpositionError::NoSeries(problem));
        }
        found
            .into_iter()
            .map(|(labels, partial)| whole(name, &labels, partial).map(|h| (labels, h)))
            .collect()
    }
}

fn whole(
    name: &str,
    labels: &str,
    mut partial: Partial,
) -> Result<HistogramSeries, ExpositionError> {
    let lacks =
        |part: &str| ExpositionError::malformed(format!("{name}{{{labels}}} has no {part}"));
    partial.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all = partial
        .inf
        .or(partial.count)
        .ok_or_else(|| lacks("+Inf bucket"))?;
    let sum = partial.sum.ok_or_else(|| lacks("_sum"))?;
    if partial.buckets.is_empty() {
        return Err(lacks("finite bucket"));
    }
    let twice = partial.buckets.windows(2).any(|w| w[0].0 == w[1].0);
    if twice || partial.buckets[0].0 <= 0.0 {
        return Err(ExpositionError::malformed(format!(
            "{name}{{{labels}}}: bucket bounds must be above 0 and differ"
        )));
    }
    let mut below = 0.0;
    for count in partial.buckets.iter().map(|b| b.1).chain([all]) {
        if count < below {
            return Err(ExpositionError::malformed(format!(
                "{name}{{{labels}}}: cumulative bucket counts decrease"
            )));
        }
        below = count;
    }
    Ok(HistogramSeries {
        buckets: partial.buckets,
        all,
        sum,
    })
}

fn few_enough(name: &str, count: usize) -> Result<(), ExpositionError> {
    if count > MAX_SERIES {
        return Err(ExpositionError::malformed(format!(
            "more than {MAX_SERIES} series of {name}: select by labels"
        )));
    }
    Ok(())
}

fn count(name: &str, value: f64) -> Result<f64, ExpositionError> {
    if (0.0..=MAX_COUNT).contains(&value) {
        return Ok(value);
    }
    Err(ExpositionError::malformed(format!(
        "{name} has a count of {value}"
    )))
}

fn key(labels: &[(&str, String)]) -> String {
    let mut words: Vec<_> = labels.iter().map(|(k, v)| format!("{k}={v:?}")).collect();
    words.sort();
    words.join(",")
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" | "Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        _ => text.parse().ok(),
    }
}

/// `{label="value",…} value [timestamp]` after the name.
fn series(rest: &str) -> Option<(Vec<(&str, String)>, f64)> {
    let (labels, values) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Vec::new(), rest),
    };
    let mut words = values.split_ascii_whitespace();
    let value = number(words.next()?)?;
    if words
        .next()
        .is_some_and(|stamp| stamp.parse::<i64>().is_err())
        || words.next().is_some()
    {
        return None;
    }
    Some((labels, value))
}

fn labels(mut rest: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once('=')?;
        let mut value = String::new();
        let mut chars = after.trim_start().strip_prefix('"')?.chars();
        loop {
            match chars.next()? {
                '"' => break,
                '\\' => value.push(match chars.next()? {
                    'n' => '\n',
                    other => other,
                }),
                other => value.push(other),
            }
        }
        labels.push((name.trim(), value));
        rest = chars.as_str();
    }
}
