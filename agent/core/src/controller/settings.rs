//! What a controller is told.

use serde::{Deserialize, Serialize};

use crate::{Cost, Objective, Sla};

/// Smallest, largest and starting bound, in cost units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BoundLimits {
    /// Never below this, nor below one job: a node without traffic yields no samples.
    pub min: Cost,
    /// Never above this.
    pub max: Cost,
    /// The bound at start. The load line takes it for a hint; the other laws need it, and drift back to it
    /// when the node is idle.
    pub nominal: Option<Cost>,
}

impl Default for BoundLimits {
    /// No limits but one job, and no hint.
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

/// How the papers' PI law is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PiForm {
    /// Chronos eq. 7: one integration.
    Velocity,
    /// Chronos-C eq. 5 taken literally with `d(k+1) = d(k) + δd(k)`: integrates twice.
    DoubleIntegrating,
}

/// The control law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Law {
    /// Bursts up to the target at the rate learned, and no queue that stands. The default.
    LoadLine,
    /// PI control of the bound.
    Pi {
        /// Gains.
        gains: PiGains,
        /// Which reading of the papers' equations.
        form: PiForm,
    },
    /// Prop of Chronos-C: the bound is the nominal one times target over delay.
    InverseDelay,
    /// AC of Chronos: the bound is the nominal one times `1 + gain · error`.
    Proportional {
        /// Gain on the relative error, in (0, 1].
        gain: f64,
    },
    /// The nominal bound.
    Fixed,
}

/// The rules the papers leave open.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rules {
    /// The objective waits for this many requests, over up to `window_periods`. Default 20.
    pub min_samples: u64,
    /// Periods that are added up to reach `min_samples`. Default 5.
    pub window_periods: u32,
    /// No growth while the peak backlog is under this share of the bound. Default 0.8.
    pub light_load: f64,
    /// The bound stays within this multiple of the recent peak backlog, or at the nominal bound
    /// where that is more. Default 4.
    pub headroom: f64,
    /// Empty periods before the bound drifts to the nominal one. Default 5.
    pub empty_hold_periods: u32,
    /// Share of failed requests from which the bound is lowered as for the worst delay. Default 0.5.
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

/// Whether proxies are told what is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceMode {
    /// They are.
    #[default]
    Enforce,
    /// They are not: the bound is only shown, so what it sets in motion cannot be seen.
    Observe,
}

impl ServiceMode {
    /// Whether nobody is told.
    pub fn observes(self) -> bool {
        self == ServiceMode::Observe
    }

    /// As in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            ServiceMode::Enforce => "enforce",
            ServiceMode::Observe => "observe",
        }
    }
}

/// Everything a controller is told.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// Whether the bound is applied.
    pub mode: ServiceMode,
    /// What was promised.
    pub sla: Sla,
    /// Where the bound may move.
    pub limits: BoundLimits,
    /// How it moves.
    pub law: Law,
    /// Whether it also stays at the multiprogramming level: the fewest jobs at which the node does nearly all that it
    /// can, where that is less.
    pub mpl: bool,
    /// Whether the law's gains are found from how the delay answers to the bound. Those given are where it begins,
    /// and what it falls back to.
    pub self_tuned: bool,
    /// When it may not.
    pub rules: Rules,
}

/// A value that cannot be: the key (as in the agent's configuration) and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// The key, relative to the service's table.
    pub key: &'static str,
    /// What it must be.
    pub problem: String,
}

impl std::fmt::Display for SettingsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.problem)
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// Refuses values no controller can work with.
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
                format!("must not be below bound.min ({})", limits.min.get()),
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
                    format!("must not be below 0, is {}", gains.ki),
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
            return error("rules.min_samples", "must be at least 1".into());
        }
        if rules.window_periods == 0 {
            return error("rules.window_periods", "must be at least 1".into());
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
