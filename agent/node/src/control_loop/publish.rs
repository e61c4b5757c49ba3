//! Publishes the results of a step.

use std::sync::Arc;

use plimsoll_core::{Cost, Law, Observation};
use plimsoll_signal::{health_probe::Health, source_error::SourceError};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{LoopContext, Service, refusals::RefusalMeter};
use crate::state::{DelaySummary, NodeState, ServiceState};

impl Service {
    pub(super) fn note(&mut self, observation: &Observation) {
        let delays = &observation.delays;
        let quantile = |q| delays.quantile(q);
        if let (Some(mean), Some(p50), Some(p95), Some(p99)) =
            (delays.mean(), quantile(0.5), quantile(0.95), quantile(0.99))
        {
            self.last.delay = Some(DelaySummary {
                mean,
                p50,
                p95,
                p99,
            });
        }
        self.last.finished = delays.count();
        self.last.failed = observation.failed;
        self.last.jobs = observation.jobs;
        self.last.seconds = Some(observation.period.get());
        self.last.observed_at = Some(self.last.stepped_at);
    }

    pub(super) fn note_load(&mut self, context: &LoopContext, error: Option<SourceError>) {
        let service = self.config.service.name.as_str();
        let error = error.map(|error| error.to_string());
        if let Some(message) = &error {
            context.metrics.source.failed(service, "load");
            // Log once per cause, not once per period.
            if self.last.load_error != error {
                warn!(%service, kind = "load", "the host's load is unavailable, the last one is used until it expires: {message}");
            }
        } else if self.last.load_error.is_some() {
            info!(%service, "the host's load is known again");
        }
        self.last.load_error = error;
    }

    /// Load of the host; if not configured or unknown, the ratio of the delay to the SLA's target.
    pub(super) fn load(&self) -> f64 {
        let target = self.config.service.settings.sla.target().get();
        let delay = self.controller.decision().control_delay;
        let of_delay = || delay.map_or(0.0, |delay| delay.get() / target);
        let of_host = self.host_load.load(Instant::now());
        of_host.unwrap_or_else(of_delay)
    }

    pub(super) fn measure(&mut self, observation: &Observation) {
        let decision = self.controller.decision();
        // The drop fraction is the same for all nodes, which cannot hold each node at the few jobs of a standing bound.
        let bound = decision.capacity.unwrap_or(decision.bound).get();
        let mean_cost = decision.mean_cost.get();
        self.last.flow = self.meter.measure(observation, mean_cost, bound);
    }

    /// Estimates the cost that the bound in force would have refused in the period. Only in mode `observe`.
    pub(super) fn note_refusals(&mut self, context: &LoopContext, observation: &Observation) {
        let service = &self.config.service;
        let flow = self.last.flow.filter(|_| service.settings.mode.observes());
        let Some(flow) = flow else {
            self.refusals = RefusalMeter::default();
            self.last.would_refuse = None;
            return;
        };
        let decision = self.controller.decision();
        let (mean_cost, bound) = (decision.mean_cost, decision.previous);
        let refused = self.refusals.step(observation, &flow, mean_cost, bound);
        if let Some(refused) = refused {
            let control = &context.metrics.control;
            control.would_refuse(&service.name, refused);
        }
        let seconds = observation.period.get();
        self.last.would_refuse = refused.map(|refused| refused.get() / seconds);
    }

    pub(super) fn publish(&mut self, context: &LoopContext) {
        let Some(stepped) = self.last.stepped else {
            return;
        };
        let decision = self.controller.decision();
        let probe = self.verdict.borrow_and_update().clone();
        let role = self.role.as_ref();
        let role = role.map(|role| role.state(std::time::Instant::now()));
        let stale = role.as_ref().filter(|role| !role.takes_reads);
        let (health, health_detail) = match (probe.health, stale) {
            (Health::Up, Some(role)) => (Health::Down, role.detail.clone()),
            (health, _) => (health, probe.detail.clone()),
        };
        let set = context.overrides.of(&self.config.service.name);
        let is_load_line = self.config.service.settings.law == Law::LoadLine;
        let capacity = match decision.capacity.filter(|_| set.bound.is_none()) {
            // An operator's bound replaces the capacity, too.
            None if is_load_line && set.bound.is_none() => None,
            capacity => Some(capacity.unwrap_or(decision.bound)),
        };
        let carried = capacity.unwrap_or(decision.bound).get();
        let weight_bound = match set.weight_percent {
            Some(percent) => {
                let full = self.config.service.full_weight_bound;
                full.map_or(carried, Cost::get) * f64::from(percent) / 100.0
            }
            None => self.weight_bound.hold(carried),
        };
        let last = &self.last;
        let state = Arc::new(ServiceState {
            service: self.config.service.name.clone(),
            address: self.config.service.address.clone(),
            settings: self.config.service.settings,
            decision,
            weight_percent: self.scale.percent(capacity),
            capacity,
            weight_bound: Cost(weight_bound),
            flow: last.flow,
            would_refuse: last.would_refuse,
            observed_seconds: last.seconds,
            health,
            health_detail,
            probe,
            role,
            finished: last.finished,
            failed: last.failed,
            delay: last.delay,
            jobs: last.jobs,
            host_load: self.host_load.known(Instant::now()),
            load: self.load(),
            updates: self
                .updates
                .as_ref()
                .map(|updates| Arc::new(updates.state())),
            backlog: last.jobs.map(|jobs| Cost(jobs * decision.mean_cost.get())),
            stepped_at: last.stepped_at,
            stepped: stepped.into_std(),
            observed_at: last.observed_at,
            source_error: last.source_error.clone(),
            listen_backlog: self.observer.listen_backlog(),
            sight: self.observer.sight(),
        });
        context.metrics.show(&state, &set);
        context.state.rcu(|all| {
            let mut services = all.services.clone();
            services.insert(state.service.clone(), Arc::clone(&state));
            NodeState { services }
        });
    }
}
