//! The tasks of each service: its control loop and, if it has one, its ring.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use plimsoll_node::{
    control_loop::{self, LoopConfig},
    ring,
};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::shared::Shared;
use crate::{config::Config, keep_running::keep_running};

/// One control loop per service.
#[derive(Default)]
pub struct Loops {
    /// By service name, until the loop has ended.
    running: BTreeMap<String, (watch::Sender<LoopConfig>, CancellationToken)>,
    tasks: JoinSet<anyhow::Result<String>>,
}

impl Loops {
    /// Starts, reconfigures and stops loops to match the configuration.
    pub fn reconcile(&mut self, shared: &Shared, config: &Config) {
        for (name, (_, stop)) in &self.running {
            if !config.services.iter().any(|s| s.name == *name) {
                stop.cancel();
            }
        }
        for service in &config.services {
            let config = LoopConfig {
                period: config.period,
                jitter: config.jitter,
                service: service.clone(),
            };
            match self.running.get(&service.name) {
                // A loop that is still stopping is restarted once it has ended.
                Some((_, stop)) if stop.is_cancelled() => {}
                Some((sender, _)) => {
                    sender.send_if_modified(|old| {
                        let changed = *old != config;
                        *old = config;
                        changed
                    });
                }
                None => self.start(shared, config),
            }
        }
    }

    fn start(&mut self, shared: &Shared, config: LoopConfig) {
        let name = config.service.name.clone();
        let (sender, receiver) = watch::channel(config);
        let stop = CancellationToken::new();
        self.running.insert(name.clone(), (sender, stop.clone()));
        let context = shared.loop_context(receiver, stop);
        let restarts = &shared.metrics.agent.task_restarts;
        let restarts = restarts.with_label_values(&["control_loop"]);
        self.tasks.spawn(async move {
            let task = format!("control loop of {name}");
            keep_running(&task, &restarts, || control_loop::run(context.clone())).await?;
            Ok(name)
        });
    }

    /// Waits for a loop to end, and returns an error unless it was stopped. Only then is the service removed from
    /// view, since its loop publishes until the end.
    pub async fn ended(&mut self, shared: &Shared) -> Option<anyhow::Result<()>> {
        let ended = self.tasks.join_next().await?;
        Some(self.take_out(ended, shared))
    }

    fn take_out(
        &mut self,
        ended: Result<anyhow::Result<String>, tokio::task::JoinError>,
        shared: &Shared,
    ) -> anyhow::Result<()> {
        let service = ended.context("a control loop ended")??;
        match self.running.remove(&service) {
            Some((_, stop)) if stop.is_cancelled() => shared.forget(&service),
            _ => bail!("control loop of {service} ended unexpectedly"),
        }
        Ok(())
    }
}

/// One task per service with a ring.
#[derive(Default)]
pub struct Rings {
    /// Cancellation token by service name; when cancelled, the task leaves its ring.
    running: BTreeMap<String, CancellationToken>,
    tasks: JoinSet<anyhow::Result<()>>,
}

impl Rings {
    /// Starts and stops tasks to match the configuration.
    pub fn reconcile(&mut self, shared: &Shared, config: &Config) {
        let ringed = || config.services.iter().filter(|it| it.ring.is_some());
        self.running.retain(|name, stop| {
            let stays = ringed().any(|service| service.name == *name);
            if !stays {
                stop.cancel();
                shared.rings.forget(name);
                shared.observations.forget(name);
            }
            stays
        });
        for service in ringed() {
            if !self.running.contains_key(&service.name) {
                self.start(shared, service.name.clone());
            }
        }
    }

    fn start(&mut self, shared: &Shared, name: String) {
        let stop = CancellationToken::new();
        self.running.insert(name.clone(), stop.clone());
        let context = shared.ring_context(stop);
        let restarts = &shared.metrics.agent.task_restarts;
        let restarts = restarts.with_label_values(&["ring"]);
        self.tasks.spawn(async move {
            let task = format!("ring of {name}");
            let start = || ring::run(name.clone(), context.clone());
            keep_running(&task, &restarts, start).await
        });
    }

    /// Waits for a task to end; `None` if there are no tasks.
    pub async fn ended(&mut self) -> Option<anyhow::Result<()>> {
        let ended = self.tasks.join_next().await?;
        Some(ended.context("a ring task ended").and_then(|result| result))
    }

    /// Tells all tasks to leave their rings.
    pub fn stop(&mut self) {
        for (_, stop) in std::mem::take(&mut self.running) {
            stop.cancel();
        }
    }
}
