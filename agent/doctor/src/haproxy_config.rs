//! The parts of HAProxy's configuration that the findings need: some keywords of proxies, with their lines.
//!
//! Validation is left to `haproxy -c`; unknown keywords are ignored.

use std::{collections::BTreeMap, path::Path};

/// Larger than any configuration.
const MAX_BYTES: u64 = 16 << 20;

/// The contents of all files, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HaproxyConfig {
    /// Backends and `listen` sections, including inherited settings.
    pub backends: Vec<Backend>,
}

/// Words of a keyword's line, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// `FILE:LINE`.
    pub at: String,
    /// Words without comments and quotes.
    pub words: Vec<String>,
}

impl Line {
    /// The word after this one.
    pub fn after(&self, word: &str) -> Option<&str> {
        let place = self.words.iter().position(|it| it == word)?;
        self.words.get(place + 1).map(String::as_str)
    }

    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|it| it == word)
    }
}

/// A backend.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// Its name.
    pub name: String,
    /// Position of its first line.
    pub at: String,
    /// `balance`, if set.
    pub balance: Option<Line>,
    /// `hash-type`.
    pub hash_type: Option<Line>,
    /// `timeout queue`.
    pub timeout_queue: Option<Line>,
    /// Its servers.
    pub servers: Vec<Server>,
}

/// A line `server` or `server-template`.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Its name, or a template's prefix.
    pub name: String,
    /// Position of the line.
    pub at: String,
    /// Whether it has an agent check.
    pub has_agent: bool,
    /// `agent-send`, and whether it is on this line.
    pub agent_send: Option<(String, bool)>,
    /// `weight`; 1 by default.
    pub weight: u32,
}

/// Settings that sections inherit.
#[derive(Clone, Debug, Default)]
struct Settings {
    balance: Option<Line>,
    hash_type: Option<Line>,
    timeout_queue: Option<Line>,
    server: Defaults,
}

/// Settings of `default-server`.
#[derive(Clone, Debug, Default)]
struct Defaults {
    agent_check: bool,
    agent_send: Option<String>,
    weight: Option<u32>,
}

impl Defaults {
    fn take(&mut self, line: &Line) {
        if line.has("agent-check") {
            self.agent_check = true;
        }
        if line.has("no-agent-check") {
            self.agent_check = false;
        }
        if let Some(sent) = line.after("agent-send") {
            self.agent_send = Some(sent.to_owned());
        }
        if let Some(weight) = line.after("weight").and_then(|it| it.parse().ok()) {
            self.weight = Some(weight);
        }
    }
}

#[derive(Debug, Default)]
struct Reader {
    /// The last `defaults` section, and all named ones.
    defaults: Settings,
    named: BTreeMap<String, Settings>,
    backends: Vec<Backend>,
    section: Section,
    /// Settings of the current section.
    settings: Settings,
}

#[derive(Debug, Default, PartialEq)]
enum Section {
    #[default]
    Other,
    Defaults(Option<String>),
    Backend,
}

impl HaproxyConfig {
    /// Reads the files in the order of HAProxy's `-f` options.
    pub fn read(files: &[impl AsRef<Path>]) -> Result<Self, String> {
        let mut reader = Reader::default();
        for file in files.iter().map(AsRef::as_ref) {
            let shown = file.display().to_string();
            let told = |problem: String| format!("{shown}: {problem}");
            let found = std::fs::metadata(file).map_err(|error| told(error.to_string()))?;
            if found.len() > MAX_BYTES {
                return Err(told(format!(
                    "has {} bytes, may have {MAX_BYTES}",
                    found.len()
                )));
            }
            let bytes = std::fs::read(file).map_err(|error| told(error.to_string()))?;
            reader.file(&shown, &String::from_utf8_lossy(&bytes))?;
        }
        reader.end();
        Ok(HaproxyConfig {
            backends: reader.backends,
        })
    }
}

impl Reader {
    fn file(&mut self, name: &str, text: &str) -> Result<(), String> {
        self.end();
        for (index, line) in text.lines().enumerate() {
            let at = format!("{name}:{}", index + 1);
            let words = words(line).map_err(|problem| format!("{at}: {problem}"))?;
            // Both branches of a condition count, since its value is unknown here.
            if words.first().is_some_and(|word| !word.starts_with('.')) {
                self.line(Line { at, words });
            }
        }
        Ok(())
    }

    fn line(&mut self, line: Line) {
        let word = |index: usize| line.words.get(index).map_or("", String::as_str);
        match word(0) {
            "defaults" => {
                self.end();
                let name = (!word(1).is_empty() && word(1) != "from").then(|| word(1).to_owned());
                self.settings = match line.after("from") {
                    Some(from) => self.named.get(from).cloned().unwrap_or_default(),
                    None => Settings::default(),
                };
                self.section = Section::Defaults(name);
            }
            "backend" | "listen" => {
                self.end();
                let from = line.after("from").and_then(|from| self.named.get(from));
                self.settings = from.unwrap_or(&self.defaults).clone();
                self.section = Section::Backend;
                self.backends.push(Backend {
                    name: word(1).to_owned(),
                    at: line.at,
                    balance: None,
                    hash_type: None,
                    timeout_queue: None,
                    servers: Vec::new(),
                });
            }
            "global" | "frontend" | "peers" | "resolvers" | "userlist" | "mailers" | "program"
            | "cache" | "http-errors" | "ring" | "log-forward" | "fcgi-app" | "crt-store"
            | "traces" | "log-profile" | "acme" => self.end(),
            _ if self.section == Section::Other => {}
            "balance" => self.settings.balance = Some(line),
            "hash-type" => self.settings.hash_type = Some(line),
            "timeout" if word(1) == "queue" => self.settings.timeout_queue = Some(line),
            "default-server" => self.settings.server.take(&line),
            "server" | "server-template" => self.server(&line),
            _ => {}
        }
    }

