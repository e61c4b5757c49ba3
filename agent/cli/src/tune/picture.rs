//! The step response, drawn as text and as SVG.

use std::fmt::Write;

use plimsoll_science::{SETTLED, Step};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    symbols::Marker,
    widgets::{Axis, Chart, Dataset, GraphType, Widget},
};

use super::report::Report;

/// Columns and rows on a terminal.
const COLUMNS: u16 = 76;
const ROWS: u16 = 16;
/// Size of the SVG in pixels; the margin holds the axis labels.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const MARGIN: f64 = 44.0;

/// The part worth showing: until it has settled, and a little more.
fn shown(step: &Step) -> &[f64] {
    let periods = (step.settling_periods * 3 / 2).max(10);
    &step.delay[..periods.min(step.delay.len())]
}

/// The highest value on the vertical axis.
fn highest(step: &Step) -> f64 {
    (1.0 + step.overshoot).max(1.1)
}

fn lowest(step: &Step) -> f64 {
    shown(step)
        .iter()
        .fold(0.0, |least, value| value.min(least))
}

/// The plot as lines of text.
pub fn terminal(step: &Step) -> String {
    let delay: Vec<(f64, f64)> = shown(step)
        .iter()
        .enumerate()
        .map(|(k, s)| (k as f64, *s))
        .collect();
    let last = (delay.len() - 1) as f64;
    let target = [(0.0, 1.0), (last, 1.0)];
    let line = |data, marker| {
        Dataset::default()
            .data(data)
            .marker(marker)
            .graph_type(GraphType::Line)
    };
    let (low, high) = (lowest(step), highest(step));
    let chart = Chart::new(vec![
        line(&target, Marker::Dot),
        line(&delay, Marker::Braille),
    ])
    .x_axis(
        Axis::default()
            .bounds([0.0, last])
            .labels(["0".to_owned(), format!("{last}")]),
    )
    .y_axis(
        Axis::default()
            .bounds([low, high])
            .labels([format!("{low:.2}"), format!("{high:.2}")]),
    );
    let area = Rect::new(0, 0, COLUMNS, ROWS);
    let mut buffer = Buffer::empty(area);
    chart.render(area, &mut buffer);
    let row = |y| {
        let cells = (0..COLUMNS).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    (0..ROWS).map(row).collect()
}

/// The plot as a stand-alone SVG: delay, target, settling band and the SLA's limits.
pub fn svg(step: &Step, report: &Report) -> String {
    let delay = shown(step);
    let last = (delay.len() - 1) as f64;
    let allowed = 1.0 + report.allowed_overshoot();
    let (low, high) = (lowest(step), highest(step).max(allowed) * 1.05);
    let x = |period: f64| MARGIN + period / last * (WIDTH - 2.0 * MARGIN);
    let y = |value: f64| HEIGHT - MARGIN - (value - low) / (high - low) * (HEIGHT - 2.0 * MARGIN);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>Delay after a step of the target from 0 to 1</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let right = WIDTH - MARGIN;
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "<rect x=\"{MARGIN}\" width=\"{:.1}\" y=\"{:.1}\" height=\"{:.1}\" fill=\"#dfd\"/>",
        right - MARGIN,
        y(1.0 + SETTLED),
        y(1.0 - SETTLED) - y(1.0 + SETTLED)
    );
    let mut level = |value: f64, style: &str, name: &str| {
        let at = y(value);
        let _ = writeln!(
            text,
            "<path d=\"M{MARGIN} {at:.1}H{right}\" stroke=\"{style}\" fill=\"none\"/>\n\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
            MARGIN - 4.0,
            at + 4.0
        );
    };
    level(low, "black", &format!("{low:.1}"));
    level(1.0, "#080\" stroke-dasharray=\"6 4", "1");
    level(allowed, "#c00\" stroke-dasharray=\"6 4", "S_v");
    let allowed_periods = report.allowed_periods();
    if allowed_periods <= last {
        let at = x(allowed_periods);
        let _ = writeln!(
            text,
            "<path d=\"M{at:.1} {MARGIN}V{:.1}\" stroke=\"#c00\" stroke-dasharray=\"6 4\"/>\n\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">T_v</text>",
            HEIGHT - MARGIN,
            MARGIN - 6.0
        );
    }
    for (period, anchor) in [(0.0, "start"), (last, "end")] {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{period}</text>",
            x(period),
            HEIGHT - MARGIN + 18.0
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">periods</text>",
        WIDTH / 2.0,
        HEIGHT - MARGIN + 18.0
    );
    let points: Vec<String> = delay
        .iter()
        .enumerate()
        .map(|(k, s)| format!("{:.1},{:.1}", x(k as f64), y(*s)))
        .collect();
    let _ = writeln!(
        text,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#06c\" stroke-width=\"2\"/>\n</svg>",
        points.join(" ")
    );
    text
}
