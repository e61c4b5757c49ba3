//! Edits that send HAProxy's log to the agents.

use super::{Draft, nodes::Node};
use crate::{
    agents::Source,
    config::{Config, Line, Section},
    proxies,
};

/// The same as in haproxy/snippets/log-format.cfg.
const FIELDS: &str = "plimsoll %b/%s %Tw %Tc %Tr %Td %TR/%Ta @%[date(0,ms)]/%rt/%sc/%H/%pid %ST %ts %[var(txn.plimsoll_items)]";
/// HAProxy's predefined log formats, from its manual.
const HTTP: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r";
const CLF: &str = r#"%{+Q}o %{-Q}ci - - [%trg] %r %ST %B \"\" \"\" %cp %ms %ft %b %s %TR %Tw %Tc %Tr %Ta %tsc %ac %fc %bc %sc %rc %sq %bq %CC %CS %hrl %hsl"#;
const HTTPS: &str = " %[fc_err]/%[ssl_fc_err,hex]/%[ssl_c_err]/%[ssl_c_ca_err]/%[ssl_fc_is_resumed] %[ssl_fc_sni]/%sslv/%sslc";
const TCP: &str = "%ci:%cp [%t] %ft %b/%s %Tw/%Tc/%Tt %B %ts %ac/%fc/%bc/%sc/%rc %sq/%bq";

