//! Notes on lines that stay but that the operator should know about.

use super::Draft;
use crate::{config::Line, proxies};

/// Predicate on lines.
type Is<'a> = &'a dyn Fn(&Line) -> bool;

impl Draft<'_> {
    /// Adds notes on the whole file.
    pub fn remarks(&mut self) {
        self.conditions();
        self.health_check();
        self.others();
        let config = self.config;
        let section = self.section;
        let said: [(Is, &str); 4] = [
            (
                &|line| line.word(0) == "retry-on" && line.words.iter().any(|it| it.text == "503"),
                "retry-on 503 stays: it sends requests refused by a busy node to the next busy node; remove 503",
            ),
            (
                &|line| line.word(0) == "load-server-state-from-file" && line.word(1) != "none",
                "the state file stays: it restores weights and drains after a reload, but not maxconn",
            ),
            (
                &|line| line.word(0) == "fullconn",
                "fullconn stays, and has no effect without minconn",
            ),
            (
                &|line| {
                    matches!(line.word(0), "http-request" | "http-response")
                        && line.starts(&[line.word(0), "set-log-level", "silent"])
                },
                "agents do not see requests that are not logged",
            ),
        ];
        for (is, text) in said {
            if let Some(line) = config.in_force(section, is) {
                self.note(line.number, text);
            }
        }
    }

    fn conditions(&mut self) {
        let config = self.config;
        let mut last = None;
        for line in config
            .body(self.section)
            .filter(|line| line.condition.is_some())
        {
            if line.condition != last {
                let number = line.condition.unwrap_or(line.number);
                self.note(number, "lines between this .if and its .endif are left alone: servers there get no agent");
                last = line.condition;
            }
        }
    }

    fn health_check(&mut self) {
        let config = self.config;
        let checked = config.option(self.section, "httpchk");
        let timeout = config.in_force(self.section, |line| line.starts(&["timeout", "check"]));
        if let Some(line) = checked
            && timeout.is_none()
            && self
                .servers
                .iter()
                .any(|it| it.effective.on("check") && it.effective.get("port").is_none())
        {
            self.note(
                line.number,
                "option httpchk stays: a full node answers it late, within `inter` (2 s unless set), or is taken for \
                 dead; set `timeout check` to several times the SLA, or check a port that a full service answers",
            );
        }
    }

    /// Adds notes on other backends with the same nodes, or with other agents.
    fn others(&mut self) {
        let config = self.config;
        for (section, line, _) in proxies::adoptable(config) {
            if std::ptr::eq(section, self.section) {
                continue;
            }
            let theirs = proxies::servers(config, section);
            let shared = theirs.iter().find(|it| {
                self.servers
                    .iter()
                    .any(|own| own.address.text == it.address.text)
            });
            if let Some(server) = shared {
                let text = format!(
                    "backend \"{}\" also sends to {}, and stays: these limits do not apply to its requests, which are \
                     missing from the agents' log",
                    section.name, server.address.text
                );
                self.note(server.line.number, text);
            }
            let asked = theirs.iter().any(|it| {
                it.effective.on("agent-check") && it.effective.get("agent-send").is_none()
            });
            if asked {
                let text = format!(
                    "backend \"{}\" has agent checks without agent-send, and stays: next to servers with agent-send, each of \
                     its checks takes 200 ms",
                    section.name
                );
                self.note(line, text);
            }
        }
    }
}
