//! Metrics of the control loops' measurements and decisions.

use plimsoll_core::{Cost, Objective, Reason};
use plimsoll_exposition::{Catalogue, Label, Services, show};
use plimsoll_signal::health_probe::Health;
use prometheus::{CounterVec, GaugeVec, IntCounterVec, Result};

use crate::{overrides::ServiceOverride, state::ServiceState};

const COST: &str = "cost units";
const RATIO: &str = "ratio";

/// Metrics of the control loops' measurements and decisions.
#[derive(Clone, Debug)]
pub struct ControlMetrics {
    sla_delay: GaugeVec,
    sla_target: GaugeVec,
    sla_objective: GaugeVec,
    sla_settling: GaugeVec,
    delay: GaugeVec,
    mean_delay: GaugeVec,
    control_delay: GaugeVec,
    error: GaugeVec,
    bound: GaugeVec,
    bound_min: GaugeVec,
    bound_max: GaugeVec,
    bound_nominal: GaugeVec,
    capacity: GaugeVec,
    bound_jobs: GaugeVec,
    backlog: GaugeVec,
    recent_peak: GaugeVec,
    jobs: GaugeVec,
    load: GaugeVec,
    cpu_load: GaugeVec,
    network_load: GaugeVec,
    mean_cost: GaugeVec,
    weight: GaugeVec,
    up: GaugeVec,
    observes: GaugeVec,
    would_refuse: CounterVec,
    overridden: GaugeVec,
    gain: GaugeVec,
    bound_changes: IntCounterVec,
    steps: IntCounterVec,
    pub(super) services: Services,
}