impl Draft<'_> {
    /// Plans the edits of every frontend that sends requests to the backend.
    pub fn frontends(&mut self, nodes: &[Node]) {
        if self.wish.source != Source::Log {
            return;
        }
        let config = self.config;
        let backend = &self.section.name;
        let header = self.section.lines.start + 1;
        let mut found = 0;
        for section in config.sections.iter().filter(|it| it.is_frontend()) {
            let route = routed(config, section, backend);
            if !(std::ptr::eq(section, self.section) || route.is_some())
                || proxies::mode(config, section) != "http"
            {
                continue;
            }
            if let Some(line) = route.filter(|line| line.word(1).contains("%[")) {
                let text = format!(
                    "its backends are known only at run time, and may include \"{backend}\""
                );
                self.note(line.number, text);
            }
            found += 1;
            self.frontend(section, nodes);
        }
        if found == 0 {
            let text = format!(
                "no frontend of this file sends requests to backend \"{backend}\", so there is no log to read: name \
                 the service's own histogram with --metrics and --histogram"
            );
            self.refuse(header, text);
        }
    }

    fn frontend(&mut self, section: &Section, nodes: &[Node]) {
        let config = self.config;
        let header = &config.lines[section.lines.start];
        if let Some(line) = header.condition {
            let text = format!(
                "\"{}\" is within the .if of line {line} and is left alone: its log stays",
                section.name
            );
            self.note(header.number, text);
            return;
        }
        for name in ["dontlog-normal", "logasap"] {
            if config.option(section, name).is_none() {
                continue;
            }
            let own = |line: &&Line| line.starts(&["option", name]) && line.condition.is_none();
            for line in config.body(section).filter(own) {
                self.edits.replace(line.span.clone(), "");
            }
            let conditional = config
                .body(section)
                .find(|line| line.starts(&["option", name]) && line.condition.is_some());
            if let Some(line) = conditional {
                let text = format!(
                    "option {name} is within .if: remove it, since agents would not see every request"
                );
                self.refuse(line.number, text);
            }
            let inherited = section.defaults.map(|index| &config.sections[index]);
            if inherited.is_some_and(|it| config.option(it, name).is_some()) {
                let like = config.body(section).next().unwrap_or(header);
                self.insert_after(header, like, &[format!("no option {name}")]);
            }
        }
        let mut new: Vec<String> = nodes
            .iter()
            .flat_map(Node::log_targets)
            .filter(|target| {
                !config
                    .body(section)
                    .any(|line| line.starts(&["log", target]))
            })
            .map(|target| format!("log {target} local0 info"))
            .collect();
        let format = config.in_force(section, |line| {
            line.word(0) == "log-format"
                || line.word(0) == "option"
                    && matches!(line.word(1), "httplog" | "tcplog" | "httpslog")
        });
        let owned = format.filter(|line| config.owns(section, line));
        if let Some(line) = owned.filter(|line| line.condition.is_some()) {
            self.refuse(line.number, "this log format is within .if: move it out, since agents need a format that they can read");
            return;
        }
        let adopted = format.is_some_and(|line| {
            line.word(0) == "log-format" && line.word(1).starts_with("plimsoll ")
        });
        if let Some(line) = format
            .filter(|line| line.word(1).contains("%{+json}o") || line.word(1).contains("%{+cbor}o"))
        {
            self.refuse(
                line.number,
                "this log format is encoded as a whole, which the agents do not read: name the service's own \
                 histogram with --metrics and --histogram",
            );
            return;
        }
        if !adopted {
            if let Some(line) = format {
                let text = format!(
                    "log lines of \"{}\" will begin with the agents' fields, followed by the current ones: parsers \
                     must skip the first 11 words",
                    section.name
                );
                self.note(line.number, text);
            }
            new.push(format!("log-format {}", self.format(format)));
        }
        if new.is_empty() {
            return;
        }
        // After its own `log` lines, since `no log` drops preceding ones.
        let last_log = config.body(section).rev().find(|line| {
            line.condition.is_none() && (line.word(0) == "log" || line.starts(&["no", "log"]))
        });
        match owned.filter(|_| !adopted) {
            Some(line) if last_log.is_none_or(|log| log.number < line.number) => {
                let text = self.lines(line, &new);
                self.edits
                    .replace(line.span.start..line.end, text_of(&text, line, config));
            }
            _ => {
                let like = config.body(section).next().unwrap_or(header);
                self.insert_after(last_log.unwrap_or(header), like, &new);
                if let Some(line) = owned.filter(|_| !adopted) {
                    self.edits.replace(line.span.clone(), "");
                }
            }
        }
    }

    /// Log format with the agents' fields before the present ones, as a word of the file.
    fn format(&self, now: Option<&Line>) -> String {
        let Some(line) = now else {
            return format!("\"{FIELDS}\"");
        };
        if line.word(0) == "log-format" {
            let bytes = self.config.bytes();
            let written = line
                .words
                .get(1)
                .map_or(&b""[..], |word| &bytes[word.span.clone()]);
            let written = String::from_utf8_lossy(written);
            return match written.strip_prefix('"') {
                Some(rest) => format!("\"{FIELDS} {rest}"),
                None => format!("\"{FIELDS} \"{written}"),
            };
        }
        match (line.word(1), line.word(2)) {
            ("httplog", "clf") => format!("\"{FIELDS} {CLF}\""),
            ("httpslog", _) => format!("\"{FIELDS} {HTTP}{HTTPS}\""),
            ("tcplog", _) => format!("\"{FIELDS} {TCP}\""),
            _ => format!("\"{FIELDS} {HTTP}\""),
        }
    }
}

/// Text without its last newline, since the replaced line keeps its own, and its comment.
fn text_of(text: &[u8], line: &Line, config: &Config) -> Vec<u8> {
    let mut text = text.trim_ascii_end().to_vec();
    let rest = &config.bytes()[line.end..line.span.end];
    if rest.starts_with(b"#") {
        text.push(b' ');
    }
    text
}

/// Line by which a frontend's requests may reach a backend.
fn routed<'a>(config: &'a Config, section: &'a Section, backend: &str) -> Option<&'a Line> {
    let mut parts = config.chain(section);
    parts.reverse();
    let by_rule = parts[..1]
        .iter()
        .flat_map(|part| config.body(part))
        .find(|line| {
            line.word(0) == "use_backend"
                && (line.word(1) == backend || line.word(1).contains("%["))
        });
    by_rule.or_else(|| {
        config
            .in_force(section, |line| line.word(0) == "default_backend")
            .filter(|line| line.word(1) == backend)
    })
}
