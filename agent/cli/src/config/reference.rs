//! The reference of all keys, generated from the names the parser knows.

use plimsoll_node::{control_loop, placement, ring};
use plimsoll_outputs::{agent_check, envoy};
use plimsoll_scatter::partition;
use plimsoll_settings::{SERVER_TLS_REFERENCE, TLS_REFERENCE, TOKENS_REFERENCE, TableReference};
use plimsoll_signal::{
    health_probe, host_load, jobs, role,
    sources::{self, log_lines},
    updates,
};

const AGENT: TableReference = (
    "[agent]",
    "Settings of the whole agent.",
    &[
        (
            "period",
            "duration, 10ms to 1day",
            "`\"1s\"`",
            "Sampling period *P*; the controller makes one step per period.",
        ),
        (
            "jitter",
            "0 to 0.5",
            "`0.05`",
            "Fraction of the period by which each one is randomly shifted, so that agents do not act in lockstep.",
        ),
        (
            "log_level",
            "`error`, `warn`, `info`, `debug`, `trace`",
            "`\"info\"`",
            "Least severe level that is logged. Logs go to standard error.",
        ),
        (
            "log_format",
            "`text`, `json`",
            "`\"text\"`",
            "Format of log lines. Needs a restart to change.",
        ),
        (
            "state_directory",
            "path",
            "none",
            "Directory that keeps drains, operators' overrides and learned values across restarts; learned values expire after 30 days. Needs a restart to change.",
        ),
    ],
);

const HTTP: TableReference = (
    "[http]",
    "The HTTP server; its endpoints are in docs/http-api.md.",
    &[
        (
            "listen",
            "IP:port",
            "`\"127.0.0.1:9464\"`",
            "Needs a restart to change.",
        ),
        (
            "allow",
            "1 to 256 networks or addresses, such as `192.0.2.0/24`",
            "all",
            "Who may connect here and to `envoy.orca_listen`; loopback must be listed, too. Other connections are closed at once and counted.",
        ),
        (
            "token_file",
            "path",
            "none",
            "File with a token for every role, like `write_file` in `[http.tokens]`; if both are set, both tokens are accepted. Without any token, anyone who can reach `listen` can take shares of every node's bound and query the partitions.",
        ),
    ],
);

const CONTROL: TableReference = (
    "[control]",
    "Operators' overrides (`plimsoll node`).",
    &[(
        "socket",
        "path",
        "none",
        "Unix socket, mode 0660. Needs a restart to change.",
    )],
);

/// All tables, in the order of the reference.
fn tables() -> Vec<TableReference> {
    let before = [
        AGENT,
        HTTP,
        TOKENS_REFERENCE,
        SERVER_TLS_REFERENCE,
        agent_check::REFERENCE,
        CONTROL,
        TLS_REFERENCE,
        ring::REDIS_REFERENCE,
        placement::REFERENCE,
        envoy::REFERENCE,
        control_loop::SERVICE_REFERENCE,
        control_loop::SLA_REFERENCE,
        control_loop::BOUND_REFERENCE,
        control_loop::CONTROLLER_REFERENCE,
        control_loop::RULES_REFERENCE,
        control_loop::OUTPUT_REFERENCE,
    ];
    let after = [
        jobs::REFERENCE,
        host_load::REFERENCE,
        health_probe::REFERENCE,
        ring::RING_REFERENCE,
        updates::REFERENCE,
        role::REFERENCE,
        partition::REFERENCE,
    ];
    [&before[..], &sources::REFERENCE, &after].concat()
}

