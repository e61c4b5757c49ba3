//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use plimsoll_scatter::map::PartitionArgs;

use crate::{
    gather_command::GatherArgs, identify::IdentifyArgs, node_command::NodeArgs,
    placement_command::PlacementArgs, ring_command::RingArgs, simulate::SimulateArgs, top::TopArgs,
    tune::TuneArgs,
};

/// Keeps a data service inside its delay SLA: measures, computes how much backlog the node may
/// carry, and tells HAProxy.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, propagate_version = true)]
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
    /// Look at or override a running agent's node.
    Node(NodeArgs),
    /// Look at a ring: its nodes, slots and keys.
    Ring(RingArgs),
    /// Look at the table of primaries, or move an object set.
    Placement(PlacementArgs),
    /// Watch a live cluster: delay against the SLA, bound, jobs, weight and ring share of each node.
    Top(TopArgs),
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
    /// Print shell completions.
    Completions {
        /// For this shell.
        shell: Shell,
    },
    /// Print the man page.
    Man,
    /// Print the reference of the configuration, in Markdown.
    ConfigReference,
    /// Print the reference of the metrics, in Markdown.
    MetricsReference,
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
