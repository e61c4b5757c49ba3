//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use plimsoll_scatter::map::PartitionArgs;

use crate::{
    adopt::AdoptArgs, build, doctor_command::DoctorArgs, gather_command::GatherArgs,
    identify::IdentifyArgs, node_command::NodeArgs, placement_command::PlacementArgs,
    ring_command::RingArgs, simulate::SimulateArgs, top::TopArgs, tune::TuneArgs,
};

/// Keeps the delay of a data service within its SLA: measures it, computes how much backlog each node may carry, and
/// tells the proxy.
#[derive(Debug, Parser)]
#[command(
    name = "plimsoll",
    version,
    long_version = build::long_version(),
    propagate_version = true
)]
pub struct Cli {
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run this node's agent.
    Agent(AgentArgs),
    /// Add agents to an existing haproxy.cfg or Envoy bootstrap.
    Adopt(AdoptArgs),
    /// Inspect or override a running agent's node.
    Node(NodeArgs),
    /// Inspect a ring: its nodes, slots and keys.
    Ring(RingArgs),
    /// Inspect the placement table, or move an object set.
    Placement(PlacementArgs),
    /// Watch a live cluster: each node's delay against the SLA, bound, jobs, weight and ring share.
    Top(TopArgs),
    /// Check a live installation: query proxies, agents and Redis, and report each problem with its fix.
    Doctor(DoctorArgs),
    /// Identify models of how a node's delay follows its backlog, from a trace or a live agent.
    Identify(IdentifyArgs),
    /// Compute controller gains from a node model and an SLA, or analyse given gains: poles, margins, step response.
    Tune(TuneArgs),
    /// Serve queries to all partitions: query the agent of each, and merge the answers.
    Gather(GatherArgs),
    /// Create, load, check and extend partition maps, which assign a table's rows to partitions.
    Partition(PartitionArgs),
    /// Simulate policies with model nodes, proxies and clients.
    Simulate(SimulateArgs),
    /// Print a Redis function library, as loaded by the agents.
    RedisFunctions {
        /// Library to print.
        #[arg(value_enum)]
        library: RedisLibrary,
    },
    /// Print a shell completion script.
    Completions {
        /// Target shell.
        shell: Shell,
    },
    /// Print the man page.
    Man,
    /// Print the configuration reference, in Markdown.
    ConfigReference {
        /// Command that the configuration is for.
        #[arg(default_value = "agent")]
        command: Configured,
    },
    /// Print the metrics reference, in Markdown.
    MetricsReference,
}

/// Commands that read a configuration file.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Configured {
    /// `plimsoll agent`.
    Agent,
    /// `plimsoll gather`.
    Gather,
}

/// Redis function libraries.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RedisLibrary {
    /// The ring, shares and observations.
    Ring,
    /// The placement table.
    Placement,
}

/// Arguments of `plimsoll agent`.
#[derive(Args, Debug)]
pub struct AgentArgs {
    /// Configuration file.
    #[arg(
        long,
        env = "PLIMSOLL_CONFIG",
        value_name = "FILE",
        default_value = "/etc/plimsoll/agent.toml"
    )]
    pub config: PathBuf,
    /// Validate the configuration, print a summary, and exit.
    #[arg(long, env = "PLIMSOLL_CHECK_CONFIG")]
    pub check_config: bool,
    /// Also test the configured ports, sources and Redis on this machine, with advice on each failure.
    #[arg(long, env = "PLIMSOLL_PROBE", requires = "check_config")]
    pub probe: bool,
}
