//! `plimsoll placement`: inspects and changes the placement table.

use std::{io::Write, time::Duration};

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use plimsoll_core::placement::ObjectSet;
use plimsoll_net::{HttpUrl, get_as, post_as};
use plimsoll_wire::{PlacementMessage, PlacementOperation, PlacementView};
use serde_json::Value;

use crate::caller_args::CallerArgs;

const TIMEOUT: Duration = Duration::from_secs(5);
/// Larger than an answer with thousands of dispatchers.
const MAX_BODY: usize = 4 << 20;

/// Arguments of `plimsoll placement`.
#[derive(Args, Debug)]
pub struct PlacementArgs {
    /// Command to run.
    #[command(subcommand)]
    command: PlacementCommand,
}

/// Commands of `plimsoll placement`.
#[derive(Debug, Subcommand)]
enum PlacementCommand {
    /// Show the state of the table: its keeper, the number of object sets per node, its dispatchers.
    Show(Where),
    /// Move an object set, =NAME or *N for one of the rests. Pinned sets do not move, and a later plan may move it
    /// again.
    Move {
        /// Object set to move.
        set: ObjectSet,
        /// Destination node.
        node: String,
        #[command(flatten)]
        at: Where,
    },
    /// Declare a dispatcher dead. Only for one that has really stopped, since it may still send requests otherwise.
    Forget {
        /// Id of the dispatcher, as printed by `show`.
        id: String,
        #[command(flatten)]
        at: Where,
    },
}

/// The agent to query.
#[derive(Args, Debug)]
struct Where {
    /// HTTP address of an agent with [placement].
    #[arg(
        long,
        env = "PLIMSOLL_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:9464"
    )]
    url: String,
    #[command(flatten)]
    caller: CallerArgs,
}

/// Runs the command.
pub fn run(args: PlacementArgs, out: &mut impl Write) -> anyhow::Result<()> {
    match args.command {
        PlacementCommand::Show(at) => {
            let shown = PlacementView::parse(&ask(&at, None)?);
            let shown = shown.map_err(|it| anyhow!("not an answer of /v1/placement: {it}"))?;
            show(&shown, out)
        }
        PlacementCommand::Move { set, node, at } => {
            let message = PlacementMessage {
                set: set.to_string(),
                node: node.clone(),
                ..PlacementMessage::new(PlacementOperation::Move)
            };
            ask(&at, Some(&message))?;
            Ok(writeln!(out, "asked the keeper to move {set} to {node}")?)
        }
        PlacementCommand::Forget { id, at } => {
            let message = PlacementMessage {
                id: id.clone(),
                ..PlacementMessage::new(PlacementOperation::Forget)
            };
            ask(&at, Some(&message))?;
            Ok(writeln!(out, "{id} forgotten")?)
        }
    }
}

fn ask(at: &Where, message: Option<&PlacementMessage>) -> anyhow::Result<Vec<u8>> {
    let url = format!("{}/v1/placement", at.url.trim_end_matches('/'));
    let parsed: HttpUrl = url
        .parse()
        .map_err(|problem: String| anyhow!("--url: {problem}"))?;
    let caller = at.caller.caller([&parsed])?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (status, answer) = match message {
        None => runtime.block_on(get_as(&caller, &parsed, TIMEOUT, MAX_BODY))?,
        Some(message) => {
            let body = serde_json::to_string(message)?;
            runtime.block_on(post_as(&caller, &parsed, body, TIMEOUT, MAX_BODY))?
        }
    };
    if status != 200 {
        let problem = serde_json::from_slice::<Value>(&answer).ok();
        let problem = problem.as_ref().and_then(|it| it["problem"].as_str());
        let text = String::from_utf8_lossy(&answer);
        bail!("{url}: {}", problem.unwrap_or(text.trim()));
    }
    Ok(answer.to_vec())
}

fn show(shown: &PlacementView, out: &mut impl Write) -> anyhow::Result<()> {
    let PlacementView {
        cluster,
        version,
        named,
        epoch,
        ..
    } = shown;
    let keeper = shown.keeper.as_deref().unwrap_or("none");
    writeln!(
        out,
        "cluster {cluster}, version {version}, {named} named sets"
    )?;
    writeln!(out, "keeper {keeper}, epoch {epoch}")?;
    if *version == 0 {
        writeln!(out, "no table yet")?;
    }
    if shown.open_in_seconds > 0.0 {
        writeln!(
            out,
            "in force in {:.0} s; no request is admitted before",
            shown.open_in_seconds
        )?;
    }
    if let Some(plan) = &shown.last_plan {
        writeln!(out, "last plan {plan}")?;
    }
    for (node, sets) in shown.nodes.iter().flatten() {
        writeln!(out, "node {node}\t{sets} sets")?;
    }
    if !shown.moving.is_empty() {
        writeln!(out, "moving {}", shown.moving.join(" "))?;
    }
    for dispatcher in &shown.dispatchers {
        let silent = if dispatcher.is_silent {
            ", silent: moves are blocked"
        } else {
            ""
        };
        writeln!(
            out,
            "dispatcher {}\tversion {}, heard {:.1} s ago{silent}",
            dispatcher.id, dispatcher.version, dispatcher.silent_seconds
        )?;
    }
    for gone in &shown.gone {
        writeln!(out, "gone {}\t{:.0} s ago", gone.id, gone.since_seconds)?;
    }
    Ok(())
}
