//! `plimsoll node`: status and manual overrides of a running agent, over its control socket.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use plimsoll_outputs::control_socket::{Command, Force, Request, Response};
use serde_json::Value;

/// An agent that takes longer than this is in trouble.
const LIMIT: Duration = Duration::from_secs(5);
/// Upper limit of a response's size.
const MAX_RESPONSE: u64 = 16 << 20;

/// Inspect or override a running agent's node.
#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    /// The agent's control socket.
    #[arg(
        long,
        env = "PLIMSOLL_CONTROL_SOCKET",
        default_value = "/run/plimsoll/control.sock",
        value_name = "PATH",
        global = true
    )]
    pub socket: PathBuf,
    /// Limit the command to this service; all services otherwise.
    #[arg(long, env = "PLIMSOLL_SERVICE", value_name = "NAME", global = true)]
    pub service: Option<String>,
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum NodeCommand {
    /// Show bound, weight, health, overrides and the proxies that poll.
    Status {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Tell every proxy to send no new work, until `ready`.
    Drain,
    /// End a drain: every proxy that polls is told `ready` once.
    Ready,
    /// Override health, weight or bound, until `force auto`.
    Force {
        #[command(subcommand)]
        to: ForceCommand,
    },
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum ForceCommand {
    /// Healthy, whatever the probe reports.
    Up,
    /// Unhealthy: proxies remove the node at once.
    Down,
    /// A fixed weight.
    Weight {
        /// Percentage of the weight configured in HAProxy.
        #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
        percent: u16,
    },
    /// A fixed bound.
    Bound {
        /// Bound in cost units (requests if no cost is known), clamped to the service's limits.
        bound: f64,
    },
    /// Return to the probe and the controller.
    Auto,
}

/// Sends the command and prints the node.
pub fn run(args: NodeArgs) -> anyhow::Result<()> {
    let (command, to) = match args.command {
        NodeCommand::Status { .. } => (Command::Status, None),
        NodeCommand::Drain => (Command::Drain, None),
        NodeCommand::Ready => (Command::Ready, None),
        NodeCommand::Force { to } => (
            Command::Force,
            Some(match to {
                ForceCommand::Up => Force::Up,
                ForceCommand::Down => Force::Down,
                ForceCommand::Weight { percent } => Force::Weight(percent),
                ForceCommand::Bound { bound } => Force::Bound(bound),
                ForceCommand::Auto => Force::Auto,
            }),
        ),
    };
    let request = Request {
        command,
        service: args.service.clone(),
        to,
    };
    let response = exchange(&args.socket, &request).with_context(|| {
        format!(
            "agent at {} (--socket, PLIMSOLL_CONTROL_SOCKET)",
            args.socket.display()
        )
    })?;
    if !response.ok {
        bail!(
            "the agent refused: {}",
            response.error.as_deref().unwrap_or("no reason given")
        );
    }
    let node = response.node.context("the agent's answer has no node")?;
    let mut out = std::io::stdout().lock();
    let printed = if matches!(args.command, NodeCommand::Status { json: true }) {
        serde_json::to_string_pretty(&node)? + "\n"
    } else {
        table(&node, args.service.as_deref())
    };
    out.write_all(printed.as_bytes())?;
    Ok(())
}

/// Whether an agent answers at this socket.
pub fn answers(socket: &std::path::Path) -> bool {
    let request = Request {
        command: Command::Status,
        service: None,
        to: None,
    };
    exchange(socket, &request).is_ok()
}

fn exchange(socket: &std::path::Path, request: &Request) -> anyhow::Result<Response> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let mut text = serde_json::to_vec(request)?;
    text.push(b'\n');
    stream.write_all(&text)?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_RESPONSE)).read_line(&mut line)?;
    serde_json::from_str(&line).context("malformed answer")
}

fn table(node: &Value, only: Option<&str>) -> String {
    let mut text = String::new();
    let services = node["services"].as_object().into_iter().flatten();
    for (name, service) in services.filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        text.push_str(&format!("{name}\n"));
        for (key, value) in rows(service) {
            text.push_str(&format!("  {key:<9} {value}\n"));
        }
    }
    if text.is_empty() {
        text.push_str("no service has been stepped yet\n");
    }
    text
}

fn rows(service: &Value) -> Vec<(&'static str, String)> {
    let decision = &service["decision"];
    let detail = service["health_detail"]
        .as_str()
        .map(|d| format!(" ({d})"))
        .unwrap_or_default();
    let sla = &service["settings"]["sla"]["delay"];
    let jobs = number(&decision["bound_jobs"]);
    let observes = service["settings"]["mode"] == "observe";
    let mut rows = vec![
        ("health", word(&service["health"]) + &detail),
        (
            "bound",
            format!(
                "{} = {jobs} jobs ({})",
                number(&decision["bound"]),
                word(&decision["reason"])
            ),
        ),
        ("capacity", capacity(service)),
        (
            "weight",
            format!("{} %", number(&service["weight_percent"])),
        ),
        (
            "delay",
            format!(
                "{} s of {} s",
                number(&decision["measured_delay"]),
                number(sla)
            ),
        ),
        ("requests", requests(service)),
        ("override", overridden(&service["override"])),
    ];
    if observes {
        let refused = number(&service["would_refuse"]);
        let told = format!("observe: not applied by any proxy; would refuse {refused}/s");
        rows.insert(0, ("mode", told));
    }
    if let Some(error) = service["source_error"].as_str() {
        rows.push(("source", error.to_owned()));
    }
    if let Some(unseen) = service["sight"]["unseen"].as_f64() {
        let ratio = number(&service["sight"]["ratio"]);
        let blind = format!("blind: {unseen:.3} s unseen, delay is {ratio} times what it says");
        rows.push(("source", blind));
    }
    for proxy in service["proxies"].as_array().into_iter().flatten() {
        let row = format!(
            "{} as {}: {} jobs, asked {} s ago, told \"{}\"",
            word(&proxy["proxy"]),
            word(&proxy["identity"]),
            number(&proxy["share_jobs"]),
            number(&proxy["polled_seconds_ago"]),
            word(&proxy["told"]),
        );
        rows.push(("proxy", row));
    }
    rows
}

