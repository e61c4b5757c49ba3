//! Edits of the backend's own lines.

use super::{Draft, milliseconds};
use crate::{
    agents::CHECK_PORT,
    config::Line,
    proxies::{Server, Settings},
};

/// The same as in haproxy/snippets/refusal.cfg.
const REFUSAL: &str = r#"http-error status 503 content-type text/plain string "no node may carry more\n" hdr retry-after 1 hdr plimsoll-reason full"#;
/// Server keywords that limit a server; the agent's decisions replace them once they are obeyed.
const LIMITS: [&str; 2] = ["maxconn", "minconn"];
const WEIGHT: &str = "100";
/// Values that stay where they are set.
const KEPT: [(&str, &str); 2] = [("weight", WEIGHT), ("minconn", "0")];

impl Server<'_> {
    /// Present or future `agent-send` text of the server.
    pub fn identity(&self, backend: &str) -> String {
        let set = self
            .effective
            .get("agent-send")
            .and_then(|it| it.split_whitespace().next());
        match set {
            Some(identity) => identity.to_owned(),
            None if self.template => backend.to_owned(),
            None => format!("{backend}/{}", self.name),
        }
    }

    /// Whether the server already has an `agent-check` with `agent-send`.
    fn adopted(&self) -> bool {
        self.effective.on("agent-check") && self.effective.get("agent-send").is_some()
    }

    /// Whether the server gets no agent: a backup beside regular servers, often an error page.
    pub fn without_agent(&self, all: &[Server]) -> bool {
        self.own.on("backup") && !self.adopted() && !all.iter().all(|it| it.own.on("backup"))
    }

    /// Whether the server has another program's `agent-check`: no server of the backend has `agent-send`.
    pub fn foreign_agent(&self, all: &[Server]) -> bool {
        self.effective.on("agent-check")
            && !all
                .iter()
                .any(|it| it.effective.get("agent-send").is_some())
    }
}

