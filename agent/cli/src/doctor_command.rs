//! `plimsoll doctor`: checks a live installation for misconfiguration.

use std::{collections::BTreeSet, io::Write, path::PathBuf, process::ExitCode};

use anyhow::{Context, ensure};
use clap::Args;
use plimsoll_doctor::{Asked, Code, Finding, HaproxyConfig, Targets, ask, findings};
use plimsoll_net::{DatabaseAddress, HttpUrl, database_address, http_or_https_url, http_url};
use plimsoll_node::ring::{LinkSettings, RedisSection, redis};
use serde_json::json;

use crate::caller_args::CallerArgs;

/// Exit statuses.
const FINDINGS: u8 = 1;
const NOT_ASKED: u8 = 2;

/// Arguments of `plimsoll doctor`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit status: 0 without findings, 1 with findings, 2 if a target could not be queried."
)]
pub struct DoctorArgs {
    /// Stats socket of HAProxy with level operator or admin: a path, or host:port. Repeat for each HAProxy.
    #[arg(long, value_name = "SOCKET", value_parser = socket)]
    haproxy: Vec<DatabaseAddress>,
    /// HAProxy's configuration, for what its socket does not reveal. Repeat for each file, in the order HAProxy reads
    /// them.
    #[arg(long, value_name = "FILE")]
    haproxy_config: Vec<PathBuf>,
    /// Address of Envoy's admin interface, such as http://127.0.0.1:9901.
    #[arg(long, value_name = "URL", value_parser = http_url)]
    envoy: Vec<HttpUrl>,
    /// HTTP addresses of the agents, such as http://192.0.2.11:9464.
    #[arg(
        long,
        env = "PLIMSOLL_URLS",
        value_name = "URL",
        value_delimiter = ',',
        value_parser = http_or_https_url
    )]
    agent: Vec<HttpUrl>,
    /// URL of a Redis without a password, such as redis://192.0.2.5:6379.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Agent configuration whose [redis] table is used, with its user, password, TLS, sentinels or cluster.
    #[arg(long, value_name = "FILE", conflicts_with = "redis")]
    pub agent_config: Option<PathBuf>,
    /// Suppress findings with this code.
    #[arg(long, value_name = "CODE", value_parser = code)]
    ignore: Vec<Code>,
    /// Print a single JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    caller: CallerArgs,
}

fn socket(text: &str) -> Result<DatabaseAddress, String> {
    match text.starts_with('/') {
        true => Ok(DatabaseAddress::Unix(text.into())),
        false => database_address(text).map_err(|problem| {
            format!(
                "must be a path that begins with /, or {}",
                problem.trim_start_matches("must be ")
            )
        }),
    }
}

fn code(text: &str) -> Result<Code, String> {
    let found = Code::ALL.into_iter().find(|code| code.word() == text);
    found.ok_or_else(|| {
        let words: Vec<_> = Code::ALL.iter().map(|code| code.word()).collect();
        format!("must be one of {}", words.join(", "))
    })
}

/// Runs the checks and prints the findings; `link` is the Redis of the agent configuration.
pub fn run(
    args: &DoctorArgs,
    link: Option<LinkSettings>,
    out: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    let targets = targets(args, link)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let asked = runtime.block_on(ask(&targets, env!("CARGO_PKG_VERSION")));
    // A name server that hangs must not delay the exit.
    runtime.shutdown_background();
    let mut found = findings(&asked.snapshot);
    found.retain(|it| !args.ignore.contains(&it.code));
    let unseen = unseen(args, &asked);
    match args.json {
        true => as_json(&found, &asked, &unseen, out)?,
        false => as_text(&found, &asked, &unseen, out)?,
    }
    Ok(match (asked.failures.is_empty(), found.is_empty()) {
        (false, _) => ExitCode::from(NOT_ASKED),
        (true, false) => ExitCode::from(FINDINGS),
        (true, true) => ExitCode::SUCCESS,
    })
}

/// Reports an error from before any check.
pub fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("plimsoll: {error:#}");
    ExitCode::from(NOT_ASKED)
}

