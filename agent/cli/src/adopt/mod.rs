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

/// Said where the agents begin by observing.
const OBEY: &str = r#"The agents only observe: what they would do is in `plimsoll node status`. To have them obeyed, on every node:
  sed -i 's/^mode = "observe" /mode = "enforce" /' /etc/plimsoll/agent.toml && systemctl reload plimsoll
"#;
/// After so many the file is hardly a haproxy.cfg.
const MAX_PROBLEMS: usize = 10;

/// Put the agents into an existing haproxy.cfg, or Envoy's bootstrap: print what docs/haproxy.md or
/// docs/envoy.md changes in it, what the agents are told, and what stays as it is; write it with `--write`.
///
/// A file that ends in .yaml or .yml is Envoy's: its cluster gets its nodes from the agents. Variables in haproxy.cfg
/// are those of this command's own environment, as they are in HAProxy.
#[derive(Args, Debug)]
pub struct AdoptArgs {
    /// HAProxy's configuration, or Envoy's bootstrap in YAML.
    #[arg(default_value = "/etc/haproxy/haproxy.cfg")]
    pub file: PathBuf,
    /// The backend, or Envoy's cluster, whose nodes get agents; asked for on a terminal.
    #[arg(long, visible_alias = "cluster", value_name = "NAME")]
    pub backend: Option<String>,
    /// The delay that its clients were promised, as 500ms or 1s; asked for on a terminal.
    #[arg(long, value_name = "DELAY")]
    pub sla: Option<String>,
    /// Let agents read the service's own metrics at this URL, as its node reaches them, and not HAProxy's log. Needed
    /// for Envoy, which tells agents nothing of delays; asked for on a terminal.
    #[arg(long, value_name = "URL", requires = "histogram")]
    pub metrics: Option<String>,
    /// The histogram of delays among these metrics.
    #[arg(long, value_name = "NAME", requires = "metrics")]
    pub histogram: Option<String>,
    /// The gauge of requests in progress among these metrics, by which agents see a burst sooner.
    #[arg(long, value_name = "NAME", requires = "metrics")]
    pub gauge: Option<String>,
    /// Write the agents' configurations into this directory, one file a host, and do not print them.
    #[arg(long, value_name = "DIR")]
    pub agents: Option<PathBuf>,
    /// The proxy obeys the agents, which otherwise begin by observing: limits of the servers' own go.
    #[arg(long)]
    pub enforce: bool,
    /// Write the change; the file as it was stays beside it, for `--undo`.
    #[arg(long)]
    pub write: bool,
    /// Put the file back as it was before `--write`.
    #[arg(long, conflicts_with_all = ["write", "backend", "sla", "metrics", "gauge", "agents", "enforce"])]
    pub undo: bool,
    /// The HAProxy that checks the file before and after; otherwise the installed one.
    #[arg(long, value_name = "PATH", conflicts_with = "no_check")]
    pub haproxy: Option<PathBuf>,
    /// The Envoy that checks its file before and after; otherwise the installed one.
    #[arg(long, value_name = "PATH", conflicts_with = "no_check")]
    pub envoy: Option<PathBuf>,
    /// Do not let the proxy check it.
    #[arg(long)]
    pub no_check: bool,
}

/// Whose file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proxy {
    Haproxy,
    Envoy,
}

impl Proxy {
    /// By the end of the file's name, as Envoy itself does it.
    fn of(args: &AdoptArgs) -> anyhow::Result<Self> {
        let file = args.file.display();
        let end = args.file.extension().and_then(|end| end.to_str());
        let proxy = match end.unwrap_or_default().to_ascii_lowercase().as_str() {
            "yaml" | "yml" => Proxy::Envoy,
            "json" | "pb" | "pb_text" | "prototxt" | "textproto" => bail!(
                "{file}: of Envoy's bootstraps only one in YAML, .yaml or .yml, can be changed in its place"
            ),
            _ => Proxy::Haproxy,
        };
        if proxy == Proxy::Haproxy && args.envoy.is_some() {
            bail!(
                "--envoy: {file} does not end in .yaml or .yml, so Envoy would not read it as YAML"
            );
        }
        if proxy == Proxy::Envoy && args.haproxy.is_some() {
            bail!("--haproxy: {file} ends like a bootstrap of Envoy's");
        }
        Ok(proxy)
    }

    fn program(self) -> &'static str {
        match self {
            Proxy::Haproxy => "haproxy",
            Proxy::Envoy => "envoy",
        }
    }

    /// How it reads its file again.
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
        None => format!("Not checked: no {0} was run (--{0}).\n", proxy.program()),
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
        // It stays where there is something in it.
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
            "Written: {}. The file as it was is {} (--undo). {reload} when the agents run.",
            original.path.display(),
            backup.display(),
        )?,
        None if changed => writeln!(out, "Nothing is written yet (--write).")?,
        None => writeln!(
            out,
            "Nothing to change: \"{name}\" has what the guide says."
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

/// Writes the agents' files into a directory, and the proxy's; says what each of the agents' is, and where the
/// proxy's is kept as it was.
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

/// Adds the agents' files to a batch; says what each is.
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
        writeln!(out, "\nTo know, by line of the file as it is now:")?;
    }
    for note in notes {
        writeln!(out, "  {}: {}", note.line, note.text)?;
    }
    Ok(())
}
