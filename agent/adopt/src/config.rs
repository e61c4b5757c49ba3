//! Lines and sections of a file, with the positions of all words. Printing reproduces the same bytes.

use std::{cell::RefCell, collections::BTreeMap, ops::Range};

use crate::{
    keywords::SECTIONS,
    lexer::{self, Environment, Word},
};

/// Error in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Number of the line, from 1; 0 for the whole file.
    pub line: usize,
    /// Message, a sentence.
    pub text: String,
}

/// Line of a file, with the words that HAProxy parses.
#[derive(Clone, Debug)]
pub struct Line {
    /// Number of the line, from 1.
    pub number: usize,
    /// Byte range in the file, including the newline.
    pub span: Range<usize>,
    /// Words; empty in comments and blank lines.
    pub words: Vec<Word>,
    /// Offset of the comment or the newline after the words.
    pub end: usize,
    /// Line number of the outermost `.if` block that contains it, including `.if` and `.endif` themselves.
    pub condition: Option<usize>,
}

/// Kind of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `global`.
    Global,
    /// `defaults`, with or without a name.
    Defaults,
    /// `frontend`.
    Frontend,
    /// `backend`.
    Backend,
    /// `listen`: a frontend and a backend in one.
    Listen,
    /// Any other section.
    Other,
}

/// A section: its first line and those up to the next one.
#[derive(Clone, Debug)]
pub struct Section {
    /// Kind of the section.
    pub kind: Kind,
    /// Name; empty if it has none.
    pub name: String,
    /// Indexes of its lines, the header first.
    pub lines: Range<usize>,
    /// Index of the `defaults` section that it inherits.
    pub defaults: Option<usize>,
}

impl Section {
    /// Whether it receives requests.
    pub fn is_frontend(&self) -> bool {
        matches!(self.kind, Kind::Frontend | Kind::Listen)
    }

    /// Whether it has servers.
    pub fn is_backend(&self) -> bool {
        matches!(self.kind, Kind::Backend | Kind::Listen)
    }
}

/// Parsed haproxy.cfg.
#[derive(Debug)]
pub struct Config<'a> {
    bytes: &'a [u8],
    /// All lines.
    pub lines: Vec<Line>,
    /// Sections in order.
    pub sections: Vec<Section>,
    /// Errors that HAProxy would also report, as far as this parser detects them.
    pub problems: Vec<Problem>,
    environment: BTreeMap<String, Option<String>>,
}

impl Line {
    /// The word at an index; empty if there is none.
    pub fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", |word| &word.text)
    }

    /// Whether the line begins with these words.
    pub fn starts(&self, words: &[&str]) -> bool {
        words
            .iter()
            .enumerate()
            .all(|(index, word)| index < self.words.len() && self.word(index) == *word)
    }
}

impl<'a> Config<'a> {
    /// Parses a file. Errors are collected in `problems`.
    pub fn parse(bytes: &'a [u8], environment: Environment) -> Self {
        let changed = RefCell::new(BTreeMap::<String, Option<String>>::new());
        let current = |name: &str| match changed.borrow().get(name) {
            Some(value) => value.clone(),
            None => environment(name),
        };
        let mut config = Config {
            bytes,
            lines: Vec::new(),
            sections: Vec::new(),
            problems: Vec::new(),
            environment: BTreeMap::new(),
        };
        let mut conditions: Vec<usize> = Vec::new();
        let mut begin = 0;
        for text in bytes.split_inclusive(|&byte| byte == b'\n') {
            let span = begin..begin + text.len();
            begin = span.end;
            let number = config.lines.len() + 1;
            let found = lexer::words(text, span.start, &current).unwrap_or_else(|text| {
                config.problems.push(Problem { line: number, text });
                lexer::Words {
                    words: Vec::new(),
                    end: span.start,
                }
            });
            let first = found.words.first().map_or("", |word| &word.text).to_owned();
            if first == ".if" {
                conditions.push(number);
            }
            let condition = conditions.first().copied();
            if first == ".endif" && conditions.pop().is_none() {
                config.problem(number, ".endif without .if");
            }
            let line = Line {
                number,
                span,
                words: found.words,
                end: found.end,
                condition,
            };
            config.section(&line, &first);
            config.lines.push(line);
            if let Some(section) = config.sections.last_mut() {
                section.lines.end = config.lines.len();
                if section.kind == Kind::Global && condition.is_none() {
                    set(&config.lines[config.lines.len() - 1], &current, &changed);
                }
            }
        }
        if let Some(line) = conditions.first() {
            config.problem(*line, ".if without .endif");
        }
        if !bytes.is_empty() && !bytes.ends_with(b"\n") {
            let last = config.lines.len();
            config.problem(
                last,
                "the last line has no newline, so the file may be truncated",
            );
        }
        config.environment = changed.into_inner();
        config
    }

