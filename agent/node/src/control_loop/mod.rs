//! Control loop of one service. Once a period: observe, step the controller, publish.

mod control_metrics;
mod metrics;
mod observe;
mod parts;
mod publish;
mod refusals;
mod request_metrics;
mod service;
mod settings;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use plimsoll_core::{
    Cost, DeadBand, Decision, Flow, FlowMeter, NodeController, Observation, Reason, WeightScale,
};
use plimsoll_scatter::partition::Partitions;
use plimsoll_signal::{
    health_probe::Verdict,
    host_load::HostLoad,
    role::RoleWatch,
    sources::{ObservationBoard, SourceContext},
    updates::Updates,
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    history::Histories,
    learned::LearnedStore,
    overrides::Overrides,
    state::{DelaySummary, SharedState, unix_now},
};
use observe::{Observed, Observer};
use parts::{Probe, recalled, start_probe, start_role, start_updates};
use refusals::RefusalMeter;

pub use control_metrics::ControlMetrics;
pub use metrics::LoopMetrics;
pub use request_metrics::RequestMetrics;
pub use service::{OutputSection, SendWords, ServiceConfig, ServiceSection, service};
pub use settings::{BoundSection, ControllerSection, RulesSection, SlaSection};

/// Number of times per period that jobs are checked, including by the step itself.
const LOOKS: u32 = 4;
/// Factor by which jobs must have grown since they last ended a period early, to do so again.
const FLOOD_GROWTH: f64 = 1.2;

/// Configuration of a loop; a reload sends a new one.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopConfig {
    /// Sampling period.
    pub period: Duration,
    /// Maximum random variation of each period, as a share of `period`.
    pub jitter: f64,
    /// The service under control.
    pub service: ServiceConfig,
}

/// Shared state that a loop needs.
#[derive(Clone, Debug)]
pub struct LoopContext {
    /// Snapshot that it publishes to.
    pub state: SharedState,
    /// Operators' overrides.
    pub overrides: Arc<Overrides>,
    /// Metrics of all loops.
    pub metrics: LoopMetrics,
    /// Observations that proxies reported to Redis.
    pub observations: Arc<ObservationBoard>,
    /// Partitions that this agent queries.
    pub partitions: Arc<Partitions>,
    /// Current configuration.
    pub config: watch::Receiver<LoopConfig>,
    /// Controller after its last step, from which a loop restarted after a panic continues.
    pub kept: Arc<Mutex<Option<NodeController>>>,
    /// Figures learned about the node, in this run and earlier ones.
    pub learned: Arc<LearnedStore>,
    /// Figures of the last ten minutes.
    pub histories: Arc<Histories>,
    /// Cancels the loop.
    pub stop: CancellationToken,
}

/// Runs until cancelled or until the sender of the configuration is dropped. Fails if the settings are invalid or the
/// health probe ended.
pub async fn run(mut context: LoopContext) -> anyhow::Result<()> {
    let config = context.config.borrow_and_update().clone();
    context.metrics.announce(&config.service);
    let mut service = Service::new(config, &context)?;
    let mut next = Instant::now();
    let mut look = next;
    loop {
        let between = service.config.period / LOOKS;
        tokio::select! {
            () = context.stop.cancelled() => return Ok(()),
            () = tokio::time::sleep_until(next) => {
                let began = Instant::now();
                tokio::select! {
                    () = context.stop.cancelled() => return Ok(()),
                    () = service.period(&context) => {}
                }
                next = began + service.next_period();
                look = began + between;
            }
            // Skip the check right before a step.
            () = tokio::time::sleep_until(look), if look + between / 2 < next => {
                let now = Instant::now();
                if service.hurries() || service.has_news() {
                    next = now;
                }
                look = now + between;
            }
            changed = service.verdict.changed() => match changed {
                // Publish at once: proxies should not have to wait for the end of the period.
                Ok(()) => service.publish(&context),
                // The sender's task ends only by a panic.
                Err(_) => anyhow::bail!("the health probe ended"),
            },
            changed = context.config.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let config = context.config.borrow_and_update().clone();
                context.metrics.announce(&config.service);
                service.reconfigure(config, &context)?;
                // A change of mode takes effect at once.
                service.publish(&context);
            }
        }
    }
}

struct Service {
    config: LoopConfig,
    controller: NodeController,
    scale: WeightScale,
    weight_bound: DeadBand,
    meter: FlowMeter,
    refusals: RefusalMeter,
    observer: Observer,
    host_load: HostLoad,
    updates: Option<Updates>,
    role: Option<RoleWatch>,
    verdict: watch::Receiver<Verdict>,
    probe: Probe,
    last: Last,
    /// Number of jobs that last ended a period early; 0 if they are not flooding now.
    hurried: f64,
}

/// Results of the last period, to be published.
#[derive(Default)]
struct Last {
    finished: u64,
    failed: u64,
    delay: Option<DelaySummary>,
    jobs: Option<f64>,
    flow: Option<Flow>,
    would_refuse: Option<f64>,
    seconds: Option<f64>,
    stepped: Option<Instant>,
    stepped_at: f64,
    observed_at: Option<f64>,
    source_error: Option<String>,
    load_error: Option<String>,
    reason: Option<Reason>,
}

