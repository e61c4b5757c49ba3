//! A scenario's section of the report, in Markdown with text charts, so that changes show in a diff.

use std::fmt::Write;

use crate::{
    scenario::Scenario,
    summary::{PolicySummary, Summary},
};

/// Points of a chart.
const POINTS: usize = 30;

fn figure(run: &PolicySummary, name: &str, digits: usize) -> String {
    let Some(Some(value)) = run.figures.get(name).copied() else {
        return "–".to_owned();
    };
    let width = run.interval_90.get(name);
    let shown = |value: f64| {
        if digits == 0 {
            thousands(value)
        } else {
            format!("{value:.digits$}")
        }
    };
    match width {
        Some(width) => format!("{} ± {}", shown(value), shown(*width)),
        None => shown(value),
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut shown = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) && digit.is_ascii_digit() {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

fn percent(run: &PolicySummary, name: &str) -> String {
    match run.figures.get(name) {
        Some(Some(value)) => format!("{:.1} %", 100.0 * value),
        _ => "–".to_owned(),
    }
}

/// Means of as many seconds as make about [`POINTS`] points.
fn points(series: &[Option<f64>]) -> Vec<f64> {
    let each = series.len().div_ceil(POINTS).max(1);
    let mean = |chunk: &[Option<f64>]| {
        let known: Vec<f64> = chunk.iter().flatten().copied().collect();
        known.iter().sum::<f64>() / known.len().max(1) as f64
    };
    series.chunks(each).map(mean).collect()
}

fn chart(
    out: &mut String,
    summary: &Summary,
    title: &str,
    unit: &str,
    series: &str,
    digits: usize,
) -> std::fmt::Result {
    let most = summary
        .runs
        .iter()
        .flat_map(|run| points(&run.series[series]))
        .fold(0.0, f64::max);
    if most <= 0.0 {
        return Ok(());
    }
    let names: Vec<&str> = summary.runs.iter().map(|run| run.policy.as_str()).collect();
    writeln!(
        out,
        "{title}; the lines are, in order, {}.\n",
        names.join(", ")
    )?;
    writeln!(
        out,
        "```mermaid\nxychart-beta\n    x-axis \"seconds\" 0 --> {:.0}",
        summary.measured_to_s
    )?;
    writeln!(out, "    y-axis \"{unit}\" 0 --> {:.digits$}", most * 1.05)?;
    for run in &summary.runs {
        let values: Vec<String> = points(&run.series[series])
            .iter()
            .map(|value| format!("{value:.digits$}"))
            .collect();
        writeln!(out, "    line [{}]", values.join(", "))?;
    }
    writeln!(out, "```\n")
}

/// Timely items/s of each phase of the load.
fn phases(out: &mut String, summary: &Summary) -> std::fmt::Result {
    let Some(first) = summary.runs.first() else {
        return Ok(());
    };
    write!(
        out,
        "Timely items/s in each phase, from 5 s after its begin:\n\n| policy |"
    )?;
    for phase in &first.phases {
        match phase.load {
            Some(load) => write!(out, " load {load} |")?,
            None => write!(out, " {:.0}–{:.0} s |", phase.from_s, phase.to_s)?,
        }
    }
    writeln!(out, "\n|---|{}", "---|".repeat(first.phases.len()))?;
    for run in &summary.runs {
        let cells: Vec<String> = run
            .phases
            .iter()
            .map(|phase| thousands(phase.timely_items_per_s))
            .collect();
        writeln!(out, "| {} | {} |", run.policy, cells.join(" | "))?;
    }
    out.push('\n');
    Ok(())
}

/// Table of the updates: rates, and ages of data.
fn updates(out: &mut String, summary: &Summary) -> std::fmt::Result {
    out.push_str(
        "| policy | updates/s | age when read, s | longest period, s |\n|---|---|---|---|\n",
    );
    for run in &summary.runs {
        writeln!(
            out,
            "| {} | {} | {} | {} |",
            run.policy,
            figure(run, "updates_per_s", 0),
            figure(run, "age_at_access_s", 2),
            figure(run, "longest_period_s", 2),
        )?;
    }
    out.push('\n');
    Ok(())
}

/// Section of one scenario.
pub fn section(scenario: &Scenario, summary: &Summary) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(out, "## {}\n\n{}\n", scenario.name, scenario.about.trim())?;
    let clients = match summary.clients {
        0 => "open arrivals".to_owned(),
        count => format!("{} clients", thousands(f64::from(count))),
    };
    let count =
        |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    writeln!(
        out,
        "{clients}, {}, {}, {:.0} s, {}; SLA {} s; measured from {:.0} s on.\n",
        count(summary.nodes, "node"),
        count(summary.proxies as usize, "proxy").replace("proxys", "proxies"),
        summary.measured_to_s,
        count(summary.seeds as usize, "seed"),
        summary.sla_seconds,
        summary.measured_from_s,
    )?;
    out.push_str("| policy | timely items/s | total items/s | timely of ideal | mean s | p95 s | p99 s | overshoot s | settling s | refused | failed |\n");
    out.push_str("|---|---|---|---|---|---|---|---|---|---|---|\n");
    for run in &summary.runs {
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            run.policy,
            figure(run, "timely_items_per_s", 0),
            figure(run, "total_items_per_s", 0),
            percent(run, "timely_of_ideal"),
            figure(run, "mean_delay_s", 2),
            figure(run, "p95_delay_s", 2),
            figure(run, "p99_delay_s", 2),
            figure(run, "overshoot_s", 2),
            figure(run, "settling_s", 0),
            percent(run, "refused_fraction"),
            percent(run, "error_fraction"),
        )?;
    }
    out.push('\n');
    if scenario.updates.is_some() {
        updates(&mut out, summary)?;
    }
    if summary.runs.iter().any(|run| run.phases.len() > 1) {
        phases(&mut out, summary)?;
    }
    chart(
        &mut out,
        summary,
        "Timely items/s",
        "items/s",
        "timely_items_per_s",
        0,
    )?;
    chart(
        &mut out,
        summary,
        "Mean delay of what was answered",
        "s",
        "mean_delay_s",
        2,
    )?;
    if scenario.updates.is_some() {
        chart(
            &mut out,
            summary,
            "Mean age of temporal data when they are read",
            "s",
            "age_at_access_s",
            2,
        )?;
    }
    Ok(out)
}
