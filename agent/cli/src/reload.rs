//! What a reload on SIGHUP may change.

use std::path::Path;

use anyhow::bail;
use plimsoll_signal::sources;

use crate::config::Config;

/// Reads the new configuration, if all of it can be applied without a restart; the running one is not modified.
pub fn read(path: &Path, running: &Config) -> anyhow::Result<Config> {
    let new = Config::load(path)?;
    let fixed = [
        ("http.listen", new.http_listen == running.http_listen),
        (
            "agent_check.listen",
            new.agent_check.listen == running.agent_check.listen,
        ),
        (
            "envoy.orca_listen",
            new.envoy.orca_listen == running.envoy.orca_listen,
        ),
        (
            "control.socket",
            new.control_socket == running.control_socket,
        ),
        (
            "agent.state_directory",
            new.state_directory == running.state_directory,
        ),
        ("agent.log_format", new.log_format == running.log_format),
    ];
    if let Some((key, _)) = fixed.iter().find(|(_, same)| !same) {
        bail!("{}: {key}: needs a restart to change", path.display());
    }
    check_log_listeners(path, &new, Some(running))?;
    Ok(new)
}

/// Tests every log listener that this agent does not already hold.
pub fn check_log_listeners(
    path: &Path,
    new: &Config,
    running: Option<&Config>,
) -> anyhow::Result<()> {
    let listens = |config: &Config| -> Vec<_> {
        let of = config.services.iter();
        of.map(|service| service.source.log_listen().cloned())
            .collect()
    };
    let held = running.map(listens).unwrap_or_default();
    for (index, listen) in listens(new).into_iter().enumerate() {
        if let Some(listen) = listen
            && !held.contains(&Some(listen.clone()))
            && let Err(error) = sources::haproxy_log::check_listen(&listen)
        {
            bail!("{}: service[{index}].{error}", path.display());
        }
    }
    Ok(())
}