/// Requests of the last period.
fn requests(service: &Value) -> String {
    let count = |key: &str| number(&service[key]);
    let seconds = number(&service["observed_seconds"]);
    let (finished, failed, jobs) = (count("finished"), count("failed"), count("jobs"));
    format!("{finished} finished and {failed} failed in {seconds} s, {jobs} in progress")
}

/// The capacity that weights are computed from, and its origin.
fn capacity(service: &Value) -> String {
    let learned = &service["learned"];
    let of_load_line = service["decision"]["capacity"].is_number();
    match (&service["capacity"], learned["age_seconds"].as_f64()) {
        (Value::Null, _) => "unknown: nothing has waited yet".to_owned(),
        (capacity, Some(age)) if of_load_line => {
            let run = match learned["earlier_run"] {
                Value::Bool(true) => ", before the agent's start",
                _ => "",
            };
            format!("{}, learned {} ago{run}", number(capacity), ago(age))
        }
        (capacity, _) => format!("{}, the bound", number(capacity)),
    }
}

/// An age in its largest fitting unit.
pub fn ago(seconds: f64) -> String {
    let units = [(86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")];
    let unit = units.iter().find(|(length, _)| seconds >= 2.0 * length);
    let (length, name) = unit.unwrap_or(&(1.0, "s"));
    format!("{:.0} {name}", (seconds / length).floor())
}

fn overridden(set: &Value) -> String {
    let mut words = Vec::new();
    if set["drain"] == Value::Bool(true) {
        words.push("drain".to_owned());
    }
    for (key, unit) in [("health", ""), ("weight_percent", " %"), ("bound", "")] {
        match &set[key] {
            Value::Null => {}
            Value::String(text) => words.push(format!("{key} {text}")),
            value => words.push(format!(
                "{} {value}{unit}",
                key.trim_end_matches("_percent")
            )),
        }
    }
    if words.is_empty() {
        "none".to_owned()
    } else {
        words.join(", ")
    }
}

fn number(value: &Value) -> String {
    value.as_f64().map_or_else(
        || "-".to_owned(),
        |v| format!("{}", (v * 1e3).round() / 1e3),
    )
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_capacity_shows_its_origin() {
        let now = json!({"age_seconds": 3.4, "earlier_run": false});
        for (said, shown) in [
            (
                json!({"capacity": null, "learned": null, "decision": {"capacity": null}}),
                "unknown: nothing has waited yet",
            ),
            (
                json!({"capacity": 30.5, "learned": now, "decision": {"capacity": 30.5}}),
                "30.5, learned 3 s ago",
            ),
            // Under another law, or an operator's bound, the learned value is not used.
            (
                json!({"capacity": 64.0, "learned": now, "decision": {"capacity": null}}),
                "64, the bound",
            ),
        ] {
            assert_eq!(capacity(&said), shown);
        }
    }

    #[test]
    fn ages_have_one_unit() {
        for (seconds, shown) in [
            (0.0, "0 s"),
            (119.0, "119 s"),
            (120.0, "2 min"),
            (7199.0, "119 min"),
            (7200.0, "2 h"),
            (172_800.0, "2 d"),
        ] {
            assert_eq!(ago(seconds), shown);
        }
    }

    #[test]
    fn status_reads_at_a_glance() {
        let node = json!({"services": {"stocks": {
            "decision": {"bound": 18.5, "bound_jobs": 18.5, "capacity": 21.0, "reason": "over_sla", "measured_delay": 0.9312},
            "settings": {"sla": {"delay": 1.0}},
            "capacity": 21.0, "learned": {"rate": 20.0, "age_seconds": 7300.0, "earlier_run": true},
            "finished": 20, "failed": 1, "jobs": null, "observed_seconds": 1.0421,
            "weight_percent": 63, "health": "down", "health_detail": "connect: refused", "source_error": null,
            "sight": {"ratio": 5.0412, "unseen": 0.4},
            "override": {"drain": true, "health": "up", "weight_percent": 7, "bound": null},
            "proxies": [{"proxy": "lb1", "identity": "queries/node1", "share_jobs": 18,
                         "polled_seconds_ago": 0.25, "told": "up 63% maxconn:18"}],
        }}});
        let expected = "\
stocks
  health    down (connect: refused)
  bound     18.5 = 18.5 jobs (over_sla)
  capacity  21, learned 2 h ago, before the agent's start
  weight    63 %
  delay     0.931 s of 1 s
  requests  20 finished and 1 failed in 1.042 s, - in progress
  override  drain, health up, weight 7 %
  source    blind: 0.400 s unseen, delay is 5.041 times what it says
  proxy     lb1 as queries/node1: 18 jobs, asked 0.25 s ago, told \"up 63% maxconn:18\"
";
        assert_eq!(table(&node, None), expected);
        assert_eq!(
            table(&node, Some("orders")),
            "no service has been stepped yet\n"
        );
    }
}
