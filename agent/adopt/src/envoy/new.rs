//! Values added to a file, in the layout of the surrounding lines.

use super::yaml::{Id, Tree};
use crate::edits::Edits;

/// Columns per level of indentation.
const STEP: usize = 2;

/// A value to add.
#[derive(Clone, Debug)]
pub enum New {
    /// A scalar, as written.
    Text(String),
    /// Keys and values.
    Map(Vec<(&'static str, New)>),
    /// Items.
    Seq(Vec<New>),
    /// A value in flow style, even if the surrounding style is block.
    Flow(Box<New>),
}

impl New {
    /// A scalar, quoted if necessary.
    pub fn text(text: &str) -> New {
        let plain = text.starts_with(|it: char| it.is_ascii_alphabetic())
            && text
                .bytes()
                .all(|it| it.is_ascii_alphanumeric() || b"-_.".contains(&it))
            && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
                .contains(&text.to_ascii_lowercase().as_str());
        if plain {
            return New::Text(text.to_owned());
        }
        New::Text(format!(
            "\"{}\"",
            text.replace('\\', "\\\\").replace('"', "\\\"")
        ))
    }

    /// A scalar that needs no quotes.
    pub fn plain(text: impl ToString) -> New {
        New::Text(text.to_string())
    }

    /// A map in flow style.
    pub fn flow_map(entries: Vec<(&'static str, New)>) -> New {
        New::Flow(Box::new(New::Map(entries)))
    }

    fn flow(&self) -> String {
        match self {
            New::Text(text) => text.clone(),
            New::Flow(inner) => inner.flow(),
            New::Map(entries) => format!("{{ {} }}", pairs(entries)),
            New::Seq(items) => {
                let items: Vec<String> = items.iter().map(New::flow).collect();
                format!("[{}]", items.join(", "))
            }
        }
    }

    /// Lines without indentation.
    fn block(&self) -> Vec<String> {
        match self {
            New::Text(_) | New::Flow(_) => vec![self.flow()],
            New::Map(entries) => lines(entries),
            New::Seq(items) => items
                .iter()
                .flat_map(|item| {
                    let inner = item.block().into_iter().enumerate();
                    inner.map(|(number, line)| match number {
                        0 => format!("- {line}"),
                        _ => format!("  {line}"),
                    })
                })
                .collect(),
        }
    }
}

/// Entries of a flow map, without the braces.
pub fn pairs(entries: &[(&'static str, New)]) -> String {
    let pairs: Vec<String> = entries
        .iter()
        .map(|(key, value)| format!("{key}: {}", value.flow()))
        .collect();
    pairs.join(", ")
}

fn lines(entries: &[(&'static str, New)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, value) in entries {
        match value {
            New::Text(_) | New::Flow(_) => lines.push(format!("{key}: {}", value.flow())),
            _ => {
                lines.push(format!("{key}:"));
                let inner = value.block();
                lines.extend(inner.iter().map(|line| format!("{:STEP$}{line}", "")));
            }
        }
    }
    lines
}

/// Edits of a tree.
pub struct Editor<'a> {
    tree: &'a Tree<'a>,
    /// The edits so far.
    pub edits: Edits,
}

impl<'a> Editor<'a> {
    /// An editor without edits.
    pub fn new(tree: &'a Tree<'a>) -> Self {
        Editor {
            tree,
            edits: Edits::default(),
        }
    }

    fn eol(&self) -> &'static str {
        let first = self.tree.bytes().split(|byte| *byte == b'\n').next();
        match first {
            Some(line) if line.ends_with(b"\r") => "\r\n",
            _ => "\n",
        }
    }

    /// Start of the line of this byte.
    fn line_start(&self, at: usize) -> usize {
        let before = &self.tree.bytes()[..at];
        before
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |newline| newline + 1)
    }

    /// End of the line of this byte, with its line ending.
    fn line_end(&self, at: usize) -> usize {
        let rest = &self.tree.bytes()[at..];
        rest.iter()
            .position(|byte| *byte == b'\n')
            .map_or(self.tree.bytes().len(), |newline| at + newline + 1)
    }

    /// Column of a byte, from 0.
    fn column(&self, at: usize) -> usize {
        let before = &self.tree.bytes()[self.line_start(at)..at];
        let before = before.strip_prefix(b"\xef\xbb\xbf").unwrap_or(before);
        String::from_utf8_lossy(before).chars().count()
    }

    /// Replaces a scalar.
    pub fn replace_scalar(&mut self, id: Id, text: &str) {
        self.edits.replace(self.tree.value(id).span.clone(), text);
    }

    /// Adds lines after the line on which something ends.
    fn add_lines(&mut self, end: usize, column: usize, lines: &[String]) {
        let (at, eol) = (self.line_end(end), self.eol());
        let open = at > 0 && self.tree.bytes()[at - 1] != b'\n';
        let mut text = String::new();
        for line in lines {
            let line = format!("{:column$}{line}", "");
            match open {
                true => text.extend([eol, &line]),
                false => text.extend([&line, eol]),
            }
        }
        self.edits.insert(at, text);
    }

    /// Adds entries to a map, after one of its keys or at the end.
    pub fn add_entries(&mut self, map: Id, after: Option<&str>, new: &[(&'static str, New)]) {
        let map = self.tree.follow(map);
        let value = self.tree.value(map);
        let entries = self.tree.entries(map);
        let Some((first, _)) = entries.first().copied() else {
            self.edits
                .insert(value.span.end - 1, format!(" {} ", pairs(new)));
            return;
        };
        if value.flow {
            let at = self.tree.value(first).span.start;
            self.edits.insert(at, format!("{}, ", pairs(new)));
            return;
        }
        let entry = after.and_then(|key| self.tree.entry(map, key));
        let Some((key, value)) = entry.or(entries.last().copied()) else {
            return;
        };
        let end = (self.tree.value(key).span.end).max(self.tree.value(value).span.end);
        let column = self.column(self.tree.value(first).span.start);
        self.add_lines(end, column, &lines(new));
    }

    /// Adds an item to a non-empty sequence.
    pub fn add_item(&mut self, key: Id, seq: Id, new: &New) {
        let (Some(first), Some(last)) = (
            self.tree.items(seq).first().copied(),
            self.tree.items(seq).last().copied(),
        ) else {
            return;
        };
        let value = self.tree.value(seq);
        if value.flow {
            let at = self.tree.value(first).span.start;
            self.edits.insert(at, format!("{}, ", new.flow()));
            return;
        }
        // An unindented sequence starts where its first item does.
        let column = match self.tree.bytes().get(value.span.start) {
            Some(b'-') => self.column(value.span.start),
            _ => self.column(self.tree.value(key).span.start),
        };
        let end = self.tree.value(last).span.end;
        self.add_lines(end, column, &New::Seq(vec![new.clone()]).block());
    }

    /// Replaces an entry of a map, including a comment that follows it on its line.
    pub fn replace_entry(&mut self, map: Id, (key, value): (Id, Id), new: &[(&'static str, New)]) {
        let start = self.tree.value(key).span.start;
        let mut end = (self.tree.value(key).span.end).max(self.tree.value(value).span.end);
        if self.tree.value(self.tree.follow(map)).flow {
            self.edits.replace(start..end, pairs(new));
            return;
        }
        let rest = &self.tree.bytes()[end..self.line_end(end)];
        let comment = rest.trim_ascii();
        if comment.starts_with(b"#") {
            end += rest.len() - rest.trim_ascii_start().len() + comment.len();
        }
        let separator = format!("{}{:2$}", self.eol(), "", self.column(start));
        self.edits.replace(start..end, lines(new).join(&separator));
    }
}
