//! YAML as a tree of values with their positions in the file. Aliases are not expanded but refer to their anchor's
//! value.

use std::{borrow::Cow, collections::HashMap, ops::Range};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

use crate::config::Problem;

/// More values than any hand-maintained configuration has.
const MAX_VALUES: usize = 1_000_000;
/// Maximum nesting depth.
const MAX_DEPTH: usize = 100;

/// Index of a value in its tree.
pub type Id = usize;

/// Kind of a value.
#[derive(Debug)]
pub enum Kind {
    /// Text, a number, or empty.
    Scalar(String),
    /// Keys and their values.
    Map(Vec<(Id, Id)>),
    /// Items.
    Seq(Vec<Id>),
    /// Reference to the value of an anchor.
    Alias(Id),
}

/// A value.
#[derive(Debug)]
pub struct Value {
    /// From the anchor, tag or first character to the last character.
    pub span: Range<usize>,
    /// Line, from 1.
    pub line: usize,
    /// Kind of the value.
    pub kind: Kind,
    /// Whether a map or sequence is in flow style.
    pub flow: bool,
    /// Number of aliases that refer to it.
    aliases: usize,
}

/// The single document of a file.
#[derive(Debug)]
pub struct Tree<'a> {
    bytes: &'a [u8],
    values: Vec<Value>,
    root: Id,
}

/// A map or sequence that is being parsed.
struct Open {
    id: Id,
    key: Option<Id>,
    keys: HashMap<String, usize>,
}

struct Builder<'a> {
    text: &'a str,
    /// Byte offsets of characters, if the file is not ASCII.
    offsets: Option<Vec<u32>>,
    values: Vec<Value>,
    open: Vec<Open>,
    anchors: HashMap<usize, Id>,
    root: Option<Id>,
}

