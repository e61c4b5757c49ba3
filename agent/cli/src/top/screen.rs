//! The terminal: redrawn at each snapshot and resize, restored however the command ends.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::Receiver,
    },
    time::Duration,
};

use anyhow::Context;
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout},
    style::{Color, Modifier, Style},
    text::Line,
    widgets::{Row as Cells, Table, TableState},
};

use super::{
    snapshot::{Row, Snapshot},
    table::{COLUMNS, cells, widths},
};

/// Interval at which key presses and new snapshots are looked for.
const LOOK: Duration = Duration::from_millis(100);
/// Spaces between columns.
const SPACING: usize = 2;
/// Fraction of the SLA's delay from which a row is highlighted.
const CLOSE: f64 = 0.9;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Given,
    Load,
    Jobs,
}

/// Draws snapshots until a key press or a signal ends it.
pub fn show(snapshots: &Receiver<Snapshot>, ended: &AtomicBool) -> anyhow::Result<()> {
    let mut terminal = ratatui::try_init().context("cannot take over the terminal")?;
    let shown = run(&mut terminal, snapshots, ended);
    ratatui::restore();
    shown.context("the terminal was closed")
}

fn run(
    terminal: &mut DefaultTerminal,
    snapshots: &Receiver<Snapshot>,
    ended: &AtomicBool,
) -> std::io::Result<()> {
    let (mut seen, mut order, mut chosen) = (None, Order::Given, TableState::default());
    loop {
        terminal.draw(|frame| draw(frame, seen.as_ref(), order, &mut chosen))?;
        loop {
            if ended.load(Ordering::Relaxed) {
                return Ok(());
            }
            if event::poll(LOOK)? {
                match event::read()? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => {
                        if is_end(key) {
                            return Ok(());
                        }
                        turn(key.code, &mut order, &mut chosen);
                        break;
                    }
                    Event::Resize(..) => break,
                    _ => {}
                }
            }
            if let Some(newest) = snapshots.try_iter().last() {
                seen = Some(newest);
                break;
            }
        }
    }
}

fn is_end(key: KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c' | 'd') => control,
        _ => false,
    }
}

fn turn(key: KeyCode, order: &mut Order, chosen: &mut TableState) {
    match key {
        KeyCode::Up | KeyCode::Char('k') => chosen.select_previous(),
        KeyCode::Down | KeyCode::Char('j') => chosen.select_next(),
        KeyCode::Home => chosen.select_first(),
        KeyCode::End => chosen.select_last(),
        KeyCode::PageUp => chosen.scroll_up_by(10),
        KeyCode::PageDown => chosen.scroll_down_by(10),
        KeyCode::Char('s') => {
            *order = match order {
                Order::Given => Order::Load,
                Order::Load => Order::Jobs,
                Order::Jobs => Order::Given,
            }
        }
        _ => {}
    }
}

fn draw(frame: &mut Frame, seen: Option<&Snapshot>, order: Order, chosen: &mut TableState) {
    let silent = seen.map_or(0, |seen| seen.silent.len());
    let most_silent = u16::try_from(silent).unwrap_or(u16::MAX).min(5);
    let parts = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(2),
        Constraint::Length(most_silent),
        Constraint::Length(1),
    ]);
    let [head, body, below, foot] = parts.areas(frame.area());
    frame.render_widget(Line::from(title(seen)), head);
    if let Some(seen) = seen {
        let mut rows: Vec<&Row> = seen.rows.iter().collect();
        let by = |value: fn(&Row) -> Option<f64>| {
            move |a: &&Row, b: &&Row| {
                let key = |row: &Row| value(row).unwrap_or(-1.0);
                key(b).total_cmp(&key(a))
            }
        };
        match order {
            Order::Given => {}
            Order::Load => rows.sort_by(by(Row::load)),
            Order::Jobs => rows.sort_by(by(|row| row.jobs)),
        }
        let all: Vec<_> = rows.iter().map(|row| cells(row)).collect();
        let widths = widths(&all);
        let fitting = fitting(&widths, usize::from(body.width));
        let lines = rows.iter().zip(&all).map(|(row, cells)| {
            let aligned = COLUMNS
                .iter()
                .zip(cells)
                .take(fitting)
                .map(|((_, right), cell)| {
                    let line = Line::raw(cell.clone());
                    if *right { line.right_aligned() } else { line }
                });
            Cells::new(aligned).style(style(row))
        });
        let names = COLUMNS.iter().take(fitting).map(|(name, right)| {
            let line = Line::raw(*name);
            if *right { line.right_aligned() } else { line }
        });
        let header = Cells::new(names).style(Style::new().add_modifier(Modifier::BOLD));
        let widths = widths.iter().take(fitting);
        let table = Table::new(lines, widths.map(|width| Constraint::Length(*width as u16)))
            .header(header)
            .column_spacing(SPACING as u16)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(table, body, chosen);
        let silent = seen.silent.iter().take(usize::from(most_silent));
        let told: Vec<Line> = silent
            .map(|(agent, problem)| Line::styled(format!("{agent}: {problem}"), Color::Red))
            .collect();
        frame.render_widget(ratatui::text::Text::from(told), below);
    }
    let order = match order {
        Order::Given => "as given",
        Order::Load => "by delay of SLA",
        Order::Jobs => "by jobs",
    };
    frame.render_widget(
        Line::raw(format!("q quit   s sort ({order})   arrows move")),
        foot,
    );
}

/// Number of columns, from the left, that fit on a line.
fn fitting(widths: &[usize], most: usize) -> usize {
    let mut end = 0;
    let fits = |width: &&usize| {
        end += **width + SPACING;
        end <= most + SPACING
    };
    widths.iter().take_while(fits).count().max(1)
}

fn title(seen: Option<&Snapshot>) -> String {
    let Some(seen) = seen else {
        return "plimsoll top: querying the agents".to_owned();
    };
    let late = seen
        .rows
        .iter()
        .filter(|row| row.load() > Some(1.0))
        .count();
    let is_out = |row: &&Row| matches!(row.standing, "down" | "drain");
    let out = seen.rows.iter().filter(is_out).count();
    format!(
        "plimsoll top: {} nodes, {late} over the SLA, {out} down or drained, {} agents silent",
        seen.rows.len(),
        seen.silent.len()
    )
}

fn style(row: &Row) -> Style {
    let late = row.load().unwrap_or(0.0);
    if row.standing == "down" || late > 1.0 {
        Style::new().fg(Color::Red)
    } else if row.standing == "drain" || row.problem.is_some() || late > CLOSE {
        Style::new().fg(Color::Yellow)
    } else {
        Style::new()
    }
}
