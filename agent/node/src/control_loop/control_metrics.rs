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
            "Service delay promised by the SLA.",
        )?;
        let sla_target = sla(
            "plimsoll_sla_target_seconds",
            "seconds",
            "Target delay of the controller: the SLA's delay times the set point.",
        )?;
        let sla_objective = sla(
            "plimsoll_sla_objective_ratio",
            RATIO,
            "Quantile of the delay that is held at the target; absent if the mean is.",
        )?;
        let sla_settling = sla(
            "plimsoll_sla_settling_seconds",
            "seconds",
            "Time within which a transient must settle.",
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
            "Delay of the finished requests in the last period with any, by percentile.",
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
                "Mean delay of the finished requests in the last period with any.",
            )?,
            control_delay: gauge(
                "plimsoll_control_delay_seconds",
                "seconds",
                "Delay that the law used in the last step: the objective's, or a prediction from unfinished work; absent if there was none.",
            )?,
            error: gauge(
                "plimsoll_error_ratio",
                RATIO,
                "Error that the law used last, relative to the target, -1 to 1; positive if there is room.",
            )?,
            bound: gauge("plimsoll_bound", COST, "Backlog bound.")?,
            bound_min: gauge("plimsoll_bound_min", COST, "Minimum of the bound.")?,
            bound_max: gauge("plimsoll_bound_max", COST, "Maximum of the bound.")?,
            bound_nominal: gauge(
                "plimsoll_bound_nominal",
                COST,
                "Configured initial bound; absent if not configured.",
            )?,
            capacity: gauge(
                "plimsoll_capacity",
                COST,
                "Capacity from which weights and shares of keys are computed: the learned backlog that a full node finishes within the target, or an operator's bound; with the papers' laws, the bound. Absent until requests have waited for the first time.",
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
                "Decaying recent peak of the backlog, which limits how far the bound may rise.",
            )?,
            jobs: gauge(
                "plimsoll_jobs",
                "jobs",
                "Jobs in the node; absent while unknown.",
            )?,
            load: gauge(
                "plimsoll_load",
                "1 at the limit",
                "Load of the node as reported to schedulers: the delay over the SLA's target, or the host's load (`service.load`).",
            )?,
            cpu_load: gauge(
                "plimsoll_cpu_load",
                "1 a CPU in full use",
                "CPU load of the host, or relative to the CPUs that the service may use: the utilisation or, from 95 % on, the number of waiting tasks per CPU; absent if not measured or unknown.",
            )?,
            network_load: gauge(
                "plimsoll_network_load",
                "packets that wait",
                "Load of the busiest network interface: ρ / (1 - ρ) at a utilisation of ρ; absent if not measured or unknown.",
            )?,
            mean_cost: gauge(
                "plimsoll_mean_cost",
                "cost units a request",
                "Mean cost of a request, smoothed.",
            )?,
            weight: gauge(
                "plimsoll_weight_percent",
                "percent",
                "Weight derived from the bound, in percent of the weight configured in the proxy, 1 to 256.",
            )?,
            up: gauge(
                "plimsoll_service_up",
                "1 or 0",
                "Whether the service passes its local probe, if configured, and its database accepts reads, if `service.role` is configured.",
            )?,
            observes: gauge(
                "plimsoll_observes",
                "1 or 0",
                "Whether the service is only observed (`mode = \"observe\"`): bound, capacity and weight are then not applied by proxies.",
            )?,
            would_refuse: catalogue.amounts(
                "plimsoll_would_refuse_total",
                COST,
                "In observe mode: work above the bound, which proxies would have refused; counted while the number of jobs is known.",
                &service,
            )?,
            overridden: catalogue.gauges(
                "plimsoll_override",
                "1 or 0",
                "Whether an operator has overridden this value.",
                &what,
            )?,
            gain: catalogue.gauges(
                "plimsoll_controller_gain",
                RATIO,
                "Current gains on the relative error; absent if the law has none.",
                &gains,
            )?,
            bound_changes: catalogue.counters(
                "plimsoll_bound_changes_total",
                "steps",
                "Controller steps that changed the bound, by reason (docs/control.md).",
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
