//! Fencing tokens: the version of the table of primaries by which a write was placed. Their text order is the
//! order of tables; no token sorts first. See docs/placement.md.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use axum::http::HeaderMap;

/// The header with the token: `GENERATION VERSION`.
pub const HEADER: &str = "x-plimsoll-fence";
const MAX_GENERATION: usize = 128;
const VERSION_DIGITS: usize = 16;
/// Maximum length of a record in bytes: two names, the version, and separators.
const MAX_RECORD: usize = 512;

/// Fencing token of a request, empty if it has none; an error if malformed.
pub fn fence(headers: &HeaderMap) -> Result<&str, String> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else {
        return Ok("");
    };
    if values.next().is_some() {
        return Err(format!("{HEADER}: named more than once"));
    }
    let is_generation = |text: &str| {
        (1..=MAX_GENERATION).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
    };
    let is_version =
        |text: &str| text.len() == VERSION_DIGITS && text.bytes().all(|b| b.is_ascii_digit());
    let words = |text: &str| {
        text.split_once(' ')
            .map(|(a, b)| (is_generation(a), is_version(b)))
    };
    let text = value.to_str().ok();
    text.filter(|text| words(text) == Some((true, true)))
        .ok_or_else(|| format!("{HEADER}: must be GENERATION VERSION, the version in 16 digits"))
}

/// Last writer of an object set and the newest fencing token, in a file per set.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub node: String,
    pub fence: String,
}

impl Record {
    pub fn read(file: &File) -> io::Result<Self> {
        let mut text = vec![0; MAX_RECORD];
        let length = file.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..length]);
        let line = text.split('\n').next().unwrap_or_default();
        let (node, fence) = line.split_once(' ').unwrap_or((line, ""));
        Ok(Self {
            node: node.to_owned(),
            fence: fence.to_owned(),
        })
    }

    /// Record after the next write; `None` if the write is too late, as another node has written the set with the
    /// same or a newer token.
    pub fn next(&self, node: &str, fence: &str) -> Option<Self> {
        let is_free = self.node == node || self.fence.is_empty() || *fence > *self.fence;
        is_free.then(|| Self {
            node: node.to_owned(),
            fence: fence.max(&self.fence).to_owned(),
        })
    }

    /// In one call, so that a node that is killed leaves the old one or the new one.
    pub fn write(&self, file: &File) -> io::Result<()> {
        let line = format!("{} {}\n", self.node, self.fence);
        file.write_all_at(line.as_bytes(), 0)?;
        file.set_len(line.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn malformed_tokens_are_refused() {
        let told = |values: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(HEADER, axum::http::HeaderValue::from_bytes(value).unwrap());
            }
            fence(&headers).map(str::to_owned)
        };
        let good = b"0190-ab 0000000000000042";
        assert_eq!(told(&[good]).unwrap(), "0190-ab 0000000000000042");
        assert_eq!(told(&[]).unwrap(), "");
        assert!(told(&[good, good]).unwrap_err().contains("more than once"));
        for bad in [
            &b""[..],
            b"g",
            b"g 42",
            b" 0000000000000042",
            b"g 000000000000004x",
            b"\xff",
        ] {
            assert!(told(&[bad]).unwrap_err().contains("16 digits"), "{bad:?}");
        }
    }

    #[test]
    fn set_belongs_to_the_writer_with_the_newest_token() {
        let mut record = Record::default();
        let mut is_taken = |node: &str, fence: &str| {
            let next = record.next(node, fence);
            let is_taken = next.is_some();
            record = next.unwrap_or_else(|| std::mem::take(&mut record));
            is_taken
        };
        for (node, fence, expected) in [
            ("a", "g1 05", true),
            // From dispatchers with an older and a newer table.
            ("a", "g1 03", true),
            ("a", "g1 09", true),
            // The set has moved, and the former primary gets a write too late.
            ("b", "g1 12", true),
            ("a", "g1 11", false),
            ("a", "", false),
            ("b", "g1 15", true),
            ("a", "g1 14", false),
            // The set has moved back.
            ("a", "g1 20", true),
            ("b", "g1 19", false),
            ("b", "g1 20", false),
            // A later generation counts anew.
            ("b", "g2 01", true),
            ("a", "g1 99", false),
        ] {
            assert_eq!(is_taken(node, fence), expected, "{fence} at {node}");
        }
    }
}
