//! Plan of the edits that docs/haproxy.md describes, with notes on lines that stay.

mod backend;
mod frontends;
mod nodes;
mod notes;

use std::net::IpAddr;

use crate::{
    agents::{Agent, Source},
    config::{Config, Kind, Line, Problem, Section},
    edits::Edits,
    lexer::Environment,
    proxies::{self, Server},
};

/// Request of the operator.
pub struct Wish<'a> {
    /// Name of the backend.
    pub backend: &'a str,
    /// SLA delay in the format of the agent's `sla.delay`.
    pub sla: &'a str,
    /// The same in milliseconds.
    pub sla_milliseconds: f64,
    /// Source of delays for the agents.
    pub source: Source,
    /// Whether HAProxy obeys the agents at once. Otherwise they begin by observing, and servers keep their limits.
    pub enforce: bool,
    /// Environment of HAProxy.
    pub environment: Environment<'a>,
    /// Resolver of host names; `None` for names unknown here.
    pub resolve: &'a dyn Fn(&str) -> Option<IpAddr>,
}

/// Note on a line that stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Number of the line, from 1.
    pub line: usize,
    /// Description, and the reason for which it stays.
    pub text: String,
}

/// Complete plan.
#[derive(Debug)]
pub struct Plan {
    /// Edits of haproxy.cfg.
    pub edits: Edits,
    /// Configurations of agents, one per host.
    pub agents: Vec<Agent>,
    /// Notes in the file's order.
    pub notes: Vec<Note>,
}

/// Plan in progress.
struct Draft<'a> {
    config: &'a Config<'a>,
    wish: &'a Wish<'a>,
    /// The backend.
    section: &'a Section,
    servers: Vec<Server<'a>>,
    edits: Edits,
    notes: Vec<Note>,
    problems: Vec<Problem>,
}

/// Creates the plan. The error has all problems in the file's order.
pub fn plan(config: &Config, wish: &Wish) -> Result<Plan, Vec<Problem>> {
    if !config.problems.is_empty() {
        return Err(config.problems.clone());
    }
    let section = find(config, wish.backend).map_err(|problem| vec![problem])?;
    let mut draft = Draft {
        config,
        wish,
        section,
        servers: proxies::servers(config, section),
        edits: Edits::default(),
        notes: Vec::new(),
        problems: Vec::new(),
    };
    draft.check();
    let nodes = draft.nodes();
    if draft.problems.is_empty() {
        draft.backend();
        draft.frontends(&nodes);
        draft.global();
        draft.remarks();
    }
    if !draft.problems.is_empty() {
        draft.problems.sort_by_key(|problem| problem.line);
        return Err(draft.problems);
    }
    draft.notes.sort_by_key(|note| note.line);
    draft.notes.dedup();
    Ok(Plan {
        edits: draft.edits,
        agents: nodes::agents(&nodes, wish),
        notes: draft.notes,
    })
}

fn find<'a>(config: &'a Config, name: &str) -> Result<&'a Section, Problem> {
    let mut found = config
        .sections
        .iter()
        .filter(|it| it.is_backend() && it.name == name);
    let Some(section) = found.next() else {
        let names: Vec<&str> = proxies::adoptable(config)
            .iter()
            .map(|(it, ..)| it.name.as_str())
            .collect();
        let others = match names.as_slice() {
            [] => "no backend has servers".to_owned(),
            names => format!("backends with servers are {}", names.join(", ")),
        };
        return Err(Problem {
            line: 0,
            text: format!("no backend \"{name}\"; {others}"),
        });
    };
    if let Some(second) = found.next() {
        return Err(Problem {
            line: second.lines.start + 1,
            text: format!(
                "duplicate backend \"{name}\", first at line {}: rename one",
                section.lines.start + 1
            ),
        });
    }
    Ok(section)
}

impl<'a> Draft<'a> {
    fn refuse(&mut self, line: usize, text: impl Into<String>) {
        self.problems.push(Problem {
            line,
            text: text.into(),
        });
    }

    fn note(&mut self, line: usize, text: impl Into<String>) {
        self.notes.push(Note {
            line,
            text: text.into(),
        });
    }