impl ControlMetrics {
    /// Registers the metrics in the catalogue.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        catalogue.section("SLA");
        let service = [Label::service()];
        let mut sla = |name, unit, help| catalogue.gauges(name, unit, help, &service);
        let sla_delay = sla(
            "plimsoll_sla_delay_seconds",
            "seconds",
            "Service delay promised.",
        )?;
        let sla_target = sla(
            "plimsoll_sla_target_seconds",
            "seconds",
            "Delay the controller aims at: the SLA's times its set point.",
        )?;
        let sla_objective = sla(
            "plimsoll_sla_objective_ratio",
            RATIO,
            "Share of the requests whose delay is held at the target; absent where the mean is.",
        )?;
        let sla_settling = sla(
            "plimsoll_sla_settling_seconds",
            "seconds",
            "Time within which a transient must be over.",
        )?;
        catalogue.section("Control loop");
        let reasons = [
            Label::service(),
            Label::one_of("reason", Reason::ALL.map(Reason::as_str)),
        ];
        let percentiles = [
            Label::service(),
            Label::one_of("percentile", ["p50", "p95", "p99"]),
        ];
        let what = [
            Label::service(),
            Label::one_of("what", ["drain", "health", "weight", "bound"]),
        ];
        let gains = [Label::service(), Label::one_of("gain", ["kp", "ki"])];
        let delay = catalogue.gauges(
            "plimsoll_delay_seconds",
            "seconds",
            "Delay of the requests finished in the last period that had any, by percentile.",
            &percentiles,
        )?;
        let mut gauge = |name, unit, help| catalogue.gauges(name, unit, help, &service);
        Ok(ControlMetrics {
            sla_delay,
            sla_target,
            sla_objective,
            sla_settling,
            delay,
            mean_delay: gauge(
                "plimsoll_mean_delay_seconds",
                "seconds",
                "Mean delay of the requests finished in the last period that had any.",
            )?,
            control_delay: gauge(
                "plimsoll_control_delay_seconds",
                "seconds",
                "Delay the law worked on in the last step: the objective's, or what unfinished work foretells; absent where it had none.",
            )?,
            error: gauge(
                "plimsoll_error_ratio",
                RATIO,
                "Error the law last worked on, relative to the target, -1 to 1: positive when there is room.",
            )?,
            bound: gauge("plimsoll_bound", COST, "Backlog bound.")?,
            bound_min: gauge("plimsoll_bound_min", COST, "The least the bound may be.")?,
            bound_max: gauge("plimsoll_bound_max", COST, "The most the bound may be.")?,
            bound_nominal: gauge(
                "plimsoll_bound_nominal",
                COST,
                "The configured bound to begin with; absent where there is none.",
            )?,
            capacity: gauge(
                "plimsoll_capacity",
                COST,
                "What weights and shares of keys go by: the backlog that finishes within the target when the node is full, as learned, or an operator's bound; with the papers' laws the bound. Absent while nothing has waited yet.",
            )?,
            bound_jobs: gauge(
                "plimsoll_bound_jobs",
                "jobs",
                "Backlog bound over the mean cost, at least 1.",
            )?,
            backlog: gauge(
                "plimsoll_backlog",
                COST,
                "Backlog: jobs times mean cost; absent while jobs are unknown.",
            )?,
            recent_peak: gauge(
                "plimsoll_recent_peak",
                COST,
                "Recent peak of the backlog, decaying; it limits how far the bound may rise.",
            )?,
            jobs: gauge(
                "plimsoll_jobs",
                "jobs",
                "Jobs in the node; absent while they are unknown.",
            )?,
            load: gauge(
                "plimsoll_load",
                "1 at the limit",
                "What schedulers are told is the node's load: the delay over the SLA's target, or the host's load (`service.load`).",
            )?,
            cpu_load: gauge(
                "plimsoll_cpu_load",
                "1 a CPU in full use",
                "CPU load of the host, or of what the service may use of it: the share used, and from 95 % on how many wait for each CPU; absent where it is not measured or not known.",
            )?,
            network_load: gauge(
                "plimsoll_network_load",
                "packets that wait",
                "Load of the busiest network interface, ρ / (1 - ρ) for a utilisation ρ; absent where it is not measured or not known.",
            )?,
            mean_cost: gauge(
                "plimsoll_mean_cost",
                "cost units a request",
                "Mean cost of a request, smoothed.",
            )?,
            weight: gauge(
                "plimsoll_weight_percent",
                "percent",
                "Weight for the bound, of the weight configured in the proxy, 1 to 256.",
            )?,
            up: gauge(
                "plimsoll_service_up",
                "1 or 0",
                "Whether the service passes its local probe, where one is configured, and its database may be read from, where `service.role` says.",
            )?,
            observes: gauge(
                "plimsoll_observes",
                "1 or 0",
                "Whether proxies are told nothing (`mode = \"observe\"`): then bound, capacity and weight are what they would be told.",
            )?,
            would_refuse: catalogue.amounts(
                "plimsoll_would_refuse_total",
                COST,
                "Work that the bound would have had refused while proxies are told nothing: what came over it, as long as jobs are known.",
                &service,
            )?,
            overridden: catalogue.gauges(
                "plimsoll_override",
                "1 or 0",
                "Whether an operator has set this by hand.",
                &what,
            )?,
            gain: catalogue.gauges(
                "plimsoll_controller_gain",
                RATIO,
                "Gains in use, on the relative error; absent where the law has none.",
                &gains,
            )?,
            bound_changes: catalogue.counters(
                "plimsoll_bound_changes_total",
                "steps",
                "Steps that moved the bound, by reason (docs/control.md).",
                &reasons,
            )?,
            steps: catalogue.counters(
                "plimsoll_steps_total",
                "steps",
                "Controller steps, by reason (docs/control.md).",
                &reasons,
            )?,
            services: catalogue.services(),
        })
    }

    /// Counts a step and, if the bound changed, the change.
    pub fn stepped(&self, state: &ServiceState) {
        let labels = [state.service.as_str(), state.decision.reason.as_str()];
        self.steps.with_label_values(&labels).inc();
        if state.decision.bound != state.decision.previous {
            self.bound_changes.with_label_values(&labels).inc();
        }
    }

    /// Adds the cost that would have been refused in a period in mode `observe`.
    pub fn would_refuse(&self, service: &str, cost: Cost) {
        self.would_refuse
            .with_label_values(&[service])
            .inc_by(cost.get());
    }

    /// Sets the gauges of a service; `set` is its overrides.
    pub fn show(&self, state: &ServiceState, set: &ServiceOverride) {
        let service = [state.service.as_str()];
        let decision = &state.decision;
        let (sla, limits) = (&state.settings.sla, &state.settings.limits);
        for (gauge, value) in [
            (&self.sla_delay, sla.delay.get()),
            (&self.sla_target, sla.target().get()),
            (&self.sla_settling, sla.settling.get()),
            (&self.bound, decision.bound.get()),
            (&self.bound_min, limits.min.get()),
            (&self.bound_max, limits.max.get()),
            (&self.bound_jobs, decision.bound_jobs),
            (&self.recent_peak, decision.recent_peak.get()),
            (&self.load, state.load),
            (&self.mean_cost, decision.mean_cost.get()),
            (&self.weight, state.weight_percent.into()),
            (&self.up, truth(state.health == Health::Up)),
            (&self.observes, truth(state.observes())),
        ] {
            gauge.with_label_values(&service).set(value);
        }
        if let Some(error) = decision.error {
            self.error.with_label_values(&service).set(error);
        }
        if let Some(delay) = &state.delay {
            self.mean_delay
                .with_label_values(&service)
                .set(delay.mean.get());
            for (percentile, value) in [("p50", delay.p50), ("p95", delay.p95), ("p99", delay.p99)]
            {
                self.delay
                    .with_label_values(&[service[0], percentile])
                    .set(value.get());
            }
        }
        let objective = match sla.objective {
            Objective::Quantile(quantile) => Some(quantile),
            Objective::Mean => None,
        };
        for (gauge, value) in [
            (&self.bound_nominal, limits.nominal.map(Cost::get)),
            (&self.capacity, state.capacity.map(Cost::get)),
            (&self.sla_objective, objective),
            (
                &self.control_delay,
                decision.control_delay.map(|delay| delay.get()),
            ),
            (&self.cpu_load, state.host_load.cpu),
            (&self.network_load, state.host_load.network),
            (&self.jobs, state.jobs),
            (&self.backlog, state.backlog.map(|backlog| backlog.get())),
        ] {
            show(gauge, &service, value);
        }
        let gains = decision.gains;
        for (gain, value) in [
            ("kp", gains.map(|gains| gains.kp)),
            ("ki", gains.map(|gains| gains.ki)),
        ] {
            show(&self.gain, &[service[0], gain], value);
        }
        for (what, is_set) in [
            ("drain", set.drain),
            ("health", set.health.is_some()),
            ("weight", set.weight_percent.is_some()),
            ("bound", set.bound.is_some()),
        ] {
            let labels = [service[0], what];
            self.overridden
                .with_label_values(&labels)
                .set(truth(is_set));
        }
    }
}

fn truth(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}
