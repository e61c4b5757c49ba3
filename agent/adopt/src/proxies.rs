//! Backends, and their servers with the `default-server` settings in force.

use std::ops::Range;

use crate::{
    config::{Config, Line, Section},
    keywords::SERVER_VALUES,
    lexer::Word,
};

/// Settings of `server` and `default-server`, by position.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    found: Vec<(String, String, Range<usize>)>,
    lacking: Option<String>,
}

impl Settings {
    /// Parses the keywords of a line.
    pub fn read(words: &[Word]) -> Self {
        let (mut found, mut lacking) = (Vec::new(), None);
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let mut span = word.span.clone();
            let mut value = String::new();
            if SERVER_VALUES.contains(&word.text.as_str()) {
                match rest.next() {
                    Some(next) => {
                        value.clone_from(&next.text);
                        span.end = next.span.end;
                    }
                    None => lacking = Some(word.text.clone()),
                }
            }
            found.push((word.text.clone(), value, span));
        }
        Settings { found, lacking }
    }

    /// Keyword at the end of the line that lacks its value.
    pub fn lacking(&self) -> Option<&str> {
        self.lacking.as_deref()
    }

    /// Last value of a keyword; empty for a keyword without a value.
    pub fn get(&self, keyword: &str) -> Option<&str> {
        let last = self.found.iter().rev().find(|(word, ..)| word == keyword)?;
        Some(&last.1)
    }

    /// Values and positions of all occurrences of a keyword.
    pub fn places(&self, keyword: &str) -> impl Iterator<Item = (&str, Range<usize>)> {
        self.found
            .iter()
            .filter(move |(word, ..)| word == keyword)
            .map(|(_, value, span)| (value.as_str(), span.clone()))
    }

    /// Number of keywords.
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether a switch is on; the last of `word` and `no-word` counts.
    pub fn on(&self, keyword: &str) -> bool {
        let last = self
            .found
            .iter()
            .rev()
            .find(|(word, ..)| word == keyword || word.strip_prefix("no-") == Some(keyword));
        last.is_some_and(|(word, ..)| word == keyword)
    }

    fn extend(&mut self, other: &Settings) {
        self.found.extend(other.found.iter().cloned());
    }
}

/// A `server` or `server-template` line.
#[derive(Debug)]
pub struct Server<'a> {
    /// Line of the server.
    pub line: &'a Line,
    /// Name, or the prefix of a template.
    pub name: &'a str,
    /// Address as in the file, with variables in double quotes expanded.
    pub address: &'a Word,
    /// Whether it is a `server-template`.
    pub template: bool,
    /// Settings on its own line.
    pub own: Settings,
    /// Settings including all `default-server` lines before it.
    pub effective: Settings,
}

/// Servers of a backend in order, without those in `.if` blocks.
pub fn servers<'a>(config: &'a Config, section: &'a Section) -> Vec<Server<'a>> {
    let mut defaults = Settings::default();
    let mut found = Vec::new();
    for part in config.chain(section) {
        for line in config.body(part) {
            let template = line.word(0) == "server-template";
            if line.word(0) == "default-server" {
                defaults.extend(&Settings::read(&line.words[1..]));
            } else if (line.word(0) == "server" || template)
                && line.condition.is_none()
                // HAProxy takes none in `defaults`.
                && config.owns(section, line)
            {
                let at = if template { 3 } else { 2 };
                let Some(address) = line.words.get(at) else {
                    continue;
                };
                let own = Settings::read(&line.words[at + 1..]);
                let mut effective = defaults.clone();
                effective.extend(&own);
                found.push(Server {
                    line,
                    name: line.word(1),
                    address,
                    template,
                    own,
                    effective,
                });
            }
        }
    }
    found
}

/// Backends with servers, with the line and mode of each.
pub fn adoptable<'a>(config: &'a Config) -> Vec<(&'a Section, usize, &'a str)> {
    let backends = config.sections.iter().filter(|it| it.is_backend());
    backends
        .filter(|section| !servers(config, section).is_empty())
        .map(|section| (section, section.lines.start + 1, mode(config, section)))
        .collect()
}

/// Mode of a section, such as `http`; HAProxy's default is `tcp`.
pub fn mode<'a>(config: &'a Config, section: &'a Section) -> &'a str {
    config
        .in_force(section, |line| line.word(0) == "mode")
        .map_or("tcp", |line| line.word(1))
}