impl Draft<'_> {
    /// Plans all edits within the backend.
    pub fn backend(&mut self) {
        let mut new = Vec::new();
        new.extend(self.timeout_queue());
        new.extend(self.redispatch());
        new.extend(self.refusal());
        new.extend(self.balance());
        new.extend(self.default_server());
        for index in 0..self.servers.len() {
            self.server(index);
        }
        let config = self.config;
        let first = self.servers[0].line;
        if !new.is_empty() {
            let before = config.lines[self.section.lines.start + 1..first.number - 1]
                .iter()
                .rev()
                .take_while(|line| is_comment(config.bytes(), line))
                .last()
                .unwrap_or(first);
            self.insert_before(before, first, &new);
        }
    }

    /// Own limit of a server, which stays as long as the agents are not obeyed.
    fn limited(&self) -> Option<&Server<'_>> {
        let limits = |it: &&Server| it.effective.get("maxconn").is_some_and(|it| it != "0");
        let mut found = self.servers.iter().filter(|_| !self.wish.enforce);
        found.find(limits)
    }

    fn timeout_queue(&mut self) -> Option<String> {
        if let Some(server) = self.limited() {
            let (line, maxconn) = (server.line.number, server.effective.get("maxconn"));
            let text = format!(
                "maxconn {} and `timeout queue` stay while the agents only observe; to enforce their bounds, \
                 run this again with --enforce",
                maxconn.unwrap_or_default()
            );
            self.note(line, text);
            return None;
        }
        let wanted = if self.wish.sla_milliseconds < 100.0 {
            format!("{}ms", (self.wish.sla_milliseconds / 2.0).ceil())
        } else {
            "50ms".to_owned()
        };
        let set = self
            .config
            .in_force(self.section, |line| line.starts(&["timeout", "queue"]));
        match set {
            Some(line) if line.word(2) == wanted => None,
            Some(line) if self.config.owns(self.section, line) => {
                let within =
                    milliseconds(line.word(2)).is_some_and(|it| it < self.wish.sla_milliseconds);
                if within || line.condition.is_some() {
                    self.note(
                        line.number,
                        format!(
                            "timeout queue {} stays; the guide has {wanted}",
                            line.word(2)
                        ),
                    );
                } else {
                    self.replace_words(line, 2, &wanted);
                }
                None
            }
            _ => Some(format!("timeout queue {wanted}")),
        }
    }

    /// Line that configures session persistence.
    fn persistence(&self) -> Option<&Line> {
        let config = self.config;
        config.in_force(self.section, |line| {
            line.word(0) == "cookie"
                || line.starts(&["stick", "on"])
                || line.starts(&["stick", "match"])
                || line.starts(&["stick", "store-request"])
        })
    }

    fn redispatch(&mut self) -> Option<String> {
        let config = self.config;
        if let Some(line) = self.persistence() {
            let (number, word) = (line.number, line.word(0).to_owned());
            self.note(
                number,
                format!(
                    "{word} stays: clients keep their server, whatever its weight, and wait `timeout queue` where it is \
                     full; so `option redispatch 1` is not added, which would send them to another one"
                ),
            );
            return None;
        }
        let is = |line: &Line| {
            line.starts(&["option", "redispatch"]) || line.starts(&["no", "option", "redispatch"])
        };
        match config.in_force(self.section, is) {
            Some(line) if line.word(0) == "option" && line.word(2) == "1" => None,
            Some(line) if config.owns(self.section, line) => {
                if line.word(0) == "no" || line.condition.is_some() {
                    self.note(
                        line.number,
                        "option redispatch stays; the guide has `option redispatch 1`",
                    );
                } else {
                    self.replace_words(line, 1, "redispatch 1");
                }
                None
            }
            _ => Some("option redispatch 1".to_owned()),
        }
    }

    fn refusal(&mut self) -> Option<String> {
        if !self.http() {
            return None;
        }
        let is = |line: &Line| {
            let first = line.word(0);
            (first.starts_with("errorfile") || first.starts_with("errorloc"))
                && line.word(1) == "503"
                || first == "errorfiles"
                || line.starts(&["http-error", "status", "503"])
        };
        let config = self.config;
        match config.in_force(self.section, is) {
            Some(line) if line.words.iter().any(|it| it.text == "plimsoll-reason") => None,
            Some(line) if config.owns(self.section, line) => {
                self.note(
                    line.number,
                    "its own page for 503 stays: refusals look like other 503s, without plimsoll-reason",
                );
                None
            }
            set => {
                if let Some(line) = set {
                    let text = format!(
                        "this page for 503 no longer applies to \"{}\"",
                        self.section.name
                    );
                    self.note(line.number, text);
                }
                Some(REFUSAL.to_owned())
            }
        }
    }

    fn balance(&mut self) -> Option<String> {
        let (config, section) = (self.config, self.section);
        let line = config.in_force(section, |line| line.word(0) == "balance");
        let name = line.map_or("roundrobin", |line| line.word(1));
        let number = line.map_or(section.lines.start + 1, |line| line.number);
        match name.split('(').next().unwrap_or_default() {
            "leastconn" => None,
            "roundrobin" | "static-rr" => {
                match line.filter(|line| config.owns(section, line) && line.condition.is_none()) {
                    Some(line) => self.replace_words(line, 1, "leastconn"),
                    None => return Some("balance leastconn".to_owned()),
                }
                None
            }
            "random" => {
                self.note(
                    number,
                    format!("balance {name} stays: it supports weights; the guide has leastconn"),
                );
                None
            }
            "first" => {
                self.note(
                    number,
                    "balance first stays: it does not support weights, so only maxconn follows the agents",
                );
                None
            }
            "source" | "uri" | "url_param" | "hdr" | "hash" | "rdp-cookie" => {
                self.hash(name, number)
            }
            _ => {
                self.note(
                    number,
                    format!("balance {name} stays: it may not support weights"),
                );
                None
            }
        }
    }

    fn hash(&mut self, name: &str, number: usize) -> Option<String> {
        let (config, section) = (self.config, self.section);
        let set = config.in_force(section, |line| line.word(0) == "hash-type");
        if set.is_some_and(|line| line.word(1) == "consistent") {
            self.note(number, format!("balance {name} stays, with hash-type consistent: weights are shares of the keys"));
            return None;
        }
        self.note(
            number,
            format!(
                "balance {name} stays. Its hash-type becomes consistent, which supports weights: at this reload, most keys \
                 move to another server, once"
            ),
        );
        let own = set.filter(|line| config.owns(section, line) && line.condition.is_none());
        if let Some(line) = own {
            let kind = line.words.get(1).map(|word| word.span.clone());
            self.edits
                .replace(kind.unwrap_or(line.end..line.end), "consistent");
            return None;
        }
        let more = set.map_or(String::new(), |line| {
            line.words
                .iter()
                .skip(2)
                .map(|word| format!(" {}", word.text))
                .collect()
        });
        Some(format!("hash-type consistent{more}"))
    }

    fn default_server(&mut self) -> Option<String> {
        let (config, section) = (self.config, self.section);
        let first = self.servers[0].line.number;
        let asked: Vec<&Server> = self
            .servers
            .iter()
            .filter(|it| !it.without_agent(&self.servers))
            .collect();
        let adopted = asked.iter().all(|it| it.adopted());
        let lacks =
            |keyword: &str| !adopted && asked.iter().any(|it| it.effective.get(keyword).is_none());
        let mut words = Vec::new();
        if asked.iter().any(|it| !it.effective.on("agent-check")) {
            words.push("agent-check".to_owned());
        }
        if lacks("agent-port") {
            words.push(format!("agent-port {CHECK_PORT}"));
        }
        if lacks("agent-inter") {
            words.push("agent-inter 250ms".to_owned());
        }
        let (mut weighted, mut minconn) = (adopted, false);
        for part in config.chain(section) {
            for line in config
                .body(part)
                .filter(|line| line.word(0) == "default-server")
            {
                let settings = Settings::read(&line.words[1..]);
                let weight = settings.get("weight");
                if !config.owns(section, line) || line.condition.is_some() {
                    minconn |= settings.get("minconn").is_some_and(|it| it != "0");
                    weighted = adopted || weight.map_or(weighted, |it| it == WEIGHT);
                    continue;
                }
                minconn &= settings.get("minconn") != Some("0");
                if line.number < first {
                    weighted = adopted || weight.map_or(weighted, |it| it == WEIGHT);
                }
                if self.strip(line, &settings, adopted) == settings.len() {
                    self.edits.replace(line.span.clone(), "");
                }
            }
        }
        if !weighted {
            words.insert(0, format!("weight {WEIGHT}"));
        }
        if minconn && self.wish.enforce {
            words.push("minconn 0".to_owned());
        }
        if words.is_empty() {
            None
        } else {
            Some(format!("default-server {}", words.join(" ")))
        }
    }

    /// Removes the keywords that the agent decides: limits once it is obeyed, and the weight of a server that had no
    /// agent. Returns their number; edits nothing if the line has no others.
    fn strip(&mut self, line: &Line, settings: &Settings, adopted: bool) -> usize {
        let limits = LIMITS.iter().filter(|_| self.wish.enforce);
        let places: Vec<_> = limits
            .chain(["weight"].iter().filter(|_| !adopted))
            .flat_map(|keyword| {
                settings
                    .places(keyword)
                    .filter(|(value, _)| !KEPT.contains(&(*keyword, *value)))
            })
            .map(|(_, span)| span)
            .collect();
        if line.word(0) != "default-server" || places.len() < settings.len() {
            for span in &places {
                let before = line
                    .words
                    .iter()
                    .rev()
                    .find(|word| word.span.end <= span.start);
                let begin = before.map_or(span.start, |word| word.span.end);
                self.edits.replace(begin..span.end, "");
            }
        }
        places.len()
    }

    fn server(&mut self, index: usize) {
        let server = &self.servers[index];
        let line = server.line;
        let end = line.words.last().map_or(line.end, |word| word.span.end);
        if server.without_agent(&self.servers) {
            if !server.own.places("no-agent-check").any(|_| true) {
                let text = format!("server \"{}\" is a backup and gets no agent", server.name);
                self.edits.insert(end, " no-agent-check");
                self.note(line.number, text);
            }
            return;
        }
        let own = server.own.clone();
        if server.adopted() {
            self.strip(line, &own, true);
            return;
        }
        let mut added = String::new();
        if server.address.text.starts_with("unix@") || server.address.text.starts_with('/') {
            added.push_str(" agent-addr 127.0.0.1");
        }
        let identity = server.identity(&self.section.name);
        added.push_str(&format!(" agent-send \"{identity}\\n\""));
        self.strip(line, &own, false);
        self.edits.insert(end, added);
    }
}

fn is_comment(bytes: &[u8], line: &Line) -> bool {
    line.words.is_empty()
        && bytes[line.span.clone()]
            .trim_ascii_start()
            .starts_with(b"#")
}
