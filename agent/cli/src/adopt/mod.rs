//! `plimsoll adopt`: puts the agents into an existing haproxy.cfg, or Envoy's bootstrap.

mod ask;
mod batch;
mod check;
mod store;
mod targets;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::Args;
use plimsoll_adopt::{Agent, Note, Problem, unified_diff};

use batch::Batch;
use check::Checker;
use store::Original;

/// Printed where agents start in observe mode.
const OBEY: &str = r#"The agents only observe; `plimsoll node status` shows what they would do. To enforce their decisions, on every node:
  sed -i 's/^mode = "observe" /mode = "enforce" /' /etc/plimsoll/agent.toml && systemctl reload plimsoll
"#;
/// A file with more problems is unlikely to be a haproxy.cfg.
const MAX_PROBLEMS: usize = 10;

/// Add agents to an existing haproxy.cfg or Envoy bootstrap: print the changes that docs/haproxy.md or docs/envoy.md
/// describes, the agents' configurations, and notes on existing lines. The file is changed only with `--write`.
///
/// Files named .yaml or .yml are treated as Envoy bootstraps, whose cluster then discovers its nodes through the
/// agents. Environment variables in haproxy.cfg are expanded from this command's environment, as HAProxy does.
///
/// A file that ends in .yaml or .yml is Envoy's: its cluster gets its nodes from the agents. Variables in haproxy.cfg
/// are those of this command's own environment, as they are in HAProxy.
#[derive(Args, Debug)]
pub struct AdoptArgs {
    /// haproxy.cfg, or an Envoy bootstrap in YAML.
    #[arg(default_value = "/etc/haproxy/haproxy.cfg")]
    pub file: PathBuf,
    /// Backend or Envoy cluster whose nodes get agents; on a terminal, asked for if missing.
    #[arg(long, visible_alias = "cluster", value_name = "NAME")]
    pub backend: Option<String>,
    /// Delay promised to its clients, such as 500ms or 1s; on a terminal, asked for if missing.
    #[arg(long, value_name = "DELAY")]
    pub sla: Option<String>,
    /// URL of the service's own metrics as seen from its node, for agents to read instead of HAProxy's log. Required
    /// for Envoy, which does not report delays to agents; on a terminal, asked for if missing.
    #[arg(long, value_name = "URL", requires = "histogram")]
    pub metrics: Option<String>,
    /// Name of the delay histogram in these metrics.
    #[arg(long, value_name = "NAME", requires = "metrics")]
    pub histogram: Option<String>,
    /// Name of the gauge of requests in progress in these metrics, which shows agents a burst sooner.
    #[arg(long, value_name = "NAME", requires = "metrics")]
    pub gauge: Option<String>,
    /// Write the agents' configurations to this directory, one file per host, instead of printing them.
    #[arg(long, value_name = "DIR")]
    pub agents: Option<PathBuf>,
    /// Let the proxy obey the agents from the start, and remove the servers' own limits. Agents only observe
    /// otherwise.
    #[arg(long)]
    pub enforce: bool,
    /// Write the change, keeping a backup next to the file for `--undo`.
    #[arg(long)]
    pub write: bool,
    /// Restore the file from before `--write`.
    #[arg(long, conflicts_with_all = ["write", "backend", "sla", "metrics", "gauge", "agents", "enforce"])]
    pub undo: bool,
    /// HAProxy binary that checks the file before and after the change [default: the installed one].
    #[arg(long, value_name = "PATH", conflicts_with = "no_check")]
    pub haproxy: Option<PathBuf>,
    /// Envoy binary that checks the file before and after the change [default: the installed one].
    #[arg(long, value_name = "PATH", conflicts_with = "no_check")]
    pub envoy: Option<PathBuf>,
    /// Do not run the proxy's check.
    #[arg(long)]
    pub no_check: bool,
}

/// The proxy that reads the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proxy {
    Haproxy,
    Envoy,
}

impl Proxy {
    /// Determined by the file extension, as Envoy does.
    fn of(args: &AdoptArgs) -> anyhow::Result<Self> {
        let file = args.file.display();
        let end = args.file.extension().and_then(|end| end.to_str());
        let proxy = match end.unwrap_or_default().to_ascii_lowercase().as_str() {
            "yaml" | "yml" => Proxy::Envoy,
            "json" | "pb" | "pb_text" | "prototxt" | "textproto" => bail!(
                "{file}: an Envoy bootstrap can be edited in place only as YAML (.yaml or .yml)"
            ),
            _ => Proxy::Haproxy,
        };
        if proxy == Proxy::Haproxy && args.envoy.is_some() {
            bail!(
                "--envoy: {file} does not end in .yaml or .yml, so Envoy would not read it as YAML"
            );
        }
        if proxy == Proxy::Envoy && args.haproxy.is_some() {
            bail!("--haproxy: {file} has the extension of an Envoy bootstrap");
        }
        Ok(proxy)
    }

