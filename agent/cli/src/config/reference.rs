//! The reference of every key, from the same names the parser knows.

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
    "The agent as a whole.",
    &[
        (
            "period",
            "duration, 10ms to 1day",
            "`\"1s\"`",
            "Sampling period *P*: one controller step in each.",
        ),
        (
            "jitter",
            "0 to 0.5",
            "`0.05`",
            "Share of the period each one is moved by at random, so that agents do not act in step.",
        ),
        (
            "log_level",
            "`error`, `warn`, `info`, `debug`, `trace`",
            "`\"info\"`",
            "Least severe level that is logged, to standard error.",
        ),
        (
            "log_format",
            "`text`, `json`",
            "`\"text\"`",
            "How log lines look. Needs a restart to change.",
        ),
        (
            "state_directory",
            "path",
            "none",
            "Keeps drains, operators' overrides and what was learned of the node over a restart; what was learned is dropped when it is 30 days old. Needs a restart to change.",
        ),
    ],
);

const HTTP: TableReference = (
    "[http]",
    "What it answers: docs/http-api.md.",
    &[
        (
            "listen",
            "IP:port",
            "`\"127.0.0.1:9464\"`",
            "Needs a restart to change.",
        ),
        (
            "allow",
            "1 to 256 of network or address, as `192.0.2.0/24`",
            "all",
            "Who may connect, and to `envoy.orca_listen`; loopback, too, only where it is named. Others are closed at once and counted.",
        ),
        (
            "token_file",
            "path",
            "none",
            "File with a token of every role, as `[http.tokens]` `write_file`; both are accepted if both are given. Without any token whoever reaches `listen` can take shares of every node's bound, and ask the partitions' queries.",
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

/// Of every table, in the order of the reference.
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
         TOML, read by `plimsoll agent --config FILE`, checked by `--check-config`, tried on this machine by `--check-config --probe`, read again on SIGHUP. \
         Unknown keys and impossible values are refused with file, line and key, and on a reload the old \
         configuration stays, as it does where the new one needs a restart. Durations look like `250ms`, `1s`, `1m 30s`. `localhost` is 127.0.0.1 to listen on, and 127.0.0.1 and ::1 to connect to. \
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

    /// Configurations that have every table between them, each of them once.
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
