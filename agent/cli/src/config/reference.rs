//! The reference of all keys, from the types that read them.

use plimsoll_node::{
    control_loop::{
        BoundSection, ControllerSection, OutputSection, RulesSection, ServiceSection, SlaSection,
    },
    placement::PlacementSection,
    ring::{RedisSection, RingSection},
};
use plimsoll_outputs::{agent_check::AgentCheckSection, envoy::EnvoySection};
use plimsoll_scatter::partition::PartitionSection;
use plimsoll_settings::{
    HttpSection, ServerTlsSection, TableReference, TlsSection, TokensSection, table,
};
use plimsoll_signal::{
    health_probe::HealthSection,
    host_load::LoadSection,
    jobs,
    role::RoleSection,
    sources::{self, log_lines},
    updates::UpdatesSection,
};

use super::raw::{Agent, Control};

/// All tables, in the order of the reference.
fn tables() -> Vec<TableReference> {
    let mut tables = vec![
        table::<Agent>(),
        table::<HttpSection>(),
        table::<TokensSection>(),
        table::<ServerTlsSection>(),
        table::<AgentCheckSection>(),
        table::<Control>(),
        table::<TlsSection>(),
        table::<RedisSection>(),
        table::<PlacementSection>(),
        table::<EnvoySection>(),
        table::<ServiceSection>(),
        table::<SlaSection>(),
        table::<BoundSection>(),
        table::<ControllerSection>(),
        table::<RulesSection>(),
        table::<OutputSection>(),
    ];
    tables.extend(sources::reference());
    tables.extend(jobs::reference());
    tables.extend([
        table::<LoadSection>(),
        table::<HealthSection>(),
        table::<RingSection>(),
        table::<UpdatesSection>(),
        table::<RoleSection>(),
        table::<PartitionSection>(),
    ]);
    tables
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
    use plimsoll_settings::{KeyReference, expected};

    fn known(table: &str) -> (Vec<String>, String) {
        let service = "[[service]]\nname = \"s\"\n";
        let text = match (table, table.split_once("] ")) {
            // Its other keys are tables of their own, by kind.
            ("[service.source]" | "[service.jobs]", _) => {
                return (vec!["kind".to_owned()], String::new());
            }

            // A table whose keys depend on its kind, which is read once the others are.
            (_, Some((table, kinds))) => {
                let kind = kinds.split(" or ").next().unwrap_or(kinds);
                let source = match table {
                    "[service.source" => "",
                    _ => {
                        "source = { kind = \"haproxy-log\", listen = \"udp://127.0.0.1:5514\", node = \"b/n\" }\n"
                    }
                };
                format!("{service}sla.delay = \"1s\"\n{source}{table}]\n{kind}\nzzz = 1\n")
            }
            ("[[service]]", _) => format!("{service}zzz = 1\n"),
            _ if table.starts_with("[service.") => format!("{service}{table}\nzzz = 1\n"),
            _ => format!("{table}\nzzz = 1\n"),
        };
        let error = Config::parse(Path::new("x"), &text)
            .map(|_| ())
            .map_err(|e| e.to_string());
        let error = error.err().unwrap_or_default();
        (expected(&error), error)
    }

    #[test]
    fn has_every_key_and_no_other() {
        for TableReference { header, keys, .. } in tables() {
            let mut documented: Vec<_> = keys.into_iter().map(|row| row.key).collect();
            let within = format!("[{}.", header.trim_matches(['[', ']']));
            documented.extend(tables().iter().filter_map(|inner| {
                let inner = inner.header.strip_prefix(&within)?.strip_suffix(']')?;
                Some(inner.to_owned())
            }));
            documented.sort();
            let (known, error) = known(&header);
            assert_eq!(documented, known, "{header}: {error}");
        }
    }

    #[test]
    fn every_table_and_key_has_its_texts() {
        for table in tables() {
            assert!(!table.about.is_empty(), "{}", table.header);
            for row in &table.keys {
                let texts = [&row.values, &row.default, &row.meaning];
                let is_whole = texts.iter().all(|text| !text.is_empty());
                assert!(is_whole, "{}: {row:?}", table.header);
            }
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
        for TableReference { header, keys, .. } in tables() {
            let (table, _) = header.split_once(" kind").unwrap_or((&header, ""));
            for KeyReference { key, default, .. } in keys {
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
