//! The rows as text in columns.

use super::snapshot::{Row, Snapshot};
use crate::node_command::ago;

/// Column names, and whether each is right-aligned.
pub const COLUMNS: [(&str, bool); 16] = [
    ("NODE", false),
    ("SERVICE", false),
    ("STATE", false),
    ("DELAY", true),
    ("SLA", true),
    ("OF SLA", true),
    ("BOUND", true),
    ("JOBS", true),
    ("CAPACITY", true),
    ("LEARNED", true),
    ("WEIGHT", true),
    ("RING", true),
    ("SHED", true),
    ("DONE/S", true),
    ("FAILED/S", true),
    ("BOUND'S REASON", false),
];

/// The cells of a row.
pub fn cells(row: &Row) -> [String; COLUMNS.len()] {
    let percent = |part: f64| format!("{:.0}%", 100.0 * part);
    let known = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    [
        row.node.clone(),
        row.service.clone(),
        row.standing.to_owned(),
        row.delay.map_or_else(|| "-".to_owned(), seconds),
        seconds(row.sla_delay),
        row.load().map_or_else(|| "-".to_owned(), percent),
        known(Some(row.bound_jobs), 1),
        known(row.jobs, 0),
        known(row.capacity, 1),
        learned(row),
        format!("{}%", row.weight_percent),
        row.ring
            .map_or_else(|| "-".to_owned(), |part| format!("{:.1}%", 100.0 * part)),
        percent(row.shed),
        known(row.finished, 1),
        known(row.failed, 1),
        reason(row),
    ]
}

/// The reason for the bound, or the problem; in observe mode also what the bound would refuse.
fn reason(row: &Row) -> String {
    let reason = row.problem.as_ref().unwrap_or(&row.reason);
    match row.would_refuse {
        Some(refused) => format!("{reason}, would refuse {refused:.1}/s"),
        None => reason.clone(),
    }
}

/// Age of the learned capacity; an asterisk marks one from before the agent's start.
fn learned(row: &Row) -> String {
    row.learned.map_or_else(
        || "-".to_owned(),
        |(age, earlier_run)| ago(age) + if earlier_run { "*" } else { "" },
    )
}

fn seconds(value: f64) -> String {
    match value {
        value if value < 1.0 => format!("{:.0} ms", 1e3 * value),
        value => format!("{value:.2} s"),
    }
}

/// Column widths.
pub fn widths(rows: &[[String; COLUMNS.len()]]) -> [usize; COLUMNS.len()] {
    let mut widths = COLUMNS.map(|(name, _)| name.len());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

/// The whole table, one line per row.
pub fn text(seen: &Snapshot) -> String {
    let rows: Vec<_> = seen.rows.iter().map(cells).collect();
    let widths = widths(&rows);
    let mut text = line(&COLUMNS.map(|(name, _)| name.to_owned()), &widths);
    for row in &rows {
        text += &line(row, &widths);
    }
    for (agent, problem) in &seen.silent {
        text += &format!("{agent}: {problem}\n");
    }
    text
}

fn line(cells: &[String; COLUMNS.len()], widths: &[usize; COLUMNS.len()]) -> String {
    let columns = COLUMNS.iter().zip(cells).zip(widths);
    let padded: Vec<String> = columns
        .map(|(((_, right), cell), width)| match right {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        })
        .collect();
    padded.join("  ").trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::snapshot::tests::row;

    #[test]
    fn a_row_reads_at_a_glance() {
        let cells = cells(&row());
        let wanted = [
            "192.0.2.11:8001",
            "stocks",
            "up",
            "750 ms",
            "500 ms",
            "150%",
            "64.0",
            "48",
            "61.5",
            "2 h*",
            "80%",
            "20.0%",
            "25%",
            "60.0",
            "1.0",
            "over_sla",
        ];
        assert_eq!(cells, wanted);
    }

    #[test]
    fn observe_mode_is_shown() {
        let observed = Row {
            standing: "observe",
            would_refuse: Some(2.54),
            ..row()
        };
        let cells = cells(&observed);
        assert_eq!(cells[2], "observe");
        assert_eq!(cells[15], "over_sla, would refuse 2.5/s");
    }

    #[test]
    fn agents_that_say_nothing_are_named() {
        let seen = Snapshot {
            rows: vec![row()],
            silent: vec![("node2:9464".to_owned(), "refused".to_owned())],
        };
        let text = text(&seen);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[0].find("SLA"),
            lines[1].find("500 ms").map(|at| at + 3)
        );
        assert_eq!(lines[2], "node2:9464: refused");
    }
}
