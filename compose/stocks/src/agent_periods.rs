//! Update periods from an agent (`GET /v1/updates`), polled about once a second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::seed::symbol;

const EVERY: Duration = Duration::from_secs(1);
/// Maximum backoff after failures, before jitter.
const MAX_WAIT: Duration = Duration::from_secs(4);
/// Time without a valid answer after which all stocks return to their own periods.
const SILENCE: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(1);
const MAX_BYTES: u64 = 16 << 20;

/// Periods by stock; missing ones have their own.
pub type Periods = Arc<HashMap<u32, Duration>>;

/// Latest periods from the agent.
#[derive(Default)]
pub struct AgentPeriods(Mutex<(u64, Periods)>);

impl AgentPeriods {
    /// Version and periods, if the version differs from the given one.
    pub fn since(&self, version: u64) -> Option<(u64, Periods)> {
        let held = self.lock();
        (held.0 != version).then(|| held.clone())
    }

    fn put(&self, periods: HashMap<u32, Duration>) {
        let mut held = self.lock();
        *held = (held.0 + 1, Arc::new(periods));
    }

    fn lock(&self) -> MutexGuard<'_, (u64, Periods)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Deserialize)]
struct Answer {
    longest: f64,
    periods: HashMap<String, f64>,
}

/// Asks until the process ends.
pub fn run(url: &str, own: &[Duration], asked: &AgentPeriods, metrics: &Metrics) {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(TIMEOUT))
        .proxy(None)
        .build();
    let agent = ureq::Agent::from(config);
    let (mut tag, mut wait) = (None, EVERY);
    let mut heard = Instant::now();
    let mut problem = String::new();
    loop {
        match ask(&agent, url, tag.as_deref(), own) {
            Ok(news) => {
                let result = if news.is_some() {
                    "changed"
                } else {
                    "unchanged"
                };
                metrics.asked(result);
                if let Some((periods, new_tag)) = news {
                    asked.put(periods);
                    tag = new_tag;
                }
                if !problem.is_empty() {
                    info!(url, "the agent tells periods again");
                    problem.clear();
                }
                (heard, wait) = (Instant::now(), EVERY);
            }
            Err(error) => {
                metrics.asked("failed");
                let text = format!("{error:#}");
                // Once a cause.
                if text != problem {
                    warn!(url, "no periods from the agent: {text}");
                    problem = text;
                }
                wait = (2 * wait).min(MAX_WAIT);
            }
        }
        let silence = heard.elapsed();
        if silence >= SILENCE && asked.since(0).is_some_and(|(_, held)| !held.is_empty()) {
            warn!(
                url,
                "silent for {silence:.1?}: all stocks have their own periods"
            );
            asked.put(HashMap::new());
            tag = None;
        }
        // Nodes that failed together do not ask together.
        let varied = wait.mul_f64(rand::random_range(0.75..1.25));
        let left = SILENCE.saturating_sub(silence);
        std::thread::sleep(if left.is_zero() {
            varied
        } else {
            varied.min(left)
        });
    }
}

type News = Option<(HashMap<u32, Duration>, Option<String>)>;

fn ask(agent: &ureq::Agent, url: &str, tag: Option<&str>, own: &[Duration]) -> Result<News> {
    let mut request = agent.get(url);
    if let Some(tag) = tag {
        request = request.header("if-none-match", tag);
    }
    let mut response = request.call()?;
    match response.status().as_u16() {
        304 if tag.is_some() => return Ok(None),
        200 => {}
        status => bail!("status {status}"),
    }
    let tag = response.headers().get("etag");
    let tag = tag.and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let body = response.body_mut().with_config().limit(MAX_BYTES);
    let periods = read(&body.read_to_vec()?, own)?;
    Ok(Some((periods, tag)))
}

/// Parses an answer. Any invalid part invalidates all of it, as it then is not from this node's agent.
fn read(body: &[u8], own: &[Duration]) -> Result<HashMap<u32, Duration>> {
    let answer: Answer = serde_json::from_slice(body).context("not what an agent answers")?;
    let periods = answer.periods.iter().map(|(name, &seconds)| {
        let stock = name.strip_prefix('S').and_then(|id| id.parse::<u32>().ok());
        let stock = stock.filter(|&stock| symbol(stock) == *name);
        let known = stock.and_then(|stock| Some((stock, *own.get(stock as usize)?)));
        let (stock, own) = known.with_context(|| format!("{name:?} is no stock here"))?;
        let period = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        ensure!(
            seconds <= answer.longest && period >= own,
            "{name}: a period of {seconds} s, where its own is {own:?} and the longest {} s",
            answer.longest
        );
        Ok((stock, period))
    });
    periods.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const OWN: [Duration; 2] = [Duration::from_millis(500); 2];

    #[test]
    fn partly_invalid_answer_is_refused() {
        let good = r#"{"service":"s","version":3,"longest":5.0,"periods":{"S0001":2.5}}"#;
        let periods = read(good.as_bytes(), &OWN).unwrap();
        assert_eq!(periods, HashMap::from([(1, Duration::from_millis(2500))]));
        for (wrong, why) in [
            ("", "not what an agent answers"),
            ("{}", "not what an agent answers"),
            (r#"{"longest":5,"periods":{"S0001":NaN}}"#, "not what"),
            (r#"{"longest":5,"periods":{"S0001":2,"S0002":2}}"#, "S0002"),
            (r#"{"longest":5,"periods":{"S1":2}}"#, "no stock"),
            (r#"{"longest":5,"periods":{"S+001":2}}"#, "no stock"),
            (r#"{"longest":5,"periods":{"\u0000":2}}"#, "no stock"),
            (r#"{"longest":5,"periods":{"S0001":0.1}}"#, "own is 500ms"),
            (r#"{"longest":5,"periods":{"S0001":-1}}"#, "own is 500ms"),
            (r#"{"longest":5,"periods":{"S0001":6}}"#, "longest 5 s"),
            (r#"{"longest":1e300,"periods":{"S0001":1e300}}"#, "own is"),
        ] {
            let problem = format!("{:#}", read(wrong.as_bytes(), &OWN).unwrap_err());
            assert!(problem.contains(why), "{wrong}: {problem}");
        }
    }
}
