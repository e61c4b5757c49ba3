//! Edits of a file, and their diff.

use std::{collections::BTreeMap, ops::Range};

use similar::TextDiff;

/// Sort key of an edit: offset, whether it replaces text, and number. Insertions precede replacements at one offset.
type Place = (usize, bool, usize);

/// Edits by position, without overlaps.
#[derive(Debug, Default)]
pub struct Edits {
    changes: BTreeMap<Place, (Range<usize>, Vec<u8>)>,
}

impl Edits {
    /// Replaces these bytes.
    pub fn replace(&mut self, span: Range<usize>, text: impl Into<Vec<u8>>) {
        let order = self.changes.len();
        let key = (span.start, !span.is_empty(), order);
        self.changes.insert(key, (span, text.into()));
    }

    /// Inserts text before this byte.
    pub fn insert(&mut self, at: usize, text: impl Into<Vec<u8>>) {
        self.replace(at..at, text);
    }

    /// Whether there are no edits.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The edited file.
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

/// Diff in the format of `diff -u`; empty if both are the same.
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
