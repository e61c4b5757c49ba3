//! `[[partition]]`: databases of this node that are asked together with those of others.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use super::{
    Config, ConfigError, PartitionConfig, Secret, SourceConfig, locate, raw,
    resolve::{Checked, LONGEST_NAME, at, secret, wrong},
    values,
};

/// The databases of a file that has nothing but `[[partition]]`, whose queries may be left out.
pub fn databases(path: &Path) -> Result<Vec<Arc<PartitionConfig>>, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError::whole_file(path, error.to_string()))?;
    let file: raw::Databases = locate::deserialize(path, &text)?;
    named(file.partition, partition).map_err(|wrong| locate::point_at(path, &text, wrong))
}

pub fn partitions(raw: Vec<raw::Partition>, has_token: bool) -> Checked<Vec<Arc<PartitionConfig>>> {
    named(raw, |path, raw| {
        if raw.queries.is_empty() && !raw.free_sql {
            let problem = "must have a query, or free_sql = true";
            return wrong(format!("{path}.queries"), problem);
        }
        if raw.free_sql && !has_token {
            let problem = "needs http.token_file: not everybody may ask anything";
            return wrong(format!("{path}.free_sql"), problem);
        }
        partition(path, raw)
    })
}

fn named(
    raw: Vec<raw::Partition>,
    check: impl Fn(&str, raw::Partition) -> Checked<PartitionConfig>,
) -> Checked<Vec<Arc<PartitionConfig>>> {
    let mut names = BTreeSet::new();
    let mut partitions = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let path = format!("partition[{index}]");
        let partition = check(&path, raw)?;
        if !names.insert(partition.name.clone()) {
            let problem = format!("there are two partitions {:?}", partition.name);
            return wrong(format!("{path}.name"), problem);
        }
        partitions.push(Arc::new(partition));
    }
    Ok(partitions)
}

fn partition(path: &str, raw: raw::Partition) -> Checked<PartitionConfig> {
    let name = |key: &str, text: String| {
        let fine = text.bytes().all(|byte| byte.is_ascii_graphic());
        if text.is_empty() || text.len() > LONGEST_NAME || !fine {
            let problem = format!("must be 1 to {LONGEST_NAME} visible ASCII characters");
            return wrong(format!("{path}.{key}"), problem);
        }
        Ok(text)
    };
    for (query, sql) in &raw.queries {
        if sql.trim().is_empty() || sql.contains('\0') {
            return wrong(format!("{path}.queries.{query}"), "must be an SQL query");
        }
    }
    let key = format!("{path}.password_file");
    let password = raw.password_file.as_deref().map(|file| secret(&key, file));
    let address = at(
        &format!("{path}.address"),
        values::database_address(&raw.address),
    )?;
    Ok(PartitionConfig {
        name: name("name", raw.name)?,
        service: raw.service,
        address,
        user: name("user", raw.user)?,
        password: password.transpose()?.map(Secret::new),
        database: name("database", raw.database)?,
        queries: raw.queries,
        free_sql: raw.free_sql,
    })
}

/// Queries count in the bound of a service that learns of them.
pub fn services(config: &Config) -> Checked<()> {
    for (index, partition) in config.partitions.iter().enumerate() {
        let Some(name) = &partition.service else {
            continue;
        };
        let key = format!("partition[{index}].service");
        match config.services.iter().find(|service| service.name == *name) {
            None => return wrong(key, format!("there is no service {name:?}")),
            Some(service) if service.source != SourceConfig::Partitions => {
                let problem = format!("the source of service {name:?} must be \"partitions\"");
                return wrong(key, problem);
            }
            Some(_) => {}
        }
    }
    Ok(())
}
