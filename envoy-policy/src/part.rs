//! The parts of a request from which a key, a cost, a route or an object set is taken.

use std::{borrow::Cow, str::FromStr};

use serde::Deserialize;

/// A part of a request.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// A request header, by name.
    Header(String),
    /// A segment of the path, by number; segment 1 of `/stock/S0001?items=3` is `stock`.
    PathSegment(f64),
    /// The first parameter of the query with this name; its value is not decoded.
    Query(String),
    /// The first segments of the path, with their slashes, by number; the whole path if it has no more than these.
    PathPrefix(f64),
}

impl Part {
    /// The bytes of the part; `None` if it is missing or empty. `path` is the `:path`, with the query; `header` looks
    /// up a request header by name.
    pub fn of<'a>(
        &self,
        path: &'a [u8],
        header: impl FnOnce(&str) -> Option<Cow<'a, [u8]>>,
    ) -> Option<Cow<'a, [u8]>> {
        let found = match self {
            Part::Header(name) => header(name)?,
            Part::PathSegment(number) => Cow::Borrowed(
                only_path(path)
                    .split(|byte| *byte == b'/')
                    .nth(*number as usize)?,
            ),
            Part::Query(name) => Cow::Borrowed(parameter(path, name)?),
            Part::PathPrefix(count) => Cow::Borrowed(prefix(only_path(path), *count as usize)),
        };
        (!found.is_empty()).then_some(found)
    }
}

/// The number that these bytes write; `None` if they write none.
pub(crate) fn parsed<T: FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

fn only_path(path: &[u8]) -> &[u8] {
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#'));
    &path[..end.unwrap_or(path.len())]
}

fn parameter<'a>(path: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let start = path.iter().position(|byte| *byte == b'?')? + 1;
    let query = path[start..].split(|byte| *byte == b'#').next()?;
    query
        .split(|byte| *byte == b'&')
        .find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

fn prefix(path: &[u8], segments: usize) -> &[u8] {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    match slashes.map(|(at, _)| at).nth(segments) {
        Some(end) => &path[..end],
        None => path,
    }
}
