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

/// Keeps a data service inside its delay SLA: measures, computes how much backlog the node may
/// carry, and tells HAProxy.
#[derive(Debug, Parser)]
#[command(
    name = "plimsoll",
    version,
    long_version = build::long_version(),
    propagate_version = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Sub-commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent of this node.
    Agent(AgentArgs),
    /// Put the agents into an existing haproxy.cfg or Envoy bootstrap.
    Adopt(AdoptArgs),
    /// Look at or override a running agent's node.
    Node(NodeArgs),
    /// Look at a ring: its nodes, slots and keys.
    Ring(RingArgs),
    /// Look at the table of primaries, or move an object set.
    Placement(PlacementArgs),
    /// Watch a live cluster: delay against the SLA, bound, jobs, weight and ring share of each node.
    Top(TopArgs),
    /// Ask proxies, agents and Redis, and say what is wrong with the set-up and what to do about it.
    Doctor(DoctorArgs),
    /// Find models of how a node's delay follows its backlog, from a trace or a live agent.
    Identify(IdentifyArgs),
    /// Find gains for a model of the node and an SLA, or analyse gains: poles, margins, answer to a step.
    Tune(TuneArgs),
    /// Answer queries from all partitions: ask each one's agent, make one answer of theirs.
    Gather(GatherArgs),
    /// Make, load, check and extend partition maps: which rows of a table go to which part.
    Partition(PartitionArgs),
    /// Run policies on simulated nodes, proxies and clients.
    Simulate(SimulateArgs),
    /// Print a function library for Redis, as the agents load it.
    RedisFunctions {
        /// Which.
        #[arg(value_enum)]
        library: RedisLibrary,
    },
    /// Print shell completions.
    Completions {
        /// For this shell.
        shell: Shell,
    },
    /// Print the man page.
    Man,
    /// Print the reference of a configuration file, in Markdown.
    ConfigReference {
        /// The command that reads it.
        #[arg(default_value = "agent")]
        command: Configured,
    },
    /// Print the reference of the metrics, in Markdown.
    MetricsReference,
}

/// Commands with a configuration file.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Configured {
    /// `plimsoll agent`.
    Agent,
    /// `plimsoll gather`.
    Gather,
}

/// Function libraries.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RedisLibrary {
    /// Of the ring, shares and observations.
    Ring,
    /// Of the table of primaries.
    Placement,
}

/// Arguments of `agent`.
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
    /// Check the configuration, say what it comes to, and exit.
    #[arg(long, env = "PLIMSOLL_CHECK_CONFIG")]
    pub check_config: bool,
    /// Try its ports, sources and Redis as well, and say what to do about those that fail.
    #[arg(long, env = "PLIMSOLL_PROBE", requires = "check_config")]
    pub probe: bool,
}
