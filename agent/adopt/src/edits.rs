//! Changes of a file, and how they look.

use std::{collections::BTreeMap, ops::Range};

use similar::TextDiff;

/// Where a change begins, whether it takes the place of text, and its number: of those that begin at one place,
/// insertions come first.
type Place = (usize, bool, usize);

/// Changes by position, none over another.
#[derive(Debug, Default)]
pub struct Edits {
    changes: BTreeMap<Place, (Range<usize>, Vec<u8>)>,
}

impl Edits {
    /// Puts text in place of these bytes.
    pub fn replace(&mut self, span: Range<usize>, text: impl Into<Vec<u8>>) {
        let order = self.changes.len();
        let key = (span.start, !span.is_empty(), order);
        self.changes.insert(key, (span, text.into()));
    }

    /// Puts text before this byte.
    pub fn insert(&mut self, at: usize, text: impl Into<Vec<u8>>) {
        self.replace(at..at, text);
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The file as it becomes.
    pub fn apply(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + 1024);
        let mut at = 0;
        for (span, text) in self.changes.values() {
            debug_assert!(at <= span.start, "changes overlap at {span:?}");
            out.extend_from_slice(&bytes[at..span.start]);
            out.extend_from_slice(text);
            at = span.end;
        }
        out.extend_from_slice(&bytes[at..]);
        out
    }
}

/// As `diff -u` writes it; empty where both are the same.
pub fn unified_diff(name: &str, before: &[u8], after: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let diff = TextDiff::from_lines(before, after);
    // Writing to memory does not fail.
    let _ = diff
        .unified_diff()
        .context_radius(3)
        .header(name, name)
        .to_writer(&mut out);
    out
}
