//! `[service.jobs]`: where the number of jobs comes from.

use std::{path::Path, time::Duration};

use super::{
    DatabaseConfig, DatabaseKind, JobsConfig, Secret, SourceConfig, raw,
    resolve::{
        Checked, LONGEST_NAME, MILLI, READ_TIMEOUT, at, duration, metric_name, only_for, required,
        secret, wrong,
    },
    values,
};

pub fn jobs(
    path: &str,
    raw: &raw::Jobs,
    source: &SourceConfig,
    period: Duration,
) -> Checked<JobsConfig> {
    let kind = raw.kind.as_deref().unwrap_or("none");
    if *source == SourceConfig::Partitions && kind != "none" {
        let problem = "does not apply to source.kind = \"partitions\", which counts its own";
        return wrong(format!("{path}.kind"), problem);
    }
    let of_gauge = [
        ("gauge", raw.gauge.is_some()),
        ("labels", raw.labels.is_some()),
        ("url", raw.url.is_some()),
    ];
    let of_sockets = [
        ("port", raw.port.is_some()),
        ("sample_interval", raw.sample_interval.is_some()),
    ];
    let of_databases = [
        ("address", raw.address.is_some()),
        ("user", raw.user.is_some()),
        ("password_file", raw.password_file.is_some()),
    ];
    let of_postgresql = [("database", raw.database.is_some())];
    if !matches!(kind, "mysql" | "postgresql") {
        only_for(path, kind, &of_databases)?;
    }
    if kind != "postgresql" {
        only_for(path, kind, &of_postgresql)?;
    }
    match kind {
        "none" => {
            only_for(path, kind, &of_gauge)?;
            only_for(path, kind, &of_sockets)?;
            Ok(JobsConfig::None)
        }
        "prometheus" => {
            only_for(path, kind, &of_sockets)?;
            let gauge = required(format!("{path}.gauge"), raw.gauge.as_ref(), kind)?;
            metric_name(&format!("{path}.gauge"), gauge)?;
            let url = raw
                .url
                .as_deref()
                .map(|url| at(&format!("{path}.url"), values::http_url(url)))
                .transpose()?;
            let url = match source {
                // One scrape serves both.
                SourceConfig::Prometheus(source) => url.filter(|url| *url != source.url),
                _ if url.is_none() => {
                    return wrong(
                        format!("{path}.url"),
                        "is required where the source is not a scrape",
                    );
                }
                _ => url,
            };
            Ok(JobsConfig::Prometheus {
                gauge: gauge.clone(),
                labels: raw.labels.clone().unwrap_or_default(),
                url,
                timeout: period.min(READ_TIMEOUT),
            })
        }
        "sockets" => {
            only_for(path, kind, &of_gauge)?;
            match raw.port {
                Some(port) if port > 0 => Ok(JobsConfig::Sockets {
                    port,
                    sample_interval: duration(
                        &format!("{path}.sample_interval"),
                        raw.sample_interval,
                        100 * MILLI,
                        10 * MILLI,
                    )?,
                }),
                Some(_) => wrong(format!("{path}.port"), "must be from 1 to 65535, is 0"),
                None => wrong(format!("{path}.port"), "is required for kind = \"sockets\""),
            }
        }
        "mysql" | "postgresql" => {
            only_for(path, kind, &of_gauge)?;
            only_for(path, kind, &of_sockets)?;
            let login = Login {
                table: "jobs",
                kind,
                address: raw.address.as_ref(),
                user: raw.user.as_ref(),
                password_file: raw.password_file.as_deref(),
                database: raw.database.as_deref(),
            };
            database(path, login, period).map(JobsConfig::Database)
        }
        other => wrong(
            format!("{path}.kind"),
            format!(
                "must be one of \"prometheus\", \"sockets\", \"mysql\", \"postgresql\", \"none\", is {other:?}"
            ),
        ),
    }
}

/// Keys of a database that is asked.
pub struct Login<'a> {
    /// The last part of the table's name.
    pub table: &'static str,
    pub kind: &'a str,
    pub address: Option<&'a String>,
    pub user: Option<&'a String>,
    pub password_file: Option<&'a Path>,
    pub database: Option<&'a str>,
}

pub fn database(path: &str, raw: Login<'_>, period: Duration) -> Checked<DatabaseConfig> {
    let kind = raw.kind;
    let text = |key: &str, text: &str| {
        // The protocols end it with a zero.
        if text.is_empty() || text.len() > LONGEST_NAME || text.contains('\0') {
            let problem = format!("must have 1 to {LONGEST_NAME} bytes, none of them zero");
            return wrong(format!("{path}.{key}"), problem);
        }
        Ok(text.to_owned())
    };
    let address = required(format!("{path}.address"), raw.address, kind)?;
    let user = required(format!("{path}.user"), raw.user, kind)?;
    let password = raw.password_file;
    let password = password.map(|file| secret(&format!("{path}.password_file"), file));
    Ok(DatabaseConfig {
        table: raw.table,
        kind: match kind {
            "mysql" => DatabaseKind::MySql,
            _ => DatabaseKind::PostgreSql {
                database: text("database", raw.database.unwrap_or("postgres"))?,
            },
        },
        address: at(
            &format!("{path}.address"),
            values::database_address(address),
        )?,
        user: text("user", user)?,
        password: password.transpose()?.map(Secret::new),
        timeout: period.min(READ_TIMEOUT),
    })
}
