//! Restarts tasks that panic, and logs and counts each panic.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use prometheus::IntCounter;
use tracing::error;

/// If one task panics more often than this within [`PANIC_WINDOW`], the process exits.
const MAX_PANICS: usize = 5;
/// Window in which panics are counted against [`MAX_PANICS`].
const PANIC_WINDOW: Duration = Duration::from_secs(60);

/// Runs a task and restarts it after each panic, which it counts; fails if the task keeps panicking.
pub async fn keep_running<F>(
    task: &str,
    restarts: &IntCounter,
    mut start: impl FnMut() -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut panics: VecDeque<Instant> = VecDeque::new();
    loop {
        let problem = match tokio::spawn(start()).await {
            Ok(result) => return result.with_context(|| task.to_owned()),
            Err(problem) => problem,
        };
        let now = Instant::now();
        panics.retain(|at| now.duration_since(*at) < PANIC_WINDOW);
        panics.push_back(now);
        if panics.len() > MAX_PANICS {
            bail!(
                "{task} panicked {} times within a minute, last: {problem}",
                panics.len()
            );
        }
        error!("{task} panicked, restarting it: {problem}");
        restarts.inc();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn restarts() -> IntCounter {
        IntCounter::new("restarts", "Restarts.").unwrap()
    }

    #[tokio::test]
    async fn a_loop_that_panics_is_started_again_and_counted() {
        let (restarts, mut runs) = (restarts(), 0);
        let ended = keep_running("stocks", &restarts, || {
            runs += 1;
            let fine = runs == 3;
            async move {
                assert!(fine, "on purpose");
                Ok(())
            }
        });
        ended.await.unwrap();
        assert_eq!((runs, restarts.get()), (3, 2));
    }

    #[tokio::test]
    async fn a_loop_that_keeps_panicking_ends_the_agent() {
        let restarts = restarts();
        let error = keep_running("stocks", &restarts, || async { panic!("on purpose") })
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("stocks panicked 6 times"), "{error}");
        assert!(error.contains("on purpose"), "{error}");
        assert_eq!(restarts.get(), MAX_PANICS as u64);
    }

    #[tokio::test]
    async fn an_error_ends_the_agent_at_once() {
        let restarts = restarts();
        let ended = keep_running("stocks", &restarts, || async { bail!("no way on") }).await;
        let error = format!("{:#}", ended.unwrap_err());
        assert_eq!(error, "stocks: no way on");
        assert_eq!(restarts.get(), 0);
    }
}
