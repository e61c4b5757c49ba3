//! `[[partition]]`: databases of this node that are asked together with those of others.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    PartitionConfig, Secret, raw,
    resolve::{Checked, LONGEST_NAME, at, secret, wrong},
    values,
};

pub fn partitions(raw: Vec<raw::Partition>, has_token: bool) -> Checked<Vec<Arc<PartitionConfig>>> {
    let mut names = BTreeSet::new();
    let mut partitions = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let path = format!("partition[{index}]");
        let partition = partition(&path, raw)?;
        if partition.free_sql && !has_token {
            let problem = "needs http.token_file: not everybody may ask anything";
            return wrong(format!("{path}.free_sql"), problem);
        }
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
    if raw.queries.is_empty() && !raw.free_sql {
        let problem = "must have a query, or free_sql = true";
        return wrong(format!("{path}.queries"), problem);
    }
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
        address,
        user: name("user", raw.user)?,
        password: password.transpose()?.map(Secret::new),
        database: name("database", raw.database)?,
        queries: raw.queries,
        free_sql: raw.free_sql,
    })
}