/// The whole reference.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Agent configuration\n\n\
         Written by `plimsoll config-reference`; change it there.\n\n\
         TOML, read by `plimsoll agent --config FILE`, validated by `--check-config`, tested on this machine by \
         `--check-config --probe`, and read again on SIGHUP. Unknown keys and invalid values are rejected with \
         file, line and key. If a reload is rejected, or would need a restart, the old configuration stays in \
         force. Durations look like `250ms`, `1s`, `1m 30s`. `localhost` means 127.0.0.1 for listening, and \
         127.0.0.1 and ::1 for connecting. \
         `agent/cli/packaging/agent.toml` is an annotated example.\n",
    );
    text.push_str(&plimsoll_settings::markdown(&tables()));
    text.push_str(&log_lines());
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;
    use plimsoll_settings::expected;

    fn known(table: &str) -> Vec<String> {
        let service = "[[service]]\nname = \"s\"\n";
        let text = match (table, table.split_once("] ")) {
            // A table whose keys depend on its kind, which is read once the others are.
            (_, Some((table, kind))) => {
                format!("{service}sla.delay = \"1s\"\n{table}]\n{kind}\nzzz = 1\n")
            }
            ("[[service]]", _) => format!("{service}zzz = 1\n"),
            _ if table.starts_with("[service.") => format!("{service}{table}\nzzz = 1\n"),
            _ => format!("{table}\nzzz = 1\n"),
        };
        let error = Config::parse(Path::new("x"), &text)
            .map(|_| ())
            .map_err(|e| e.to_string());
        let error = error.err().unwrap_or_default();
        match error.ends_with("missing field `kind`") {
            true => vec!["kind".to_owned()],
            false => expected(&error),
        }
    }

    #[test]
    fn has_every_key_and_no_other() {
        for (table, _, rows) in tables() {
            let mut documented: Vec<_> = rows.iter().map(|row| row.0.to_owned()).collect();
            let within = format!("[{}.", table.trim_matches(['[', ']']));
            let inner = tables().into_iter();
            let inner =
                inner.filter_map(|(name, ..)| name.strip_prefix(&within)?.strip_suffix(']'));
            documented.extend(inner.map(str::to_owned));
            documented.sort();
            assert_eq!(documented, known(table), "{table}");
        }
    }

    /// Configurations that together contain every table exactly once.
    const COMPLETE: [&str; 4] = [
        r#"[agent]
        [http]
        [http.tokens]
        [agent_check]
        [redis]
        urls = ["redis://192.0.2.5:6379"]
        [placement]
        cluster = "c"
        [envoy]
        [[service]]
        name = "s"
        [service.sla]
        delay = "1s"
        [service.bound]
        nominal = 64
        [service.controller]
        kind = "pi"
        [service.rules]
        [service.output]
        [service.source]
        kind = "prometheus"
        url = "http://127.0.0.1:8001/metrics"
        histogram = "d"
        [service.jobs]
        kind = "postgresql"
        address = "127.0.0.1:5432"
        user = "u"
        [service.load]
        [service.health]
        kind = "tcp"
        address = "127.0.0.1:8001"
        [service.ring]
        cluster = "c"
        node = "n"
        [service.updates]
        url = "http://127.0.0.1:8001/accesses"
        [service.role]
        address = "127.0.0.1:5432"
        user = "u"
        "#,
        r#"[redis]
        urls = ["redis://192.0.2.5:26379"]
        mode = "sentinel"
        [[service]]
        name = "s"
        [service.sla]
        delay = "1s"
        [service.bound]
        nominal = 64
        [service.controller]
        kind = "proportional"
        [service.source]
        kind = "haproxy-log"
        listen = "udp://127.0.0.1:5514"
        node = "b/s"
        [service.jobs]
        kind = "sockets"
        port = 8001
        "#,
        r#"[[service]]
        name = "s"
        [service.sla]
        delay = "1s"
        [service.controller]
        [service.source]
        kind = "haproxy-log"
        listen = "udp://127.0.0.1:5514"
        node = "b/s"
        [service.jobs]
        kind = "prometheus"
        url = "http://127.0.0.1:8001/metrics"
        gauge = "g"
        "#,
        r#"[[service]]
        name = "s"
        [service.sla]
        delay = "1s"
        [service.source]
        kind = "partitions"
        [[partition]]
        name = "p"
        address = "127.0.0.1:5432"
        user = "u"
        database = "d"
        [partition.queries]
        q = "SELECT 1"
        "#,
    ];

    fn parsed(text: &str) -> Result<String, String> {
        Config::parse(Path::new("x"), text)
            .map(|config| format!("{config:?}"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn documented_defaults_are_those_in_force() {
        let without = COMPLETE.map(parsed);
        assert!(without.iter().all(Result::is_ok), "{without:?}");
        for (table, _, rows) in tables() {
            let (table, _) = table.split_once(" kind").unwrap_or((table, ""));
            for (key, _, default, _) in rows {
                let literal = default
                    .strip_prefix('`')
                    .and_then(|rest| rest.split('`').next());
                let Some(literal) = literal else {
                    continue;
                };
                let line = format!("{table}\n{key} = {literal}\n");
                let outcomes: Vec<_> = COMPLETE
                    .iter()
                    .zip(&without)
                    .filter(|(text, _)| text.contains(table))
                    .map(|(text, default)| {
                        let with = parsed(&text.replacen(table, &line, 1));
                        (with == *default)
                            .then_some(())
                            .ok_or_else(|| format!("{with:?}, without it {default:?}"))
                    })
                    .collect();
                assert!(
                    outcomes.iter().any(Result::is_ok),
                    "{table} {key} = {literal}: {outcomes:#?}"
                );
            }
        }
    }
}