    fn problem(&mut self, line: usize, text: &str) {
        self.problems.push(Problem {
            line,
            text: text.to_owned(),
        });
    }

    fn section(&mut self, line: &Line, first: &str) {
        if first.is_empty() || first.starts_with('.') {
            return;
        }
        if !SECTIONS.contains(&first) {
            if self.sections.is_empty() {
                self.problem(line.number, &format!("\"{first}\" is outside any section"));
            }
            return;
        }
        let kind = match first {
            "global" => Kind::Global,
            "defaults" => Kind::Defaults,
            "frontend" => Kind::Frontend,
            "backend" => Kind::Backend,
            "listen" => Kind::Listen,
            _ => Kind::Other,
        };
        let mut words = line.words.iter().skip(1).map(|word| word.text.as_str());
        let mut name = words.next().unwrap_or_default();
        let mut from = words
            .next()
            .filter(|word| *word == "from")
            .and(words.next());
        if kind == Kind::Defaults && name == "from" {
            from = line.words.get(2).map(|word| word.text.as_str());
            name = "";
        }
        let proxy = matches!(kind, Kind::Frontend | Kind::Backend | Kind::Listen);
        if proxy && name.is_empty() {
            self.problem(line.number, &format!("\"{first}\" has no name"));
        }
        let defaults = match from {
            Some(from) if proxy || kind == Kind::Defaults => {
                let found = self
                    .sections
                    .iter()
                    .rposition(|it| it.kind == Kind::Defaults && it.name == from);
                if found.is_none() {
                    self.problem(
                        line.number,
                        &format!("there is no preceding \"defaults {from}\""),
                    );
                }
                found
            }
            _ if proxy => self
                .sections
                .iter()
                .rposition(|it| it.kind == Kind::Defaults),
            _ => None,
        };
        let at = self.lines.len();
        self.sections.push(Section {
            kind,
            name: name.to_owned(),
            lines: at..at,
            defaults,
        });
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes of the file, assembled from the lines.
    pub fn print(&self) -> Vec<u8> {
        let lines = self.lines.iter().map(|line| &self.bytes[line.span.clone()]);
        lines.collect::<Vec<_>>().concat()
    }

    /// Value of a variable after `setenv` and similar lines, or from HAProxy's environment.
    pub fn variable(&self, name: &str, environment: Environment) -> Option<String> {
        match self.environment.get(name) {
            Some(value) => value.clone(),
            None => environment(name),
        }
    }

    /// Non-blank lines of a section without its header.
    pub fn body(&self, section: &Section) -> impl DoubleEndedIterator<Item = &Line> + use<'_> {
        let lines = section.lines.start + 1..section.lines.end;
        self.lines[lines]
            .iter()
            .filter(|line| !line.words.is_empty())
    }

    /// The `defaults` sections that a section inherits, directly and indirectly, the farthest first, and the section.
    pub fn chain<'b>(&'b self, section: &'b Section) -> Vec<&'b Section> {
        let mut found = vec![section];
        let mut next = section.defaults;
        while let Some(index) = next {
            found.insert(0, &self.sections[index]);
            next = self.sections[index].defaults;
        }
        found
    }

    /// Last matching line in force for a section, its own or an inherited one.
    pub fn in_force(&self, section: &Section, is: impl Fn(&Line) -> bool) -> Option<&Line> {
        let chain = self.chain(section);
        chain
            .iter()
            .rev()
            .find_map(|it| self.body(it).rev().find(|line| is(line)))
    }

    /// Line that sets an option in force for a section; `None` if the option is off.
    pub fn option(&self, section: &Section, name: &str) -> Option<&Line> {
        self.in_force(section, |line| {
            line.starts(&["option", name]) || line.starts(&["no", "option", name])
        })
        .filter(|line| line.word(0) != "no")
    }

    /// Whether a line belongs to this section itself.
    pub fn owns(&self, section: &Section, line: &Line) -> bool {
        section.lines.contains(&(line.number - 1))
    }
}

fn set(line: &Line, current: Environment, changed: &RefCell<BTreeMap<String, Option<String>>>) {
    let name = line.word(1).to_owned();
    let value = line.words.get(2).map(|word| word.text.clone());
    match line.word(0) {
        "setenv" => drop(changed.borrow_mut().insert(name, value)),
        "presetenv" if current(&name).is_none() => drop(changed.borrow_mut().insert(name, value)),
        "unsetenv" => {
            for word in &line.words[1..] {
                changed.borrow_mut().insert(word.text.clone(), None);
            }
        }
        _ => {}
    }
}