    fn check(&mut self) {
        let (config, section) = (self.config, self.section);
        let header = &config.lines[section.lines.start];
        if let Some(line) = header.condition {
            self.refuse(
                header.number,
                format!(
                    "backend \"{}\" is within the .if of line {line}, which is left alone",
                    section.name
                ),
            );
        }
        if !plain(&section.name) {
            self.refuse(
                header.number,
                "HAProxy allows only letters, digits and -_.: in names",
            );
        }
        if let Some(line) = config.body(section).find(|line| line.starts(&["disabled"])) {
            self.refuse(
                line.number,
                format!("backend \"{}\" is disabled", section.name),
            );
        }
        let mode = proxies::mode(config, section);
        let line = config.in_force(section, |line| line.word(0) == "mode");
        let line = line.map_or(header.number, |line| line.number);
        match (mode, &self.wish.source) {
            ("http", _) | ("tcp", Source::Histogram { .. }) => {}
            ("tcp", Source::Log) => self.refuse(
                line,
                format!(
                    "backend \"{}\" has mode tcp, so HAProxy's log has no request times: name the service's \
                     own histogram with --metrics and --histogram, or set mode http",
                    section.name
                ),
            ),
            (mode, _) => self.refuse(line, format!("backend \"{}\" has mode {mode}", section.name)),
        }
        if self.servers.is_empty() {
            self.refuse(
                header.number,
                format!("backend \"{}\" has no servers", section.name),
            );
        }
    }

    fn http(&self) -> bool {
        proxies::mode(self.config, self.section) == "http"
    }

    /// Inserts lines before a line, with the indentation and line ending of `like`.
    fn insert_before(&mut self, line: &Line, like: &Line, new: &[String]) {
        let text = self.lines(like, new);
        self.edits.insert(line.span.start, text);
    }

    fn insert_after(&mut self, line: &Line, like: &Line, new: &[String]) {
        let text = self.lines(like, new);
        self.edits.insert(line.span.end, text);
    }

    fn lines(&self, like: &Line, new: &[String]) -> Vec<u8> {
        let bytes = self.config.bytes();
        let begin = like
            .words
            .first()
            .map_or(like.span.start, |word| word.span.start);
        let indent = String::from_utf8_lossy(&bytes[like.span.start..begin]);
        let end = if bytes[like.span.clone()].ends_with(b"\r\n") {
            "\r\n"
        } else {
            "\n"
        };
        new.iter()
            .map(|line| format!("{indent}{line}{end}"))
            .collect::<String>()
            .into_bytes()
    }

    /// Replaces the words of a line from an index on.
    fn replace_words(&mut self, line: &Line, from: usize, text: &str) {
        let (Some(first), Some(last)) = (line.words.get(from), line.words.last()) else {
            return;
        };
        self.edits.replace(first.span.start..last.span.end, text);
    }

    fn global(&mut self) {
        let config = self.config;
        let mut globals = config
            .sections
            .iter()
            .filter(|it| it.kind == Kind::Global)
            .peekable();
        let Some(first) = globals.peek().copied() else {
            let end = if config.bytes().contains(&b'\r') {
                "\r\n"
            } else {
                "\n"
            };
            self.edits
                .insert(0, format!("global{end}    max-spread-checks 100{end}{end}"));
            return;
        };
        let set = globals
            .filter_map(|it| {
                config
                    .body(it)
                    .rev()
                    .find(|line| line.word(0) == "max-spread-checks")
            })
            .next_back();
        match set {
            Some(line) if milliseconds(line.word(1)).is_some_and(|it| it <= 100.0) => {}
            Some(line) if line.condition.is_some() => {
                self.note(
                    line.number,
                    "max-spread-checks stays, since it is within .if; the guide has 100",
                );
            }
            Some(line) => self.replace_words(line, 1, "100"),
            None => {
                let header = &config.lines[first.lines.start];
                let new = vec!["max-spread-checks 100".to_owned()];
                match config.body(first).find(|line| line.condition.is_none()) {
                    Some(like) => self.insert_after(header, like, &new),
                    None => {
                        self.insert_after(header, header, &["    max-spread-checks 100".to_owned()])
                    }
                }
            }
        }
    }
}

/// Whether a name needs no quotes in HAProxy.
fn plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 60
        && name
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || b"-_.:".contains(&it))
}

/// Parses a time in HAProxy's format, whose default unit is milliseconds.
fn milliseconds(text: &str) -> Option<f64> {
    let digits = text
        .find(|it: char| !it.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "us" => 0.001,
        "" | "ms" => 1.0,
        "s" => 1e3,
        "m" => 60e3,
        "h" => 3600e3,
        "d" => 86_400e3,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}
