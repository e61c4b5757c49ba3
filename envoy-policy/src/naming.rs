//! What a request's object set is called. What nodes take for one object has one name, or none: docs/placement.md has
//! the rules, tests/conformance/names.py the cases, for HAProxy too.

use plimsoll_core::dispatch::MAX_COST;

use crate::{config::PrimarySettings, part::Part};

/// Tells the node the object set by which a request was placed.
pub const SET: &str = "x-object-set";
/// Tells the node the table by which it was placed.
pub const FENCE: &str = "x-plimsoll-fence";

/// A request's headers, by names in lower case.
pub type Headers = [(String, Vec<u8>)];

/// The only value of a header; none where it is there twice.
fn only<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

fn values<'a>(headers: &'a Headers, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let named = move |(other, _): &&(String, Vec<u8>)| other == name;
    headers.iter().filter(named).map(|(_, value)| &value[..])
}

/// The first value of a header.
pub fn header<'a>(headers: &'a Headers, name: &'a str) -> Option<&'a [u8]> {
    values(headers, name).next()
}

/// The name of the object set that is in this part of a request; none where it is ambiguous.
pub fn object_set(part: &Part, headers: &Headers) -> Option<Vec<u8>> {
    if let Part::Header(name) = part {
        return only(values(headers, name)).map(<[u8]>::to_vec);
    }
    let whole = header(headers, ":path")?;
    if let Part::Query(name) = part {
        let query = whole.splitn(2, |byte| *byte == b'?').nth(1)?;
        let pairs = query.split(|byte| *byte == b'&').map(|pair| {
            let end = pair.iter().position(|byte| *byte == b'=');
            pair.split_at(end.unwrap_or(pair.len()))
        });
        let wanted = encode(name.as_bytes());
        let named = pairs.filter(|(key, _)| canonical(key, true).is_some_and(|key| key == wanted));
        return canonical(only(named.map(|(_, value)| value))?.get(1..)?, true);
    }
    let path = whole.split(|byte| *byte == b'?').next()?;
    if is_ambiguous(path) {
        return None;
    }
    let part = part.of(path, |_| None)?;
    let segments = part.split(|byte| *byte == b'/');
    let segments: Option<Vec<_>> = segments.map(|text| canonical(text, false)).collect();
    Some(segments?.join(&b'/'))
}

/// What a request costs, items.
pub fn cost(settings: &PrimarySettings, headers: &Headers) -> f64 {
    let path = header(headers, ":path").unwrap_or_default();
    let of = |name: &str| header(headers, name).map(<[u8]>::to_vec);
    let part = settings.cost.as_ref();
    let told = part.and_then(|part| String::from_utf8(part.of(path, of)?.into_owned()).ok());
    let told = told.and_then(|told| told.parse().ok());
    let good = |cost: &f64| (0.0..=MAX_COST).contains(cost);
    told.filter(good).unwrap_or(settings.default_cost)
}

/// What is changed so that the node gets the set that was found, and nothing that reads like it or like a token: headers
/// to remove, and the value of [`SET`] where the client's own header does not have it. None where it cannot be told.
pub fn changes<'a>(
    part: &Part,
    headers: &'a Headers,
    set: &'a [u8],
) -> Option<(Vec<&'a str>, Option<&'a str>)> {
    let kept = match part {
        Part::Header(name) => Some(name.as_str()),
        _ => None,
    };
    let told = match kept {
        Some(SET) => None,
        _ => Some(std::str::from_utf8(set).ok()?),
    };
    Some((misleading(headers, kept), told))
}

/// Whether servers read a path differently: some merge slashes, resolve dot segments after decoding, take a backslash
/// for a slash, leave parameters out of segments, or end at a control character.
fn is_ambiguous(path: &[u8]) -> bool {
    let lower = path.to_ascii_lowercase();
    let is_control = |pair: &[u8]| matches!(pair, [b'0' | b'1', _] | b"7f");
    let encoded = lower.windows(3).filter(|word| word[0] == b'%');
    let hides = |pair: &[u8]| matches!(pair, b"2f" | b"5c") || is_control(pair);
    let dots: [&[u8]; 6] = [b".", b"%2e", b"..", b".%2e", b"%2e.", b"%2e%2e"];
    lower.windows(2).any(|pair| pair == b"//")
        || lower.iter().any(|byte| b"\\;#".contains(byte))
        || encoded.map(|word| &word[1..]).any(hides)
        || lower
            .split(|byte| *byte == b'/')
            .any(|segment| dots.contains(&segment))
}

/// Decoded once, and encoded again in one way; none where its encoding is broken.
fn canonical(text: &[u8], is_form: bool) -> Option<Vec<u8>> {
    let mut bytes = text.iter().copied();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => digit(bytes.next()?)? << 4 | digit(bytes.next()?)?,
            b'+' if is_form => b' ',
            other => other,
        });
    }
    Some(encode(&decoded))
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// All but what never needs it.
fn encode(text: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(text.len());
    for &byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte);
        } else {
            encoded.extend(format!("%{byte:02X}").into_bytes());
        }
    }
    encoded
}

/// Headers that a client sent and the node is not to get: tokens, names of sets but in the header that is `kept`, and what
/// CGI and WSGI servers would fold into one of these.
fn misleading<'a>(headers: &'a Headers, kept: Option<&str>) -> Vec<&'a str> {
    let fold = |byte: u8| {
        if byte.is_ascii_alphanumeric() {
            byte
        } else {
            b'_'
        }
    };
    let alike = |name: &str, own: &str| {
        name.len() == own.len() && name.bytes().map(fold).eq(own.bytes().map(fold))
    };
    let own = [Some(SET), Some(FENCE), kept];
    let names = headers.iter().map(|(name, _)| name.as_str());
    names
        .filter(|name| Some(*name) != kept)
        .filter(|name| own.into_iter().flatten().any(|own| alike(name, own)))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn named(part: &Part, path: &str) -> Option<String> {
        let headers = [(":path".to_owned(), path.as_bytes().to_vec())];
        object_set(part, &headers).map(|name| String::from_utf8(name).unwrap())
    }

    #[test]
    fn a_prefix_keeps_its_slashes() {
        let part = Part::PathPrefix(2.0);
        for (path, name) in [
            ("/x/%4117/y?z", Some("/x/A17")),
            ("/x/a:b", Some("/x/a%3Ab")),
            ("/x/a%2Fb", None),
            ("/x//a", None),
        ] {
            assert_eq!(named(&part, path).as_deref(), name, "{path}");
        }
    }

    #[test]
    fn a_parameter_is_read_as_of_a_form_and_once() {
        let part = Part::Query("set".to_owned());
        for (path, name) in [
            ("/x?a=1&set=A17", Some("A17")),
            ("/x?%73et=%41+17", Some("A%2017")),
            ("/x?set=a/b%2fc", Some("a%2Fb%2Fc")),
            ("/x?set=A&set=A", None),
            ("/x?set=A&%73et=B", None),
            ("/x?set=%4", None),
            ("/x?set", None),
            ("/x?offset=A", None),
            ("/x", None),
        ] {
            assert_eq!(named(&part, path).as_deref(), name, "{path}");
        }
    }
}
