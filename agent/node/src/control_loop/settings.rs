//! `[service.sla]`, `.bound`, `.controller`, `.rules`: settings of the controller.

use std::time::Duration;

use plimsoll_core::{
    BoundLimits, Cost, Law, Objective, PiForm, PiGains, Rules, Seconds, ServiceMode, Settings, Sla,
};
use plimsoll_settings::{Checked, Wrong, at, only_for, word, wrong};
use schemars::JsonSchema;
use serde::Deserialize;

use super::ServiceSection;

/// The promise to clients.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[service.sla]")]
pub struct SlaSection {
    /// Service delay: connect, queue and processing of a finished request.
    #[schemars(with = "String", extend("x-values" = "duration above 0", "x-default" = "required"))]
    #[serde(with = "humantime_serde")]
    delay: Duration,
    /// Time within which a transient must settle.
    #[schemars(with = "String", extend("x-values" = "duration above 0", "x-default" = "`\"10s\"`"))]
    #[serde(default, with = "humantime_serde")]
    settling: Option<Duration>,
    /// Statistic of the delays that is controlled.
    #[schemars(extend("x-values" = "`mean`, `p50` to `p99.9`", "x-default" = "`\"p95\"`"))]
    objective: Option<String>,
    /// Fraction of `delay` at which it is held.
    #[schemars(extend("x-values" = "above 0, to 1", "x-default" = "`0.9`"))]
    set_point: Option<f64>,
}

/// Range of the backlog bound, in cost units (requests if no cost is known). `load-line` needs none of these keys.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[service.bound]")]
pub struct BoundSection {
    /// With `load-line`, the bound until 20 requests have been seen. With the other laws, the initial bound, to which
    /// it also returns while the node is idle.
    #[schemars(extend("x-values" = "above 0", "x-default" = "none; required unless `controller.kind` is `load-line`"))]
    nominal: Option<f64>,
    /// Never below.
    #[schemars(extend("x-values" = "above 0", "x-default" = "one request; without `load-line`: `nominal` / 32, at least 1"))]
    min: Option<f64>,
    /// Never above.
    #[schemars(extend("x-values" = "at least `min`", "x-default" = "none; without `load-line`: 1024 × `nominal`"))]
    max: Option<f64>,
}

/// The control law.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[service.controller]")]
pub struct ControllerSection {
    /// See docs/control.md.
    #[schemars(extend("x-values" = "`load-line`, `pi`, `parabola`, `inverse-delay`, `proportional`, `fixed`", "x-default" = "`\"load-line\"`"))]
    kind: Option<String>,
    /// `auto`: `pi` and `parabola` derive their gains from the delay's response to the bound; `kp` and `ki` are the
    /// initial and fallback values.
    #[schemars(extend("x-values" = "`fixed`, `auto`", "x-default" = "`\"fixed\"`"))]
    gains: Option<String>,
    /// Proportional gain of `pi` and `parabola`, on the relative error.
    #[schemars(extend("x-values" = "above 0", "x-default" = "`0.25`"))]
    kp: Option<f64>,
    /// Integral gain of `pi` and `parabola`, on the relative error.
    #[schemars(extend("x-values" = "0 or more", "x-default" = "`1.0`"))]
    ki: Option<f64>,
    /// Variant of the papers' PI law.
    #[schemars(extend("x-values" = "`velocity`, `double-integrating`", "x-default" = "`\"velocity\"`"))]
    form: Option<String>,
    /// Gain of `proportional`.
    #[schemars(extend("x-values" = "above 0, to 1", "x-default" = "`0.5`"))]
    gain: Option<f64>,
}

/// Conditions under which `pi` and the papers' other laws do not act; `load-line` uses only `max_failed`. See
/// docs/control.md.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[service.rules]")]
pub struct RulesSection {
    /// Minimum number of requests for evaluating the objective.
    #[schemars(extend("x-values" = "1 or more", "x-default" = "`20`"))]
    min_samples: Option<u64>,
    /// Maximum number of periods that are combined to reach `min_samples`.
    #[schemars(extend("x-values" = "1 or more", "x-default" = "`5`"))]
    window_periods: Option<u32>,
    /// The bound does not grow while the peak backlog is below this fraction of it.
    #[schemars(extend("x-values" = "0 to 1", "x-default" = "`0.8`"))]
    light_load: Option<f64>,
    /// The bound stays within this multiple of the recent peak backlog.
    #[schemars(extend("x-values" = "1 or more", "x-default" = "`4.0`"))]
    headroom: Option<f64>,
    /// Number of empty periods before the bound drifts to the nominal one.
    #[schemars(extend("x-values" = "0 or more", "x-default" = "`5`"))]
    empty_hold_periods: Option<u32>,
    /// Fraction of failed requests from which the bound is lowered as if for the worst delay.
    #[schemars(extend("x-values" = "above 0, to 1", "x-default" = "`0.5`"))]
    max_failed: Option<f64>,
}