impl Service {
    fn new(config: LoopConfig, context: &LoopContext) -> anyhow::Result<Self> {
        let state = context.state.load();
        let known = state.services.get(&config.service.name);
        let known = known.map_or_else(Verdict::up, |state| state.probe.clone());
        let (verdict, probe) = start_probe(&config.service, known);
        let controller = match lock(&context.kept).clone() {
            Some(mut kept) => {
                kept.reconfigure(config.service.settings)?;
                kept
            }
            None => NodeController::new(config.service.settings)?,
        };
        let controller = recalled(controller, &config.service, &context.learned);
        Ok(Service {
            controller,
            scale: WeightScale::new(
                config.service.full_weight_bound,
                config.service.weight_dead_band,
            ),
            weight_bound: DeadBand::new(config.service.weight_dead_band),
            meter: FlowMeter::default(),
            refusals: RefusalMeter::default(),
            observer: Observer::new(
                config.service.clone(),
                SourceContext {
                    metrics: context.metrics.source.clone(),
                    observations: Arc::clone(&context.observations),
                    partitions: Arc::clone(&context.partitions),
                },
            ),
            host_load: HostLoad::new(&config.service.load, config.period),
            updates: start_updates(&config.service, context),
            role: start_role(&config.service),
            verdict,
            probe,
            last: Last::default(),
            hurried: 0.0,
            config,
        })
    }

    fn reconfigure(&mut self, config: LoopConfig, context: &LoopContext) -> anyhow::Result<()> {
        let (old, new) = (&self.config.service, &config.service);
        self.controller.reconfigure(new.settings)?;
        self.controller = recalled(self.controller.clone(), new, &context.learned);
        if (old.full_weight_bound, old.weight_dead_band)
            != (new.full_weight_bound, new.weight_dead_band)
        {
            self.scale = WeightScale::new(new.full_weight_bound, new.weight_dead_band);
            self.weight_bound = DeadBand::new(new.weight_dead_band);
        }
        if old.health != new.health {
            let known = self.verdict.borrow().clone();
            (self.verdict, self.probe) = start_probe(new, known);
        }
        // A change of mode resets the update periods.
        let is_other_mode = old.settings.mode != new.settings.mode;
        let is_same = match (&self.updates, &new.updates) {
            (Some(updates), Some(settings)) => updates.is_for(settings) && !is_other_mode,
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            self.updates = start_updates(new, context);
        }
        let is_same = match (&self.role, &new.role) {
            (Some(role), Some(config)) => role.is_for(config),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            self.role = start_role(new);
        }
        self.observer.reconfigure(new.clone());
        self.host_load.reconfigure(&new.load, config.period);
        self.config = config;
        Ok(())
    }

    fn next_period(&self) -> Duration {
        let jitter = self.config.jitter * (2.0 * fastrand::f64() - 1.0);
        self.config.period.mul_f64(1.0 + jitter)
    }

    async fn period(&mut self, context: &LoopContext) {
        let list = async {
            match &self.updates {
                Some(updates) => Some(updates.fetch().await),
                None => None,
            }
        };
        let role = async {
            let role = self.role.as_mut()?;
            role.look().await.err()
        };
        let (observed, load, listed, role_error) = tokio::join!(
            self.observer.observe(),
            self.host_load.read(Instant::now()),
            list,
            role
        );
        self.note_load(context, load.err());
        let name = &self.config.service.name;
        if let Some(error) = role_error {
            context.metrics.source.failed(name, error.kind);
        }
        self.controller.force(context.overrides.forced_bound(name));
        self.last.stepped = Some(Instant::now());
        self.last.stepped_at = unix_now();
        let error = match observed {
            Ok(Observed::Base) => None,
            Ok(Observed::Period(observation)) => {
                self.note(&observation);
                self.step(Some(&*observation));
                self.measure(&observation);
                self.note_refusals(context, &observation);
                let (service, at) = (&self.config.service, self.last.stepped_at);
                let sla = service.settings.sla.delay;
                context
                    .metrics
                    .observed(&service.name, sla, &observation, at);
                None
            }
            Err(error) => {
                context.metrics.source.failed(name, error.kind);
                let message = error.to_string();
                // Log once per cause, not once per period.
                if self.last.source_error.as_ref() != Some(&message) {
                    let so = match error.is_late() {
                        true => "the source timed out",
                        false => "the last good bound is held",
                    };
                    warn!(service = %name, kind = error.kind, "no observation, {so}: {message}");
                }
                if let Some(waited) = self.observer.late() {
                    let jobs = self.observer.jobs_when_late();
                    let decision = self.controller.step_late(waited, jobs);
                    self.log(&decision);
                } else {
                    self.step(None);
                }
                self.last.flow = None;
                self.last.would_refuse = None;
                self.last.seconds = None;
                Some(message)
            }
        };
        if error.is_none() && self.last.source_error.is_some() {
            info!(service = %self.config.service.name, "the source works again");
        }
        self.last.source_error = error;
        let obeyed = !self.config.service.settings.mode.observes();
        if let (Some(updates), Some(listed), true) = (&mut self.updates, listed, obeyed) {
            let work = self.last.flow.map_or(Cost(0.0), |flow| Cost(flow.ended));
            let now = std::time::Instant::now();
            updates.step(listed, &self.controller.decision(), work, now);
        }
        self.decided(context);
    }

