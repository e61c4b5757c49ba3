//! The `plimsoll` binary: sources -> controller -> outputs, once a period.

mod adopt;
mod build;
mod caller_args;
mod check;
mod cli;
mod cli_docs;
mod config;
mod doctor_command;
mod gather_command;
mod identify;
mod keep_running;
mod logging;
mod metrics;
mod node_command;
mod notify;
mod placement_command;
mod reload;
mod ring_command;
mod simulate;
mod supervise;
mod top;
mod tune;

use std::{io::Write, process::ExitCode, time::Duration};

use clap::{CommandFactory, Parser};

use cli::{AgentArgs, Cli, Command, Configured, RedisLibrary};
use config::Config;
use doctor_command::DoctorArgs;
use plimsoll_node::functions;

/// On exit, how long to wait for blocked calls to a name server or a disk.
const LAST_CALLS: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let command = Cli::parse().command;
    if let Command::Doctor(args) = command {
        return doctor(&args).unwrap_or_else(|error| doctor_command::failed(&error));
    }
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plimsoll: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match command {
        Command::Agent(args) if args.check_config => {
            let config = Config::load(&args.config)?;
            use_crypto();
            check::run(&args.config, &config, args.probe, &mut out)?;
        }
        Command::Agent(args) => {
            drop(out);
            agent(args)?;
        }
        Command::Adopt(args) => adopt::run(args, &mut out)?,
        Command::Node(args) => {
            drop(out);
            node_command::run(args)?;
        }
        Command::Ring(args) => ring_command::run(args, &mut out)?,
        Command::Placement(args) => placement_command::run(args, &mut out)?,
        Command::Top(args) => {
            drop(out);
            top::run(args, &mut std::io::stdout())?;
        }
        // Sets its own exit status.
        Command::Doctor(_) => {}
        Command::Identify(args) => identify::run(args, &mut out)?,
        Command::Tune(args) => tune::run(args, &mut out)?,
        Command::Gather(args) => {
            drop(out);
            gather_command::run(args)?;
        }
        Command::Partition(args) => plimsoll_scatter::map::run(args, &mut out)?,
        Command::Simulate(args) => simulate::run(&args, &mut out)?,
        Command::RedisFunctions { library } => {
            let library = match library {
                RedisLibrary::Ring => functions::RING,
                RedisLibrary::Placement => functions::PLACEMENT,
            };
            out.write_all(library.text.as_bytes())?;
        }
        Command::Completions { shell } => cli_docs::completions(Cli::command(), shell, &mut out),
        Command::Man => cli_docs::man(Cli::command(), &mut out)?,
        Command::ConfigReference { command } => {
            let text = match command {
                Configured::Agent => config::markdown(),
                Configured::Gather => gather_command::reference(),
            };
            out.write_all(text.as_bytes())?;
        }
        Command::MetricsReference => out.write_all(metrics::markdown()?.as_bytes())?,
    }
    Ok(())
}

/// Installs the only crypto provider that is compiled in; fails if one is already installed.
fn use_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn doctor(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let config = args.agent_config.as_deref().map(Config::load).transpose()?;
    use_crypto();
    let link = config.and_then(|config| config.redis);
    doctor_command::run(args, link, &mut std::io::stdout().lock())
}

fn agent(args: AgentArgs) -> anyhow::Result<()> {
    let config = Config::load(&args.config)?;
    let log_level = logging::start(config.log_level, config.log_format);
    use_crypto();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let ended = runtime.block_on(supervise::run(args.config, config, log_level));
    runtime.shutdown_timeout(LAST_CALLS);
    ended
}
