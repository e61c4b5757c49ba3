//! `[service.sla]`, `.bound`, `.controller`, `.rules`: settings of the controller.

use std::time::Duration;

use plimsoll_core::{
    BoundLimits, Cost, Law, Objective, PiForm, PiGains, Rules, Seconds, ServiceMode, Settings, Sla,
};
use plimsoll_settings::{Checked, TableReference, Wrong, at, only_for, word, wrong};
use serde::Deserialize;

use super::ServiceSection;

/// `[service.sla]` as in the file, unchecked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlaSection {
    #[serde(with = "humantime_serde")]
    delay: Duration,
    #[serde(default, with = "humantime_serde")]
    settling: Option<Duration>,
    objective: Option<String>,
    set_point: Option<f64>,
}

/// `[service.bound]` as in the file, unchecked.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoundSection {
    nominal: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
}

/// `[service.controller]` as in the file, unchecked.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerSection {
    kind: Option<String>,
    gains: Option<String>,
    kp: Option<f64>,
    ki: Option<f64>,
    form: Option<String>,
    gain: Option<f64>,
}

/// `[service.rules]` as in the file, unchecked.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RulesSection {
    min_samples: Option<u64>,
    window_periods: Option<u32>,
    light_load: Option<f64>,
    headroom: Option<f64>,
    empty_hold_periods: Option<u32>,
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

/// Reference of the keys of `[service.sla]`.
pub const SLA_REFERENCE: TableReference = (
    "[service.sla]",
    "The promise to clients.",
    &[
        (
            "delay",
            "duration above 0",
            "required",
            "Service delay: connect, queue and processing of a finished request.",
        ),
        (
            "settling",
            "duration above 0",
            "`\"10s\"`",
            "Time within which a transient must settle.",
        ),
        (
            "objective",
            "`mean`, `p50` to `p99.9`",
            "`\"p95\"`",
            "Statistic of the delays that is controlled.",
        ),
        (
            "set_point",
            "above 0, to 1",
            "`0.9`",
            "Fraction of `delay` at which it is held.",
        ),
    ],
);

/// Reference of the keys of `[service.bound]`.
pub const BOUND_REFERENCE: TableReference = (
    "[service.bound]",
    "Range of the backlog bound, in cost units (requests if no cost is known). `load-line` needs none of these keys.",
    &[
        (
            "nominal",
            "above 0",
            "none; required unless `controller.kind` is `load-line`",
            "With `load-line`, the bound until 20 requests have been seen. With the other laws, the initial bound, to which it also returns while the node is idle.",
        ),
        (
            "min",
            "above 0",
            "one request; without `load-line`: `nominal` / 32, at least 1",
            "Never below.",
        ),
        (
            "max",
            "at least `min`",
            "none; without `load-line`: 1024 × `nominal`",
            "Never above.",
        ),
    ],
);

/// Reference of the keys of `[service.controller]`.
pub const CONTROLLER_REFERENCE: TableReference = (
    "[service.controller]",
    "The control law.",
    &[
        (
            "kind",
            "`load-line`, `pi`, `parabola`, `inverse-delay`, `proportional`, `fixed`",
            "`\"load-line\"`",
            "See docs/control.md.",
        ),
        (
            "gains",
            "`fixed`, `auto`",
            "`\"fixed\"`",
            "`auto`: `pi` and `parabola` derive their gains from the delay's response to the bound; `kp` and `ki` are the initial and fallback values.",
        ),
        (
            "kp",
            "above 0",
            "`0.25`",
            "Proportional gain of `pi` and `parabola`, on the relative error.",
        ),
        (
            "ki",
            "0 or more",
            "`1.0`",
            "Integral gain of `pi` and `parabola`, on the relative error.",
        ),
        (
            "form",
            "`velocity`, `double-integrating`",
            "`\"velocity\"`",
            "Variant of the papers' PI law.",
        ),
        ("gain", "above 0, to 1", "`0.5`", "Gain of `proportional`."),
    ],
);

/// Reference of the keys of `[service.rules]`.
pub const RULES_REFERENCE: TableReference = (
    "[service.rules]",
    "Conditions under which `pi` and the papers' other laws do not act; `load-line` uses only `max_failed`. See docs/control.md.",
    &[
        (
            "min_samples",
            "1 or more",
            "`20`",
            "Minimum number of requests for evaluating the objective.",
        ),
        (
            "window_periods",
            "1 or more",
            "`5`",
            "Maximum number of periods that are combined to reach `min_samples`.",
        ),
        (
            "light_load",
            "0 to 1",
            "`0.8`",
            "The bound does not grow while the peak backlog is below this fraction of it.",
        ),
        (
            "headroom",
            "1 or more",
            "`4.0`",
            "The bound stays within this multiple of the recent peak backlog.",
        ),
        (
            "empty_hold_periods",
            "0 or more",
            "`5`",
            "Number of empty periods before the bound drifts to the nominal one.",
        ),
        (
            "max_failed",
            "above 0, to 1",
            "`0.5`",
            "Fraction of failed requests from which the bound is lowered as if for the worst delay.",
        ),
    ],
);

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
