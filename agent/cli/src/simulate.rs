//! `plimsoll simulate`.

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
};

use anyhow::Context;
use clap::Args;
use plimsoll_sim::{POLICIES, SCENARIOS, Scenario};

/// Heading and introduction of the report.
const INTRODUCTION: &str = "# What the simulator shows

Written by `make simulate`. Simulated, not measured: nodes, networks and clients are models, as each part says; \
Plimsoll's decisions are the code that the agents and proxies run. The other policies are small models with the \
settings that they were published with. Intervals are 90 %, over seeds.
";

/// Arguments of `plimsoll simulate`.
#[derive(Args, Debug)]
#[command(after_help = "Scenario files are TOML; docs/simulator.md has every key.")]
pub struct SimulateArgs {
    /// Scenarios to run, by name or file, or `all`; lists the built-in scenarios if empty.
    #[arg(value_name = "NAME|FILE")]
    scenarios: Vec<String>,
    /// Print JSON in the schema of the lab's summaries.
    #[arg(long)]
    json: bool,
    /// Write the JSON summaries to a file, in addition to the report on standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    json_file: Option<PathBuf>,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds, instead of the scenario's.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: Option<u32>,
    /// Policies to run, comma-separated, instead of the scenario's.
    #[arg(long, value_delimiter = ',')]
    policies: Vec<String>,
}

/// Runs the scenarios and prints the results.
pub fn run(args: &SimulateArgs, out: &mut impl Write) -> anyhow::Result<()> {
    if args.scenarios.is_empty() {
        return list(out);
    }
    let all = args.scenarios.iter().any(|name| name == "all");
    let names: Vec<&str> = if all {
        SCENARIOS.to_vec()
    } else {
        args.scenarios.iter().map(String::as_str).collect()
    };
    // Read all scenarios before running the first, which may take long.
    let mut scenarios = Vec::with_capacity(names.len());
    for name in &names {
        let mut scenario = Scenario::find(name)?;
        if !args.policies.is_empty() {
            scenario.choose(&args.policies)?;
        }
        scenarios.push(scenario);
    }
    if !args.json {
        out.write_all(INTRODUCTION.as_bytes())?;
    }
    let mut summaries = Vec::new();
    for scenario in &scenarios {
        let seeds = args.seeds.unwrap_or(scenario.seeds);
        let progress = |done: usize, of: usize| show_progress(&scenario.name, done, of);
        let summary = plimsoll_sim::run_all(scenario, args.seed, seeds, &progress)?;
        if !args.json {
            write!(out, "\n{}", plimsoll_sim::section(scenario, &summary)?)?;
        }
        summaries.push(summary);
    }
    if let Some(path) = &args.json_file {
        let write = std::fs::write(path, serde_json::to_string(&summaries)?);
        write.with_context(|| path.display().to_string())?;
    }
    match &summaries[..] {
        _ if !args.json => {}
        [one] => writeln!(out, "{}", serde_json::to_string_pretty(one)?)?,
        several => writeln!(out, "{}", serde_json::to_string_pretty(several)?)?,
    }
    Ok(())
}

/// Shown on a terminal only.
fn show_progress(name: &str, done: usize, of: usize) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        let end = if done == of { "\n" } else { "" };
        // Progress is optional: ignore errors.
        let _ = write!(terminal, "\r{name}: {done} of {of} runs{end}");
    }
}

fn list(out: &mut impl Write) -> anyhow::Result<()> {
    for name in SCENARIOS {
        let scenario = Scenario::find(name).with_context(|| format!("the scenario {name}"))?;
        let about = scenario.about.trim();
        let first = about.split_inclusive(". ").next().unwrap_or(about).trim();
        writeln!(out, "{name:18}  {first}")?;
    }
    writeln!(out, "\npolicies: {}", POLICIES.join(", "))?;
    Ok(())
}
