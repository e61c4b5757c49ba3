//! The name of a request's object set. All spellings that nodes may read as the same object give the same name, or
//! none: docs/placement.md has the rules, tests/conformance/names.py the cases, which hold for HAProxy too.

use std::borrow::Cow;

use plimsoll_core::dispatch::MAX_COST;

use crate::{
    config::PrimarySettings,
    part::{Part, parsed},
};

/// Request header with the object set by which a request was placed.
pub const SET: &str = "x-object-set";
/// Request header with the fencing token: generation and version of the table by which a request was placed.
pub const FENCE: &str = "x-plimsoll-fence";

/// A request's headers, in order; names are in lower case.
pub type Headers = [(String, Vec<u8>)];

/// The only value; `None` if there is no value or more than one.
fn only<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

fn values<'a>(headers: &'a Headers, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let named = move |(other, _): &&(String, Vec<u8>)| other == name;
    headers.iter().filter(named).map(|(_, value)| &value[..])
}

/// The first value of a header.
pub fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a [u8]> {
    let mut headers = headers.iter();
    let named = headers.find(|(other, _)| other == name);
    named.map(|(_, value)| &value[..])
}

/// The name of the object set in this part of a request, in its canonical encoding; a header's value is taken as it is.
/// `None` if the part is missing, ambiguous or wrongly encoded.
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

/// The cost of a request, items: 0 to `MAX_COST` as the request states it, else the default.
pub fn cost(settings: &PrimarySettings, headers: &Headers) -> f64 {
    let path = header(headers, ":path").unwrap_or_default();
    let of = |name: &str| header(headers, name).map(Cow::Borrowed);
    let part = settings.cost.as_ref();
    let told = part.and_then(|part| parsed(&part.of(path, of)?));
    let good = |cost: &f64| (0.0..=MAX_COST).contains(cost);
    told.filter(good).unwrap_or(settings.default_cost)
}

/// The changes to a request's headers after which the node sees the object set `set`, and no header of the client's
/// that it could take for an object set or a fencing token: names of headers to remove, and the new value of [`SET`]
/// unless the object set comes from that header. `None` if `set` has to go into [`SET`] but is not UTF-8.
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

/// True if servers may read the path differently: some merge slashes, resolve dot segments after decoding, take a
/// backslash for a slash, drop parameters from segments, or stop at a control character.
fn is_ambiguous(path: &[u8]) -> bool {
    let lower = path.to_ascii_lowercase();
    let is_control = |pair: &[u8]| matches!(pair, [b'0' | b'1', _] | b"7f");
    let encoded = lower.windows(3).filter(|word| word[0] == b'%');
    let hides = |pair: &[u8]| matches!(pair, b"2f" | b"5c") || is_control(pair);
    let dots: [&[u8]; 6] = [b".", b"%2e", b"..", b".%2e", b"%2e.", b"%2e%2e"];
    lower.windows(2).any(|pair| pair == b"//")
        || lower
            .iter()
            .any(|byte| byte.is_ascii_control() || b"\\;#".contains(byte))
        || encoded.map(|word| &word[1..]).any(hides)
        || lower
            .split(|byte| *byte == b'/')
            .any(|segment| dots.contains(&segment))
}

/// The canonical encoding: decodes once, and encodes again. `is_form` decodes `+` as a space. `None` if a percent sign
/// is not followed by two hexadecimal digits.
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

/// Percent-encodes all bytes but the unreserved characters of RFC 3986.
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

/// Names of a client's headers that must not reach the node: [`SET`], [`FENCE`], and all that CGI and WSGI servers
/// would fold into one of these or into `kept`. The header `kept`, which has the object set, stays.
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
    fn path_prefix_keeps_its_slashes_and_refuses_ambiguous_paths() {
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
    fn control_character_names_no_object_set_encoded_or_not() {
        let part = Part::PathSegment(2.0);
        for path in ["/x/A%0f", "/x/A\u{f}", "/x/A%7F", "/x/A\u{7f}"] {
            assert_eq!(named(&part, path), None, "{path:?}");
        }
    }

    #[test]
    fn query_parameter_is_form_decoded_and_must_be_unique() {
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
