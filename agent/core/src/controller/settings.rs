//! Settings of a controller, and their validation.

use serde::{Deserialize, Serialize};

use crate::{Cost, Objective, Sla};

/// Minimum, maximum and initial bound, in cost units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BoundLimits {
    /// Minimum bound. The bound is also never below one job, since a node without traffic yields no samples.
    pub min: Cost,
    /// Maximum bound.
    pub max: Cost,
    /// Bound at start. For the load line a hint; the other laws require it, and drift back to it while the node is
    /// idle.
    pub nominal: Option<Cost>,
}

impl Default for BoundLimits {
    /// Limited only to at least one job, and without a hint.
    fn default() -> Self {
        BoundLimits {
            min: Cost(1e-6),
            max: Cost(1e12),
            nominal: None,
        }
    }
}

/// Gains of the PI law, on the relative error; the step is relative to the bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PiGains {
    /// `K_P` of Chronos eq. 7. Default 0.25.
    pub kp: f64,
    /// `K_I` of Chronos eq. 7. Default 1.
    pub ki: f64,
}

impl Default for PiGains {
    fn default() -> Self {
        PiGains { kp: 0.25, ki: 1.0 }
    }
}

/// Form of the PI law.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PiForm {
    /// Chronos eq. 7: one integration.
    Velocity,
    /// Chronos-C eq. 5 taken literally with `d(k+1) = d(k) + δd(k)`: integrates twice.
    DoubleIntegrating,
}

/// Control law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Law {
    /// Admits bursts up to the target at the learned rate, and drains standing queues. The default.
    LoadLine,
    /// PI control of the bound.
    Pi {
        /// Gains.
        gains: PiGains,
        /// Interpretation of the papers' equations.
        form: PiForm,
    },
    /// Prop of Chronos-C: `nominal · target / delay`.
    InverseDelay,
    /// AC of Chronos: `nominal · (1 + gain · error)`.
    Proportional {
        /// Gain of the relative error, in (0, 1].
        gain: f64,
    },
    /// Always the nominal bound.
    Fixed,
}

/// Guard rules that the papers leave open.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rules {
    /// Requests that must end before the objective is computed, unless `window_periods` have passed. Default 20.
    pub min_samples: u64,
    /// Maximum periods that are added up to reach `min_samples`. Default 5.
    pub window_periods: u32,
    /// Share of the bound, 0 to 1, below which the peak backlog does not let the bound grow. Default 0.8.
    pub light_load: f64,
    /// Maximum bound as a multiple of the recent peak backlog, at least 1; the nominal bound applies if it is higher.
    /// Default 4.
    pub headroom: f64,
    /// Empty periods before the bound drifts to the nominal one. Default 5.
    pub empty_hold_periods: u32,
    /// Share of failed requests, in (0, 1], above which the bound is lowered as for the worst delay. Default 0.5.
    pub max_failed: f64,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            min_samples: 20,
            window_periods: 5,
            light_load: 0.8,
            headroom: 4.0,
            empty_hold_periods: 5,
            max_failed: 0.5,
        }
    }
}

/// Whether decisions are applied or only reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceMode {
    /// Proxies apply the bound.
    #[default]
    Enforce,
    /// The bound is only reported, so its effect cannot be measured.
    Observe,
}

impl ServiceMode {
    /// Whether the bound is only reported.
    pub fn observes(self) -> bool {
        self == ServiceMode::Observe
    }

    /// Name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            ServiceMode::Enforce => "enforce",
            ServiceMode::Observe => "observe",
        }
    }
}

/// Settings of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// Whether the bound is applied.
    pub mode: ServiceMode,
    /// SLA that the bound is to hold.
    pub sla: Sla,
    /// Range and initial value of the bound.
    pub limits: BoundLimits,
    /// Control law that moves the bound.
    pub law: Law,
    /// Whether the bound is also limited to the multiprogramming level: the fewest jobs at which the node reaches
    /// nearly its full throughput.
    pub mpl: bool,
    /// Whether the gains are tuned from the response of the delay to the bound. The configured gains are the initial
    /// and the fallback values.
    pub self_tuned: bool,
    /// Guard rules.
    pub rules: Rules,
}