impl<'a> Tree<'a> {
    /// Parses a file.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Problem> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let before = &bytes[..error.valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            at(line, "not UTF-8")
        })?;
        let offsets = (!text.is_ascii()).then(|| {
            let starts = text.char_indices().map(|(at, _)| at);
            starts.chain([text.len()]).map(|at| at as u32).collect()
        });
        let mut builder = Builder {
            text,
            offsets,
            values: Vec::new(),
            open: Vec::new(),
            anchors: HashMap::new(),
            root: None,
        };
        let mut parser = Parser::new_from_str(text);
        while let Some(next) = parser.next_event() {
            let (event, span) = next.map_err(|error| {
                let (marker, info) = (error.marker(), error.info());
                at(
                    marker.line(),
                    format!("column {}: {info}", marker.col() + 1),
                )
            })?;
            if event == Event::StreamEnd {
                break;
            }
            builder.event(event, span)?;
        }
        let root = builder.root.ok_or_else(|| at(0, "the file is empty"))?;
        Ok(Tree {
            bytes,
            values: builder.values,
            root,
        })
    }

    /// The whole document.
    pub fn root(&self) -> Id {
        self.root
    }

    /// Contents of the file.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// A value.
    pub fn value(&self, id: Id) -> &Value {
        &self.values[id]
    }

    /// All values, in the file's order.
    pub fn ids(&self) -> Range<Id> {
        0..self.values.len()
    }

    /// The line of a value, from 1.
    pub fn line(&self, id: Id) -> usize {
        self.values[id].line
    }

    /// The target of an alias; any other value itself.
    pub fn follow(&self, id: Id) -> Id {
        match self.values[id].kind {
            Kind::Alias(target) => target,
            _ => id,
        }
    }

    /// Whether other places in the file refer to this value.
    pub fn is_shared(&self, id: Id) -> bool {
        let value = &self.values[id];
        matches!(value.kind, Kind::Alias(_)) || value.aliases > 0
    }

    /// A value within a span that is also used outside of it.
    pub fn shared_within(&self, span: &Range<usize>) -> Option<Id> {
        let inside = |id: Id| {
            let own = &self.values[id].span;
            span.start <= own.start && own.end <= span.end
        };
        let mut aliases = self.ids().filter_map(|id| match self.values[id].kind {
            Kind::Alias(target) => Some((id, target)),
            _ => None,
        });
        let (_, target) = aliases.find(|(id, target)| inside(*target) && !inside(*id))?;
        Some(target)
    }

    /// Keys and values of a map; empty for any other value.
    pub fn entries(&self, id: Id) -> &[(Id, Id)] {
        match &self.values[self.follow(id)].kind {
            Kind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Items of a sequence; empty for any other value.
    pub fn items(&self, id: Id) -> &[Id] {
        match &self.values[self.follow(id)].kind {
            Kind::Seq(items) => items,
            _ => &[],
        }
    }

    /// The text of a scalar; empty for any other value.
    pub fn text(&self, id: Id) -> &str {
        match &self.values[self.follow(id)].kind {
            Kind::Scalar(text) => text,
            _ => "",
        }
    }

    /// A key of a map with its value. Envoy accepts `snake_case` and `camelCase`.
    pub fn entry(&self, id: Id, key: &str) -> Option<(Id, Id)> {
        let mut entries = self.entries(id).iter().copied();
        entries.find(|(own, _)| is_key(self.text(*own), key))
    }

    /// The value of a key.
    pub fn get(&self, id: Id, key: &str) -> Option<Id> {
        self.entry(id, key).map(|(_, value)| value)
    }

    /// The value at the end of a path of keys.
    pub fn path(&self, id: Id, keys: &[&str]) -> Option<Id> {
        keys.iter().try_fold(id, |at, key| self.get(at, key))
    }

    /// The text at the end of a path of keys.
    pub fn text_at(&self, id: Id, keys: &[&str]) -> Option<&str> {
        self.path(id, keys).map(|found| self.text(found))
    }
}

/// Whether a key as written is this one in `snake_case`.
pub fn is_key(written: &str, key: &str) -> bool {
    let plain = |text: &str| text.replace('_', "").to_ascii_lowercase();
    written == key || plain(written) == plain(key)
}

fn at(line: usize, text: impl Into<String>) -> Problem {
    Problem {
        line,
        text: text.into(),
    }
}

impl Builder<'_> {
    fn offset(&self, marker: Marker) -> usize {
        let index = marker.index();
        let found = self.offsets.as_ref().map(|it| it.get(index).copied());
        found.map_or(index, |it| it.map_or(self.text.len(), |it| it as usize))
    }

    fn event(&mut self, event: Event, span: Span) -> Result<(), Problem> {
        let line = span.start.line();
        match event {
            Event::DocumentStart(_) if self.root.is_some() => Err(at(
                line,
                "a second document begins here, which Envoy would ignore: remove it",
            )),
            Event::Alias(anchor) => {
                let Some(target) = self.anchors.get(&anchor).copied() else {
                    return Err(at(line, "this alias has no anchor"));
                };
                self.values[target].aliases += 1;
                let id = self.add(span, Kind::Alias(target), false)?;
                let own = self.values[id].span.clone();
                let text = &self.text[own.clone()];
                let length = text.find(|it: char| it.is_whitespace() || "[]{},".contains(it));
                self.values[id].span.end = own.start + length.unwrap_or(text.len());
                self.close(id)
            }
            Event::Scalar(text, style, anchor, _) => {
                let id = self.add(span, Kind::Scalar(text.into_owned()), false)?;
                let own = self.values[id].span.clone();
                self.values[id].span.end = own.start + trimmed(&self.text[own], style).len();
                self.anchor(anchor, id);
                self.close(id)
            }
            Event::SequenceStart(anchor, _) => self.begin(span, anchor, Kind::Seq(Vec::new()), '['),
            Event::MappingStart(anchor, _) => self.begin(span, anchor, Kind::Map(Vec::new()), '{'),
            Event::SequenceEnd | Event::MappingEnd => {
                // The parser includes what follows a bracket.
                let end = self.offset(span.start) + 1;
                let Some(open) = self.open.pop() else {
                    return Ok(());
                };
                if self.values[open.id].flow {
                    self.values[open.id].span.end = end;
                }
                self.close(open.id)
            }
            _ => Ok(()),
        }
    }

    fn add(&mut self, span: Span, kind: Kind, flow: bool) -> Result<Id, Problem> {
        let line = span.start.line();
        if self.values.len() >= MAX_VALUES {
            return Err(at(line, format!("there are more than {MAX_VALUES} values")));
        }
        self.values.push(Value {
            span: self.offset(span.start)..self.offset(span.end),
            line,
            kind,
            flow,
            aliases: 0,
        });
        Ok(self.values.len() - 1)
    }

    fn anchor(&mut self, anchor: usize, id: Id) {
        if anchor > 0 {
            self.anchors.insert(anchor, id);
        }
    }

    fn begin(
        &mut self,
        span: Span,
        anchor: usize,
        kind: Kind,
        bracket: char,
    ) -> Result<(), Problem> {
        if self.open.len() >= MAX_DEPTH {
            let text = format!("values are nested more than {MAX_DEPTH} levels deep");
            return Err(at(span.start.line(), text));
        }
        let text = &self.text[self.offset(span.start)..self.offset(span.end)];
        let flow = without_properties(text).starts_with(bracket);
        let id = self.add(span, kind, flow)?;
        self.anchor(anchor, id);
        self.open.push(Open {
            id,
            key: None,
            keys: HashMap::new(),
        });
        Ok(())
    }

    /// Adds a complete value to its parent.
    fn close(&mut self, id: Id) -> Result<(), Problem> {
        let (end, line) = (self.values[id].span.end, self.values[id].line);
        let Some(open) = self.open.last_mut() else {
            self.root = Some(id);
            return Ok(());
        };
        let text = match &self.values[id].kind {
            Kind::Scalar(text) => Cow::Borrowed(text.as_str()),
            _ => Cow::Borrowed(""),
        };
        let is_map = matches!(self.values[open.id].kind, Kind::Map(_));
        if is_map && open.key.is_none() {
            if let Some(first) = open.keys.insert(text.clone().into_owned(), line) {
                let text = format!("duplicate key \"{text}\", first at line {first}");
                return Err(at(line, text));
            }
            if text == "<<" {
                return Err(at(
                    line,
                    "Envoy does not support merge keys (<<): write the keys out",
                ));
            }
            open.key = Some(id);
        } else {
            let (parent, key) = (open.id, open.key.take());
            match (&mut self.values[parent].kind, key) {
                (Kind::Map(entries), Some(key)) => entries.push((key, id)),
                (Kind::Seq(items), _) => items.push(id),
                _ => {}
            }
        }
        let parent = open.id;
        if !self.values[parent].flow {
            let own = &mut self.values[parent].span;
            own.end = own.end.max(end);
        }
        Ok(())
    }
}

/// Skips anchor, tag and comments.
fn without_properties(text: &str) -> &str {
    let mut text = text.trim_start();
    loop {
        let end = match text.bytes().next() {
            Some(b'&' | b'!') => text.find(char::is_whitespace),
            Some(b'#') => text.find('\n'),
            _ => return text,
        };
        text = text[end.unwrap_or(text.len())..].trim_start();
    }
}

/// Removes what the parser includes after a scalar's end: comments after quotes, empty lines after blocks.
fn trimmed(text: &str, style: ScalarStyle) -> &str {
    let quote = match style {
        ScalarStyle::SingleQuoted => '\'',
        ScalarStyle::DoubleQuoted => '"',
        _ => return text.trim_end(),
    };
    let Some(begin) = text.find(quote) else {
        return text;
    };
    let mut rest = text
        .char_indices()
        .skip_while(|(at, _)| *at <= begin)
        .peekable();
    while let Some((at, char)) = rest.next() {
        match char {
            '\\' if quote == '"' => {
                rest.next();
            }
            _ if char == quote => {
                if quote == '\'' && rest.next_if(|(_, next)| *next == quote).is_some() {
                    continue;
                }
                return &text[..at + 1];
            }
            _ => {}
        }
    }
    text
}