    fn server(&mut self, line: &Line) {
        let mut own = self.settings.server.clone();
        own.take(line);
        if let Some(backend) = self.backends.last_mut() {
            let is_of_line = line.after("agent-send").is_some();
            backend.servers.push(Server {
                name: line.words.get(1).cloned().unwrap_or_default(),
                at: line.at.clone(),
                has_agent: own.agent_check,
                agent_send: own.agent_send.map(|sent| (sent, is_of_line)),
                weight: own.weight.unwrap_or(1),
            });
        }
    }

    /// Ends the current section.
    fn end(&mut self) {
        let settings = std::mem::take(&mut self.settings);
        match std::mem::take(&mut self.section) {
            Section::Defaults(name) => {
                if let Some(name) = name {
                    self.named.insert(name, settings.clone());
                }
                self.defaults = settings;
            }
            Section::Backend => {
                if let Some(backend) = self.backends.last_mut() {
                    backend.balance = settings.balance;
                    backend.hash_type = settings.hash_type;
                    backend.timeout_queue = settings.timeout_queue;
                }
            }
            Section::Other => {}
        }
    }
}

/// Splits a line like HAProxy: spaces, two kinds of quotes, backslashes, comments.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None | Some('"'), '\\') => {
                // An escape stays as written, since only whole words are compared.
                let word = word.get_or_insert_default();
                match characters.next() {
                    Some(next @ (' ' | '#' | '\\' | '"' | '\'')) => word.push(next),
                    Some(next) => word.extend(['\\', next]),
                    None => word.push('\\'),
                }
            }
            (Some(_), _) => word.get_or_insert_default().push(character),
            (None, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, '#') => break,
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(character),
        }
    }
    if let Some(quote) = quote {
        return Err(format!("a quote {quote} has no end"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used)]
pub mod tests {
    use super::*;

    pub fn read(text: &str) -> HaproxyConfig {
        let mut reader = Reader::default();
        reader.file("h.cfg", text).unwrap();
        reader.end();
        HaproxyConfig {
            backends: reader.backends,
        }
    }

    #[test]
    fn words_are_split_as_haproxy_does() {
        for (line, expected) in [
            (" a  b\t# c", vec!["a", "b"]),
            ("a\\ b \"c # d\" 'e\"f'", vec!["a b", "c # d", "e\"f"]),
            ("agent-send \"q/n1\\n\"\r", vec!["agent-send", "q/n1\\n"]),
            ("agent-send q/n1\\n", vec!["agent-send", "q/n1\\n"]),
            ("", vec![]),
            ("x \"\" \\", vec!["x", "", "\\"]),
        ] {
            assert_eq!(words(line).unwrap(), expected, "{line}");
        }
        assert!(words("a \"b").is_err());
    }

    #[test]
    fn backends_inherit_from_their_defaults() {
        let config = read(
            "defaults a\r\n timeout queue 1s\ndefaults\n balance roundrobin\n default-server weight 100\n\
             frontend f\n balance first\nbackend one\n server s1 h:1 agent-check\n default-server agent-check\n\
             \n.if x\n hash-type consistent # why\n.endif\n server s2 h:1 weight 50 agent-send \"one/s2\\n\"\n\
             listen two from a\n server-template t 3 h:1 no-agent-check\nbackend\n",
        );
        let [one, two, unnamed] = &config.backends[..] else {
            panic!("{config:?}")
        };
        assert_eq!(one.balance.as_ref().unwrap().words[1], "roundrobin");
        assert_eq!(one.hash_type.as_ref().unwrap().at, "h.cfg:13");
        assert_eq!((&one.timeout_queue, &one.at[..]), (&None, "h.cfg:8"));
        let facts = |server: &Server| (server.has_agent, server.weight);
        assert_eq!(facts(&one.servers[0]), (true, 100));
        assert_eq!(facts(&one.servers[1]), (true, 50));
        assert_eq!(one.servers[0].agent_send, None);
        assert_eq!(
            one.servers[1].agent_send,
            Some(("one/s2\\n".to_owned(), true))
        );
        assert!(two.balance.is_none() && two.timeout_queue.is_some());
        assert_eq!(facts(&two.servers[0]), (false, 1));
        assert_eq!(unnamed.name, "");
    }

    #[test]
    fn unreadable_input_is_reported_with_its_line() {
        let mut reader = Reader::default();
        let problem = reader.file("h.cfg", "global\n log 'a").unwrap_err();
        assert_eq!(problem, "h.cfg:2: a quote ' has no end");
        let problem = HaproxyConfig::read(&["/nowhere/h.cfg"]).unwrap_err();
        assert!(
            problem.starts_with("/nowhere/h.cfg: No such file"),
            "{problem}"
        );
    }
}
