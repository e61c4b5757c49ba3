//! `[service.load]`: the measure of the node's load.

use std::path::PathBuf;

use plimsoll_settings::{Checked, number, only_for, wrong};
use schemars::JsonSchema;
use serde::Deserialize;

/// Measure of the node's load for schedulers.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadConfig {
    /// Ratio of the delay to the SLA's target.
    Delay,
    /// Load of the host: the sum of its parts.
    Host(HostLoadConfig),
}

/// Parts of the host's load; at least one is set.
#[derive(Clone, Debug, PartialEq)]
pub struct HostLoadConfig {
    /// CPU load.
    pub cpu: Option<CpuConfig>,
    /// Network load.
    pub network: Option<NetworkConfig>,
}

/// Configuration of the CPU load.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuConfig {
    /// Absolute path of the control group; `None` for the agent's own.
    pub cgroup: Option<PathBuf>,
}

/// Configuration of the network load.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkConfig {
    /// Interface to measure; `None` for the busiest of all except the loopback.
    pub interface: Option<String>,
    /// Speed of `interface` in bits per second, 1e3 to 1e13; `None` for the kernel's figure.
    pub speed: Option<f64>,
}

/// Measure of this node's load for the second tier's `load_informed` schedulers and for the metrics:
/// docs/load-and-jobs.md. Must be the same kind on all nodes of a ring.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[service.load]")]
pub struct LoadSection {
    /// The delay over the SLA's target, the CPU load, the load of the busiest network interface, or the sum of the
    /// last two. If the host's load cannot be read, the last value applies for 10s or three periods, and the delay
    /// after that.
    #[schemars(extend("x-values" = "`delay`, `cpu`, `network`, `cpu+network`", "x-default" = "`\"delay\"`"))]
    kind: Option<String>,
    /// Control group of the service, such as `/system.slice/mariadb.service`. If the group or one of its parents is
    /// limited to fewer CPUs than the machine has, by quota or by cpuset, the CPU load refers to that limit,
    /// otherwise to the machine.
    #[schemars(extend("x-values" = "path below `/sys/fs/cgroup`", "x-default" = "the agent's own"))]
    cgroup: Option<PathBuf>,
    /// Network interface to measure; by default the busiest of those with a known speed.
    #[schemars(extend("x-values" = "interface name", "x-default" = "all but `lo`"))]
    interface: Option<String>,
    /// Speed of `interface` in each direction. Virtual interfaces often report none, or a wrong one, in
    /// `/sys/class/net/*/speed`.
    #[schemars(extend("x-values" = "1e3 to 1e13, bits per second", "x-default" = "the kernel's"))]
    speed: Option<f64>,
}

/// Checks `[service.load]`. `path` prefixes the keys in errors.
pub fn load(path: &str, raw: &LoadSection) -> Checked<LoadConfig> {
    let kind = raw.kind.as_deref().unwrap_or("delay");
    let (of_cpu, of_network) = match kind {
        "delay" => (false, false),
        "cpu" => (true, false),
        "network" => (false, true),
        "cpu+network" => (true, true),
        other => {
            return wrong(
                format!("{path}.kind"),
                format!(
                    "must be one of \"delay\", \"cpu\", \"network\", \"cpu+network\", is {other:?}"
                ),
            );
        }
    };
    if !of_cpu {
        only_for(path, kind, &[("cgroup", raw.cgroup.is_some())])?;
    }
    if !of_network {
        let keys = [
            ("interface", raw.interface.is_some()),
            ("speed", raw.speed.is_some()),
        ];
        only_for(path, kind, &keys)?;
    }
    if !(of_cpu || of_network) {
        return Ok(LoadConfig::Delay);
    }
    let cpu = of_cpu.then(|| cgroup(path, raw)).transpose()?;
    let network = of_network.then(|| network(path, raw)).transpose()?;
    Ok(LoadConfig::Host(HostLoadConfig { cpu, network }))
}

fn cgroup(path: &str, raw: &LoadSection) -> Checked<CpuConfig> {
    if let Some(cgroup) = &raw.cgroup {
        let leads_up = |part| part == std::path::Component::ParentDir;
        if !cgroup.is_absolute() || cgroup.components().any(leads_up) {
            return wrong(
                format!("{path}.cgroup"),
                format!(
                    "must be a path such as \"/system.slice/mariadb.service\", without \"..\", is {cgroup:?}"
                ),
            );
        }
    }
    Ok(CpuConfig {
        cgroup: raw.cgroup.clone(),
    })
}

fn network(path: &str, raw: &LoadSection) -> Checked<NetworkConfig> {
    if let Some(name) = &raw.interface {
        let fine = |b: u8| b.is_ascii_graphic() && b != b'/';
        // The kernel's rules for interface names.
        if !(1..=15).contains(&name.len()) || !name.bytes().all(fine) || name.starts_with('.') {
            return wrong(
                format!("{path}.interface"),
                format!("must be an interface's name such as \"eth0\", is {name:?}"),
            );
        }
    }
    if let Some(speed) = raw.speed {
        if raw.interface.is_none() {
            return wrong(
                format!("{path}.speed"),
                format!("needs {path}.interface: it is the speed of one interface"),
            );
        }
        number(&format!("{path}.speed"), speed, 1e3..=1e13)?;
    }
    Ok(NetworkConfig {
        interface: raw.interface.clone(),
        speed: raw.speed,
    })
}
