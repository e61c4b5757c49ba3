//! `plimsoll adopt`: puts the agents into an existing haproxy.cfg.

mod ask;
mod batch;
mod haproxy;
mod store;

use std::{
    fs,
    io::Write,
    net::{IpAddr, ToSocketAddrs},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::Args;
use plimsoll_adopt::{Agent, Config, Note, Problem, Source, Wish, plan, unified_diff};

use batch::Batch;
use haproxy::Haproxy;
use store::Original;

/// Said where the agents begin by observing.
const OBEY: &str = "The agents only observe: what they would do is in `plimsoll node status`. To have them obeyed, on \
    every node:\n  sed -i 's/^mode = \"observe\" /mode = \"enforce\" /' /etc/plimsoll/agent.toml && systemctl reload plimsoll\n";
/// After so many the file is hardly a haproxy.cfg.
const MAX_PROBLEMS: usize = 10;

/// Put the agents into an existing haproxy.cfg: print what docs/haproxy.md changes in it, what the
/// agents are told, and what stays as it is; write it with `--write`.
///
/// Variables in the file are those of this command's own environment, as they are in HAProxy.
#[derive(Args, Debug)]
pub struct AdoptArgs {
    /// HAProxy's configuration.
    #[arg(default_value = "/etc/haproxy/haproxy.cfg")]
    pub file: PathBuf,
    /// The backend whose nodes get agents; asked for on a terminal.
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// The delay that its clients were promised, as 500ms or 1s; asked for on a terminal.
    #[arg(long, value_name = "DELAY")]
    pub sla: Option<String>,
    /// Let agents read the service's own metrics at this URL, as its node reaches them, and not HAProxy's log.
    #[arg(long, value_name = "URL", requires = "histogram")]
    pub metrics: Option<String>,
    /// The histogram of delays among these metrics.
    #[arg(long, value_name = "NAME", requires = "metrics")]
    pub histogram: Option<String>,
    /// The gauge of requests in progress among these metrics, by which agents see a burst sooner.
    #[arg(long, value_name = "NAME")]
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
    /// Do not let HAProxy check it.
    #[arg(long)]
    pub no_check: bool,
}

/// Runs the command.
pub fn run(args: AdoptArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let original = Original::read(&args.file)?;
    if args.undo {
        return store::undo(&original, "Reload HAProxy", out);
    }
    let environment = |name: &str| std::env::var(name).ok();
    let config = Config::parse(&original.bytes, &environment);
    if !config.problems.is_empty() {
        bail!(refusal(&args.file, &config.problems));
    }
    let backend = ask::backend(args.backend, &config)?;
    let (sla, duration) = ask::sla(args.sla)?;
    let source = match (args.metrics, args.histogram) {
        (Some(url), Some(name)) => Source::Histogram {
            url,
            name,
            gauge: args.gauge,
        },
        _ => Source::Log,
    };
    let wish = Wish {
        backend: &backend,
        sla: &sla,
        sla_milliseconds: duration.as_secs_f64() * 1e3,
        source,
        enforce: args.enforce,
        environment: &environment,
        resolve: &resolve,
    };
    let plan = plan(&config, &wish)
        .map_err(|problems| anyhow::Error::msg(refusal(&args.file, &problems)))?;
    let after = plan.edits.apply(&original.bytes);
    let haproxy = if args.no_check {
        None
    } else {
        Haproxy::find(args.haproxy)?
    };
    let checked = match &haproxy {
        Some(haproxy) => haproxy.check(&args.file, &original.bytes, &after)?,
        None => "Not checked: no haproxy was run (--haproxy).\n".to_owned(),
    };

    let name = args.file.display().to_string();
    out.write_all(&unified_diff(&name, &original.bytes, &after))?;
    if args.agents.is_none() {
        print_agents(&plan.agents, out)?;
    }
    print_notes(&plan.notes, out)?;
    write!(out, "\n{checked}")?;

    let mut batch = Batch::default();
    let changed = !plan.edits.is_empty();
    let added = match &args.agents {
        Some(directory) => add_agents(directory, &plan.agents, &mut batch)?,
        None => Vec::new(),
    };
    let backup = match changed && args.write {
        true => Some(store::write(&original, &after, &mut batch)?),
        false => None,
    };
    batch.commit()?;

    for line in added {
        writeln!(out, "{line}")?;
    }
    if !args.enforce && !plan.agents.is_empty() {
        write!(out, "{OBEY}")?;
    }
    match backup {
        Some(backup) => writeln!(
            out,
            "Written: {}. The file as it was is {} (--undo). Reload HAProxy when the agents run.",
            original.path.display(),
            backup.display()
        )?,
        None if changed => writeln!(out, "Nothing is written yet (--write).")?,
        None => writeln!(
            out,
            "Nothing to change: \"{backend}\" has what the guide says."
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

fn resolve(name: &str) -> Option<IpAddr> {
    let found = (name, 0).to_socket_addrs().ok()?;
    found.map(|it| it.ip()).min_by_key(IpAddr::is_ipv6)
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
