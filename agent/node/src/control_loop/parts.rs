//! Creates the parts of a control loop other than its controller and source.

use plimsoll_core::{Law, NodeController};
use plimsoll_signal::{
    health_probe::{self, Verdict},
    role::RoleWatch,
    updates::Updates,
};
use tokio::{sync::watch, task::JoinHandle};

use super::{LoopContext, ServiceConfig};
use crate::learned::LearnedStore;

/// Task of the local probe, aborted on drop; or the sender that keeps a service without a probe up.
pub enum Probe {
    Task(JoinHandle<()>),
    AlwaysUp { _verdict: watch::Sender<Verdict> },
}

impl Drop for Probe {
    fn drop(&mut self) {
        if let Probe::Task(task) = self {
            task.abort();
        }
    }
}

/// Restores the learned figures of a load-line controller that has none yet.
pub fn recalled(
    mut controller: NodeController,
    service: &ServiceConfig,
    learned: &LearnedStore,
) -> NodeController {
    if service.settings.law == Law::LoadLine
        && controller.learned().is_none()
        && let Some(before) = learned.of(&service.name)
    {
        controller.recall(before);
    }
    controller
}

/// Starts the probe with the last known verdict, so that a reload does not send requests to a node that is down.
pub fn start_probe(service: &ServiceConfig, known: Verdict) -> (watch::Receiver<Verdict>, Probe) {
    let Some(health) = &service.health else {
        let (sender, verdict) = watch::channel(Verdict::up());
        return (verdict, Probe::AlwaysUp { _verdict: sender });
    };
    let (sender, verdict) = watch::channel(known);
    let probe = Probe::Task(tokio::spawn(health_probe::run(health.clone(), sender)));
    (verdict, probe)
}

pub fn start_updates(service: &ServiceConfig, context: &LoopContext) -> Option<Updates> {
    let settings = service.updates.clone()?;
    let metrics = context.metrics.updates.clone();
    let now = std::time::Instant::now();
    Some(Updates::new(&service.name, settings, metrics, now))
}

pub fn start_role(service: &ServiceConfig) -> Option<RoleWatch> {
    let config = service.role.clone()?;
    Some(RoleWatch::new(&service.name, config))
}