fn targets(args: &DoctorArgs, link: Option<LinkSettings>) -> anyhow::Result<Targets> {
    let link = match (&args.redis, &args.agent_config) {
        (Some(url), _) => Some(without_password(url)?),
        (None, Some(file)) => {
            Some(link.with_context(|| format!("{}: has no [redis]", file.display()))?)
        }
        (None, None) => None,
    };
    let config = match args.haproxy_config.is_empty() {
        true => None,
        false => Some(HaproxyConfig::read(&args.haproxy_config).map_err(anyhow::Error::msg)?),
    };
    let targets = Targets {
        haproxys: args.haproxy.clone(),
        haproxy_config: config,
        envoys: args.envoy.clone(),
        agents: args.agent.clone(),
        caller: args.caller.caller(&args.agent)?,
        redis: link,
    };
    let is_nobody = targets.haproxys.is_empty()
        && targets.haproxy_config.is_none()
        && targets.envoys.is_empty()
        && targets.agents.is_empty()
        && targets.redis.is_none();
    ensure!(
        !is_nobody,
        "nothing to check: give --haproxy, --haproxy-config, --envoy, --agent, --redis or --agent-config"
    );
    Ok(targets)
}

fn without_password(url: &str) -> anyhow::Result<LinkSettings> {
    let mut table = toml::Table::new();
    table.insert("urls".to_owned(), vec![url].into());
    let section: RedisSection = table.try_into()?;
    // The URL is not echoed, since it may contain a password.
    redis(&section).map_err(|it| {
        anyhow::anyhow!(
            "--redis: {}; for a Redis with a password, use --agent-config",
            it.problem
        )
    })
}

/// Checks that none of the queried sources could answer.
fn unseen(args: &DoctorArgs, asked: &Asked) -> Vec<&'static str> {
    // HAProxy reports an algorithm for every backend, unless the socket's level is too low.
    let mut algorithms = asked.snapshot.haproxys.iter().map(|it| &it.algorithms);
    let is_kept_back = algorithms.any(|it| it.values().any(String::is_empty));
    let missing = [
        (
            !args.haproxy.is_empty() && args.haproxy_config.is_empty(),
            "timeout queue, hash-type and agent-send: needs --haproxy-config",
        ),
        (
            is_kept_back,
            "balance, clock and sockets of a HAProxy: needs a socket of level operator",
        ),
        (
            !(args.haproxy.is_empty() && args.envoy.is_empty()) && args.agent.is_empty(),
            "which agent answers each proxy, and whether limits follow its answers: needs --agent",
        ),
    ];
    let missing = missing.into_iter().filter(|(is_missing, _)| *is_missing);
    missing.map(|(_, what)| what).collect()
}

fn as_text(
    found: &[Finding],
    asked: &Asked,
    unseen: &[&str],
    out: &mut impl Write,
) -> anyhow::Result<()> {
    for finding in found {
        let Finding {
            code,
            at,
            found,
            fix,
        } = finding;
        writeln!(out, "{}  {at}", code.word())?;
        writeln!(out, "  found  {found}")?;
        writeln!(out, "  why    {}", code.why())?;
        writeln!(out, "  do     {fix}")?;
        writeln!(out, "  see    {}\n", code.docs())?;
    }
    for failure in &asked.failures {
        writeln!(out, "cannot query {}: {}", failure.what, failure.problem)?;
    }
    for what in unseen {
        writeln!(out, "not checked: {what}")?;
    }
    let kinds: BTreeSet<_> = found.iter().map(|it| it.code).collect();
    match found.len() {
        0 => writeln!(out, "no findings")?,
        1 => writeln!(out, "1 finding")?,
        count => writeln!(out, "{count} findings of {} kinds", kinds.len())?,
    }
    Ok(())
}

fn as_json(
    found: &[Finding],
    asked: &Asked,
    unseen: &[&str],
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let finding = |it: &Finding| {
        json!({
            "code": it.code,
            "at": it.at,
            "found": it.found,
            "why": it.code.why(),
            "do": it.fix,
            "see": it.code.docs(),
        })
    };
    let all = json!({
        "findings": found.iter().map(finding).collect::<Vec<_>>(),
        "not_asked": asked.failures,
        "not_looked_at": unseen,
    });
    Ok(writeln!(out, "{all:#}")?)
}
