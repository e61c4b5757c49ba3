//! What a loop consists of, besides its controller and its source.

use plimsoll_core::{Law, NodeController};
use plimsoll_signal::{
    health_probe::{self, Verdict},
    role::RoleWatch,
    updates::Updates,
};
use tokio::{sync::watch, task::JoinHandle};

use super::{LoopContext, ServiceConfig};
use crate::learned::LearnedStore;

/// The probe's task, and the sender that keeps a service without one up.
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

/// A load line that knows nothing goes on from what was learned before.
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

/// A probe begins with what is known, so that a reload does not send work to a node that is down.
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