/// Checks the four tables. `path` prefixes the keys in errors.
pub fn settings(path: &str, raw: &ServiceSection) -> Checked<Settings> {
    let delay = raw.sla.delay.as_secs_f64();
    let objective = raw.sla.objective.as_deref().unwrap_or("p95");
    let controller = &raw.controller;
    let gains = PiGains::default();
    let kind = controller.kind.as_deref().unwrap_or("load-line");
    let table = format!("{path}.controller");
    let pi_keys = [
        ("gains", controller.gains.is_some()),
        ("kp", controller.kp.is_some()),
        ("ki", controller.ki.is_some()),
        ("form", controller.form.is_some()),
    ];
    let is_pi = matches!(kind, "pi" | "parabola");
    if !is_pi {
        only_for(&table, kind, &pi_keys)?;
    }
    if kind != "proportional" {
        only_for(&table, kind, &[("gain", controller.gain.is_some())])?;
    }
    let law = match kind {
        "pi" | "parabola" => Law::Pi {
            gains: PiGains {
                kp: controller.kp.unwrap_or(gains.kp),
                ki: controller.ki.unwrap_or(gains.ki),
            },
            form: word(
                &format!("{table}.form"),
                controller.form.as_deref(),
                PiForm::Velocity,
                &[
                    ("velocity", PiForm::Velocity),
                    ("double-integrating", PiForm::DoubleIntegrating),
                ],
            )?,
        },
        "load-line" => Law::LoadLine,
        "inverse-delay" => Law::InverseDelay,
        "proportional" => Law::Proportional {
            gain: controller.gain.unwrap_or(0.5),
        },
        "fixed" => Law::Fixed,
        other => {
            return wrong(
                format!("{table}.kind"),
                format!(
                    "must be one of \"load-line\", \"pi\", \"parabola\", \"inverse-delay\", \"proportional\", \"fixed\", is {other:?}"
                ),
            );
        }
    };
    let self_tuned = word(
        &format!("{table}.gains"),
        controller.gains.as_deref(),
        false,
        &[("fixed", false), ("auto", true)],
    )?;
    let rules = Rules::default();
    let settings = Settings {
        mode: word(
            &format!("{path}.mode"),
            raw.mode.as_deref(),
            ServiceMode::Enforce,
            &[ServiceMode::Enforce, ServiceMode::Observe].map(|mode| (mode.as_str(), mode)),
        )?,
        sla: Sla {
            delay: Seconds(delay),
            settling: Seconds(raw.sla.settling.map_or(10.0, |d| d.as_secs_f64())),
            objective: at(&format!("{path}.sla.objective"), objective_of(objective))?,
            set_point: raw.sla.set_point.unwrap_or(0.9),
        },
        limits: limits(&raw.bound, &law),
        law,
        mpl: kind == "parabola",
        self_tuned,
        rules: Rules {
            min_samples: raw.rules.min_samples.unwrap_or(rules.min_samples),
            window_periods: raw.rules.window_periods.unwrap_or(rules.window_periods),
            light_load: raw.rules.light_load.unwrap_or(rules.light_load),
            headroom: raw.rules.headroom.unwrap_or(rules.headroom),
            empty_hold_periods: raw
                .rules
                .empty_hold_periods
                .unwrap_or(rules.empty_hold_periods),
            max_failed: raw.rules.max_failed.unwrap_or(rules.max_failed),
        },
    };
    if let Some(nominal) = raw.bound.nominal
        && !(nominal.is_finite() && nominal > 0.0)
    {
        return wrong(
            format!("{path}.bound.nominal"),
            format!("must be above 0, is {nominal}"),
        );
    }
    settings.validate().map_err(|error| Wrong {
        key: format!("{path}.{}", error.key),
        problem: error.problem,
    })?;
    Ok(settings)
}

fn limits(raw: &BoundSection, law: &Law) -> BoundLimits {
    let free = BoundLimits::default();
    // The papers' laws vary around the nominal bound.
    let around = raw.nominal.filter(|_| *law != Law::LoadLine);
    let least = around.map_or(free.min.get(), |nominal| {
        (nominal / 32.0).max(1.0).min(nominal)
    });
    let most = around.map_or(free.max.get(), |nominal| nominal * 1024.0);
    BoundLimits {
        min: Cost(raw.min.unwrap_or(least)),
        max: Cost(raw.max.unwrap_or(most)),
        nominal: raw.nominal.map(Cost),
    }
}

/// Parses `mean`, or `p` and a percentage between 0 and 100, both exclusive.
fn objective_of(text: &str) -> Result<Objective, String> {
    if text == "mean" {
        return Ok(Objective::Mean);
    }
    text.strip_prefix('p')
        .filter(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
        .and_then(|rest| rest.parse::<f64>().ok())
        .filter(|percent| *percent > 0.0 && *percent < 100.0)
        .map(|percent| Objective::Quantile(percent / 100.0))
        .ok_or_else(|| format!("must be \"mean\" or \"p50\" to \"p99.9\", is {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives() {
        assert_eq!(objective_of("mean"), Ok(Objective::Mean));
        for (text, quantile) in [("p50", 0.5), ("p95", 0.95), ("p99.9", 0.999)] {
            let Ok(Objective::Quantile(q)) = objective_of(text) else {
                unreachable!("{text}")
            };
            assert!((q - quantile).abs() < 1e-12, "{text}: {q}");
        }
        for text in [
            "", "p", "p0", "p100", "p-1", "pNaN", "pinf", "p9e1", "95", "median",
        ] {
            assert!(objective_of(text).is_err(), "{text}");
        }
    }
}