/// Invalid setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// Key in the agent's configuration, relative to the service's table.
    pub key: &'static str,
    /// Requirement, with the value found and the limit.
    pub problem: String,
}

impl std::fmt::Display for SettingsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.problem)
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// Checks that each value is in its range.
    ///
    /// # Errors
    /// The first key whose value is not.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let error = |key, problem: String| Err(SettingsError { key, problem });
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let Settings {
            sla,
            limits,
            law,
            rules,
            ..
        } = self;
        if !positive(sla.delay.get()) {
            return error(
                "sla.delay",
                format!("must be above 0 s, is {} s", sla.delay.get()),
            );
        }
        if !positive(sla.settling.get()) {
            return error(
                "sla.settling",
                format!("must be above 0 s, is {} s", sla.settling.get()),
            );
        }
        if !(positive(sla.set_point) && sla.set_point <= 1.0) {
            return error(
                "sla.set_point",
                format!("must be in (0, 1], is {}", sla.set_point),
            );
        }
        if let Objective::Quantile(q) = sla.objective
            && !(q > 0.0 && q < 1.0)
        {
            return error(
                "sla.objective",
                format!("a quantile must be between p0 and p100, is {q}"),
            );
        }
        if !positive(limits.min.get()) {
            return error(
                "bound.min",
                format!("must be above 0, is {}", limits.min.get()),
            );
        }
        if !(limits.max.get().is_finite() && limits.max.get() >= limits.min.get()) {
            return error(
                "bound.max",
                format!(
                    "must be at least bound.min ({}), is {}",
                    limits.min.get(),
                    limits.max.get()
                ),
            );
        }
        if limits.nominal.is_none() && *law != Law::LoadLine {
            return error(
                "bound.nominal",
                "is required by every controller.kind but \"load-line\"".into(),
            );
        }
        if limits.nominal.is_some_and(|nominal| {
            !(nominal.get() >= limits.min.get() && nominal.get() <= limits.max.get())
        }) {
            return error(
                "bound.nominal",
                format!(
                    "must be between bound.min ({}) and bound.max ({})",
                    limits.min.get(),
                    limits.max.get()
                ),
            );
        }
        match *law {
            Law::Pi { gains, .. } if !positive(gains.kp) => {
                return error("controller.kp", format!("must be above 0, is {}", gains.kp));
            }
            Law::Pi { gains, .. } if !(gains.ki.is_finite() && gains.ki >= 0.0) => {
                return error(
                    "controller.ki",
                    format!("must be at least 0, is {}", gains.ki),
                );
            }
            Law::Proportional { gain } if !(positive(gain) && gain <= 1.0) => {
                return error("controller.gain", format!("must be in (0, 1], is {gain}"));
            }
            _ => {}
        }
        let tunable = matches!(
            law,
            Law::Pi {
                form: PiForm::Velocity,
                ..
            }
        );
        if self.self_tuned && !tunable {
            return error(
                "controller.gains",
                "\"auto\" needs the velocity form of the PI law".into(),
            );
        }
        if rules.min_samples == 0 {
            return error("rules.min_samples", "must be at least 1, is 0".into());
        }
        if rules.window_periods == 0 {
            return error("rules.window_periods", "must be at least 1, is 0".into());
        }
        if !(0.0..=1.0).contains(&rules.light_load) {
            return error(
                "rules.light_load",
                format!("must be in [0, 1], is {}", rules.light_load),
            );
        }
        if !(rules.headroom.is_finite() && rules.headroom >= 1.0) {
            return error(
                "rules.headroom",
                format!("must be at least 1, is {}", rules.headroom),
            );
        }
        if !(rules.max_failed > 0.0 && rules.max_failed <= 1.0) {
            return error(
                "rules.max_failed",
                format!("must be in (0, 1], is {}", rules.max_failed),
            );
        }
        Ok(())
    }
}
