//! Records a trace of a live agent over its HTTP API.

use std::{
    fs::File,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use plimsoll_net::{Caller, HttpUrl, get_as};
use plimsoll_wire::{NodeService, NodeView};

const TIMEOUT: Duration = Duration::from_secs(2);
const MAX_BYTES: usize = 1 << 20;
/// An agent that has been silent for this long is taken to be gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// Polls per period, so that none is missed, with the shortest and longest pause between polls.
const LOOKS: f64 = 4.0;
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);
const COLUMNS: &str = "time,delay,backlog,jobs,bound,finished\n";

/// Polls the agent for the given time; returns the trace as CSV.
pub fn record(
    caller: &Caller,
    url: &HttpUrl,
    service: Option<&str>,
    lasting: Duration,
    save: Option<&Path>,
) -> anyhow::Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut file = match save {
        Some(path) => {
            Some(File::create(path).with_context(|| format!("cannot write {}", path.display()))?)
        }
        None => None,
    };
    runtime.block_on(watch(caller, url, service, lasting, &mut file))
}

async fn watch(
    caller: &Caller,
    url: &HttpUrl,
    service: Option<&str>,
    lasting: Duration,
    file: &mut Option<File>,
) -> anyhow::Result<String> {
    let url = HttpUrl {
        path: "/v1/node".to_owned(),
        ..url.clone()
    };
    let mut trace = String::new();
    let mut keep = |text: &str| -> anyhow::Result<()> {
        trace += text;
        file.as_mut()
            .map_or(Ok(()), |file| file.write_all(text.as_bytes()))?;
        Ok(())
    };
    keep(COLUMNS)?;
    let began = Instant::now();
    let (mut heard, mut last_step) = (None::<Instant>, f64::NEG_INFINITY);
    while began.elapsed() < lasting {
        let mut pause = MAX_PAUSE;
        match ask(caller, &url, service).await? {
            Ok(said) => {
                heard = Some(Instant::now());
                let period = said.observed_seconds.unwrap_or(1.0).max(0.0);
                pause = Duration::try_from_secs_f64(period / LOOKS).unwrap_or(MAX_PAUSE);
                if said.stepped_at != last_step {
                    last_step = said.stepped_at;
                    keep(&line(&said))?;
                }
            }
            // An agent that has answered before may be restarting.
            Err(_) if heard.is_some_and(|heard| heard.elapsed() < PATIENCE) => {}
            Err(problem) => bail!("cannot record the agent: {problem}"),
        }
        tokio::time::sleep(pause.clamp(MIN_PAUSE, MAX_PAUSE)).await;
    }
    Ok(trace)
}

/// Returns an answer, or why there is none for now; fails on permanent errors.
async fn ask(
    caller: &Caller,
    url: &HttpUrl,
    service: Option<&str>,
) -> anyhow::Result<Result<NodeService, String>> {
    let body = match get_as(caller, url, TIMEOUT, MAX_BYTES).await {
        Ok((200, body)) => body,
        Ok((status, _)) => return Ok(Err(format!("HTTP status {status}"))),
        Err(error) => return Ok(Err(error.to_string())),
    };
    let mut answer = NodeView::parse(&body)
        .map_err(|problem| anyhow!("{url} is not a Plimsoll agent: {problem}"))?;
    let known: Vec<String> = answer.services.keys().cloned().collect();
    let wanted = match (service, &known[..]) {
        (Some(service), _) => service.to_owned(),
        (None, [only]) => only.clone(),
        (None, _) => bail!(
            "--service: required, since {url} has several: {}",
            known.join(", ")
        ),
    };
    let said = answer.services.remove(&wanted);
    let said = said.with_context(|| {
        format!(
            "--service {wanted}: not found; {url} has {}",
            known.join(", ")
        )
    })?;
    NodeService::parse(said)
        .map(Ok)
        .map_err(|problem| anyhow!("{url}: services.{wanted}: {problem}"))
}

fn line(said: &NodeService) -> String {
    let told = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    // Without finished requests there is no delay: the previous value is stale.
    let delay = said.decision.measured_delay.filter(|_| said.finished > 0);
    format!(
        "{},{},{},{},{},{}\n",
        said.stepped_at,
        told(delay),
        told(said.backlog),
        told(said.jobs),
        said.decision.bound,
        said.finished
    )
}