    /// True if the number of jobs, as far as known without I/O, requires the next step at once.
    fn hurries(&mut self) -> bool {
        let jobs = self
            .observer
            .jobs_now()
            .filter(|_| self.last.stepped.is_some());
        let Some(jobs) = jobs.filter(|jobs| self.controller.is_flooded(*jobs)) else {
            self.hurried = 0.0;
            return false;
        };
        // Idle connections may count as jobs: hurry only if the number has grown.
        let is_news = jobs > FLOOD_GROWTH * self.hurried;
        if is_news {
            self.hurried = jobs;
        }
        is_news
    }

    /// True if the source has new data and half a period has passed since the last step.
    fn has_news(&self) -> bool {
        let rested = self.last.stepped.map(|stepped| stepped.elapsed());
        rested.is_some_and(|rested| rested >= self.config.period / 2) && self.observer.has_news()
    }

    /// Stores and publishes the last decision.
    fn decided(&mut self, context: &LoopContext) {
        *lock(&context.kept) = Some(self.controller.clone());
        let service = &self.config.service.name;
        let now = std::time::Instant::now();
        context
            .learned
            .note(service, self.controller.learned(), now);
        self.publish(context);
        let state = context.state.load();
        let Some(state) = state.services.get(&self.config.service.name) else {
            return;
        };
        context.histories.note(state);
        if self.last.reason.is_some() {
            context.metrics.control.stepped(state);
        }
    }

    fn step(&mut self, observation: Option<&Observation>) {
        let decision = self.controller.step(observation);
        self.log(&decision);
    }

    fn log(&mut self, decision: &Decision) {
        let service = &self.config.service.name;
        let (bound, was) = (decision.bound.get(), decision.previous.get());
        let delay = decision.measured_delay.map(|d| d.get());
        if self.last.reason.replace(decision.reason) == Some(decision.reason) {
            debug!(%service, reason = %decision.reason, bound, was, delay, error = decision.error, "step");
        } else {
            info!(%service, reason = %decision.reason, bound, was, delay, error = decision.error, "bound follows another rule");
        }
    }
}

fn lock(kept: &Mutex<Option<NodeController>>) -> std::sync::MutexGuard<'_, Option<NodeController>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arc_swap::ArcSwap;
    use plimsoll_scatter::partition::PartitionMetrics;
    use prometheus::Registry;

    use plimsoll_signal::health_probe::Health;

    use super::*;
    use crate::state::NodeState;
    use plimsoll_exposition::Catalogue;

    const CONFIG: &str = r#"
name = "stocks"
[sla]
delay = "1s"
[bound]
nominal = 64
[source]
kind = "haproxy-log"
listen = "udp://127.0.0.1:5514"
node = "queries/node1"
[health]
kind = "tcp"
address = "127.0.0.1:8001"
"#;

    #[tokio::test]
    async fn a_loop_started_again_goes_on_from_the_last_good_step() {
        let period = Duration::from_secs(1);
        let section = toml::from_str(CONFIG).unwrap();
        let config = LoopConfig {
            period,
            jitter: 0.05,
            service: service("service[0]", section, period, false).unwrap(),
        };
        let (_sender, receiver) = watch::channel(config.clone());
        let registry = Registry::new();
        let mut catalogue = Catalogue::new(&registry);
        let partitions = PartitionMetrics::new(&mut catalogue).unwrap();
        let context = LoopContext {
            state: Arc::new(ArcSwap::from_pointee(NodeState::default())),
            overrides: Arc::new(Overrides::load(None).unwrap()),
            partitions: Arc::new(Partitions::new(partitions).unwrap()),
            metrics: LoopMetrics::new(&mut catalogue).unwrap(),
            observations: Arc::default(),
            config: receiver,
            kept: Arc::default(),
            learned: Arc::default(),
            histories: Arc::default(),
            stop: CancellationToken::new(),
        };
        let mut first = Service::new(config.clone(), &context).unwrap();
        first.controller.force(Some(Cost(20.0)));
        first.controller.step(None);
        first.last.stepped = Some(Instant::now());
        let (sender, down) = watch::channel(Verdict {
            health: Health::Down,
            detail: Some("refused".into()),
        });
        first.verdict = down;
        first.publish(&context);
        *lock(&context.kept) = Some(first.controller.clone());
        drop((first, sender));

        let again = Service::new(config, &context).unwrap();
        assert_eq!(again.controller.decision().bound, Cost(20.0));
        assert_eq!(again.verdict.borrow().health, Health::Down);
    }
}