    fn program(self) -> &'static str {
        match self {
            Proxy::Haproxy => "haproxy",
            Proxy::Envoy => "envoy",
        }
    }

    /// Command that makes the proxy read its file again.
    fn reload(self) -> &'static str {
        match self {
            Proxy::Haproxy => "Reload HAProxy",
            Proxy::Envoy => "Restart Envoy",
        }
    }
}

/// Runs the command.
pub fn run(args: AdoptArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let original = Original::read(&args.file)?;
    let proxy = Proxy::of(&args)?;
    let reload = proxy.reload();
    if args.undo {
        return store::undo(&original, reload, out);
    }
    let (name, plan) = match proxy {
        Proxy::Haproxy => targets::haproxy(&original, &args)?,
        Proxy::Envoy => targets::envoy(&original, &args)?,
    };
    let after = plan.edits.apply(&original.bytes);
    let checker = match args.no_check {
        true => None,
        false => Checker::find(proxy, args.haproxy.or(args.envoy))?,
    };
    let checked = match &checker {
        Some(checker) => checker.check(&args.file, &original.bytes, &after)?,
        None => format!("Not checked: {0} was not run (--{0}).\n", proxy.program()),
    };

    let file = args.file.display().to_string();
    out.write_all(&unified_diff(&file, &original.bytes, &after))?;
    if args.agents.is_none() {
        print_agents(&plan.agents, out)?;
    }
    print_notes(&plan.notes, out)?;
    write!(out, "\n{checked}")?;

    let changed = !plan.edits.is_empty();
    let agents = args.agents.as_deref().map(|it| (it, &*plan.agents));
    let file = (changed && args.write).then_some((&original, &*after));
    let new = args.agents.as_deref().filter(|it| !it.exists());
    let (added, backup) = write_all(agents, file).inspect_err(|_| {
        // Left in place if not empty.
        let _ = new.map(fs::remove_dir);
    })?;

    for line in added {
        writeln!(out, "{line}")?;
    }
    if !args.enforce && !plan.agents.is_empty() {
        write!(out, "{OBEY}")?;
    }
    match backup {
        Some(backup) => writeln!(
            out,
            "Written: {}. Backup: {} (restore with --undo). {reload} once the agents run.",
            original.path.display(),
            backup.display(),
        )?,
        None if changed => writeln!(out, "Nothing written; apply the change with --write.")?,
        None => writeln!(
            out,
            "Nothing to change: \"{name}\" already follows the guide."
        )?,
    }
    Ok(())
}

fn refusal(file: &Path, problems: &[Problem]) -> String {
    let mut lines: Vec<String> = problems
        .iter()
        .take(MAX_PROBLEMS)
        .map(|problem| match problem.line {
            0 => format!("{}: {}", file.display(), problem.text),
            line => format!("{}:{line}: {}", file.display(), problem.text),
        })
        .collect();
    if problems.len() > MAX_PROBLEMS {
        lines.push(format!("and {} more", problems.len() - MAX_PROBLEMS));
    }
    lines.join("\n  ")
}

fn print_agents(agents: &[Agent], out: &mut dyn Write) -> anyhow::Result<()> {
    for agent in agents {
        writeln!(
            out,
            "\n# /etc/plimsoll/agent.toml on {}\n{}",
            agent.host, agent.text
        )?;
    }
    Ok(())
}

/// Writes the agents' files and the proxy's file; returns a line for each agent's file and the path of the backup.
fn write_all(
    agents: Option<(&Path, &[Agent])>,
    file: Option<(&Original, &[u8])>,
) -> anyhow::Result<(Vec<String>, Option<PathBuf>)> {
    let mut batch = Batch::default();
    let added = match agents {
        Some((directory, agents)) => add_agents(directory, agents, &mut batch)?,
        None => Vec::new(),
    };
    let backup = match file {
        Some((original, after)) => Some(store::write(original, after, &mut batch)?),
        None => None,
    };
    batch.commit()?;
    Ok((added, backup))
}

/// Adds the agents' files to a batch; returns a line for each.
fn add_agents(
    directory: &Path,
    agents: &[Agent],
    batch: &mut Batch,
) -> anyhow::Result<Vec<String>> {
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let mut added = Vec::new();
    for agent in agents {
        let path = directory.join(&agent.file);
        batch.add(&path, agent.text.as_bytes(), None)?;
        added.push(format!(
            "{}: /etc/plimsoll/agent.toml on {}",
            path.display(),
            agent.host
        ));
    }
    Ok(added)
}

fn print_notes(notes: &[Note], out: &mut dyn Write) -> anyhow::Result<()> {
    if !notes.is_empty() {
        writeln!(out, "\nNotes, by line of the current file:")?;
    }
    for note in notes {
        writeln!(out, "  {}: {}", note.line, note.text)?;
    }
    Ok(())
}
