//! `plimsoll identify`: how a node's delay follows its backlog, from a trace or a live agent.

mod record;
mod report;
mod trace;

use std::{io::Write, path::PathBuf, time::Duration};

use anyhow::bail;
use clap::Args;
use plimsoll_net::{HttpUrl, http_or_https_url};
use plimsoll_science::identify;

use crate::caller_args::CallerArgs;
use report::Report;
use trace::Columns;

const MIN_RECORDING: Duration = Duration::from_secs(1);
const MAX_RECORDING: Duration = Duration::from_secs(24 * 3600);

/// Arguments of `plimsoll identify`.
#[derive(Args, Clone, Debug)]
pub struct IdentifyArgs {
    /// Trace: CSV with a header line, then one line per period; `-` reads standard input.
    #[arg(value_name = "FILE", required_unless_present = "record")]
    trace: Option<PathBuf>,
    /// Record a trace from this agent instead.
    #[arg(long, value_name = "URL", value_parser = http_or_https_url, conflicts_with = "trace")]
    record: Option<HttpUrl>,
    /// Service to record, if the agent has several.
    #[arg(long, value_name = "NAME", requires = "record")]
    service: Option<String>,
    /// Duration of the recording, 1s to 24h.
    #[arg(
        long = "for",
        value_name = "TIME",
        default_value = "10m",
        value_parser = lasting
    )]
    lasting: Duration,
    /// Also save the recorded trace to this file, as CSV.
    #[arg(long, value_name = "FILE", requires = "record")]
    save: Option<PathBuf>,
    /// Column with the times, in seconds.
    #[arg(long, value_name = "COLUMN", default_value = "time")]
    time: String,
    /// Column with the service delays, in seconds.
    #[arg(long, value_name = "COLUMN", default_value = "delay")]
    delay: String,
    /// Column with the load that causes the delay: a backlog, a queue length, an MPL.
    #[arg(long, value_name = "COLUMN", default_value = "backlog")]
    load: String,
    /// Column with the number of finished requests; the delay is ignored where it is 0.
    #[arg(long, value_name = "COLUMN")]
    finished: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    caller: CallerArgs,
}

fn lasting(text: &str) -> Result<Duration, String> {
    let lasting = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match (MIN_RECORDING..=MAX_RECORDING).contains(&lasting) {
        true => Ok(lasting),
        false => Err("must be from 1s to 24h".to_owned()),
    }
}

/// Runs the command.
pub fn run(args: IdentifyArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let columns = Columns {
        time: args.time,
        delay: args.delay,
        load: args.load,
        finished: args.finished,
    };
    let trace = match (&args.record, &args.trace) {
        (Some(url), _) => {
            let recorded = record::record(
                &args.caller.caller([url])?,
                url,
                args.service.as_deref(),
                args.lasting,
                args.save.as_deref(),
            )?;
            trace::read(recorded.as_bytes(), "the recording", &columns)?
        }
        (None, Some(path)) if path.as_os_str() == "-" => {
            trace::read(std::io::stdin().lock(), "standard input", &columns)?
        }
        (None, Some(path)) => trace::open(path, &columns)?,
        (None, None) => bail!("a trace or --record is required"),
    };
    let found = identify(&trace.segments)?;
    let report = Report::new(&trace, &columns.load, &found);
    match args.json {
        true => {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            writeln!(out)?;
        }
        false => out.write_all(report.text().as_bytes())?,
    }
    if report.chosen.is_none() {
        bail!("no usable model: {}", report.why);
    }
    Ok(())
}
