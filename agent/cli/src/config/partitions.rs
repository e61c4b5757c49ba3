//! Consistency checks between partitions and the rest of the file.

use plimsoll_scatter::partition::PartitionServer;
use plimsoll_settings::{Checked, wrong};

use super::Config;

/// Queries count against a service's bound, so the service must have them as its source.
pub fn services(config: &Config) -> Checked<()> {
    for (index, partition) in config.partitions.iter().enumerate() {
        let Some(name) = &partition.service else {
            continue;
        };
        let key = format!("partition[{index}].service");
        match config.services.iter().find(|service| service.name == *name) {
            None => return wrong(key, format!("no service {name:?}")),
            Some(service) if !service.source.counts_queries() => {
                let problem = format!("the source of service {name:?} must be \"partitions\"");
                return wrong(key, problem);
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// A query to this agent itself would wait for its own answer.
pub fn elsewhere(config: &Config) -> Checked<()> {
    let own = config.http_listen.to_string();
    for (index, partition) in config.partitions.iter().enumerate() {
        if matches!(&partition.server, PartitionServer::Http(service) if service.url.connect == own)
        {
            let problem = "must not be this agent itself";
            return wrong(format!("partition[{index}].url"), problem);
        }
    }
    Ok(())
}
