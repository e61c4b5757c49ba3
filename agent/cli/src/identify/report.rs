//! The report of the identified models, as text and JSON.

use std::fmt::Write;

use plimsoll_science::{Candidate, Identified, Quality, Scale, WORTH};
use serde::Serialize;

use super::trace::Trace;

#[derive(Debug, Serialize)]
struct Seen {
    period_seconds: f64,
    periods: usize,
    fitted: usize,
    gaps: usize,
    resets: usize,
    empty: usize,
    load: String,
    /// Coefficient of variation: standard deviation over mean.
    load_variation: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Model {
    scale: Scale,
    order: usize,
    a: Option<Vec<f64>>,
    b: Option<Vec<f64>>,
    static_gain: Option<f64>,
    /// Why the model is unusable.
    refused: Option<String>,
    #[serde(flatten)]
    quality: Option<Quality>,
}

impl Model {
    fn of(candidate: &Candidate) -> Self {
        let model = candidate.model.as_ref();
        let gain = model.map(plimsoll_science::Arx::static_gain);
        Self {
            scale: candidate.scale,
            order: candidate.order,
            a: model.map(|model| model.a().to_vec()),
            b: model.map(|model| model.b().to_vec()),
            static_gain: gain.filter(|gain| gain.is_finite()),
            refused: candidate.refusal.map(|refusal| refusal.to_string()),
            quality: candidate.quality.clone(),
        }
    }

    fn name(&self) -> String {
        format!("order {} on {}", self.order, scale(self.scale))
    }

    fn validated(&self) -> Option<f64> {
        self.quality.as_ref()?.validation_rmse_seconds
    }
}

/// The chosen model.
#[derive(Clone, Debug, Serialize)]
pub struct Chosen {
    scale: Scale,
    order: usize,
    a: Vec<f64>,
    b: Vec<f64>,
}

/// The complete report.
#[derive(Debug, Serialize)]
pub struct Report {
    trace: Seen,
    models: Vec<Model>,
    /// The chosen model, if any is usable.
    pub chosen: Option<Chosen>,
    /// Why it was chosen, or why none is usable.
    pub why: String,
}

impl Report {
    /// Builds the report.
    pub fn new(trace: &Trace, load: &str, found: &Identified) -> Self {
        let models: Vec<Model> = found.candidates.iter().map(Model::of).collect();
        let candidate = found.chosen.map(|at| &found.candidates[at]);
        let chosen = candidate.and_then(|candidate| {
            let model = candidate.model.as_ref()?;
            Some(Chosen {
                scale: candidate.scale,
                order: candidate.order,
                a: model.a().to_vec(),
                b: model.b().to_vec(),
            })
        });
        Self {
            trace: Seen {
                period_seconds: trace.period,
                periods: trace.rows,
                fitted: found.rows,
                gaps: trace.gaps,
                resets: trace.resets,
                empty: trace.empty,
                load: load.to_owned(),
                load_variation: found.load_variation,
            },
            why: match found.chosen {
                Some(at) => why(&models, at),
                None => none(&models),
            },
            models,
            chosen,
        }
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let seen = &self.trace;
        let mut text = format!(
            "trace  {} periods of {:.3} s, {} fitted; {} gaps, {} resets, {} without a value\n\
             load   {}, varies by {:.1} % of its mean\n\n\
             scale       order  rmse      rmse s    validated s  R2      var/var  AIC       BIC       \
             p white  acf  load\n",
            seen.periods,
            seen.period_seconds,
            seen.fitted,
            seen.gaps,
            seen.resets,
            seen.empty,
            seen.load,
            100.0 * seen.load_variation
        );
        for model in &self.models {
            let _ = write!(text, "{:<12}{:<7}", scale(model.scale), model.order);
            if let Some(quality) = &model.quality {
                text += &figures(quality);
            }
            text.push('\n');
            if let (Some(a), Some(b)) = (&model.a, &model.b) {
                let _ = writeln!(text, "    a {}  b {}", list(a), list(b));
            }
            if let Some(refused) = &model.refused {
                let _ = writeln!(text, "    refused: {refused}");
            }
        }
        if let Some(chosen) = &self.chosen {
            let _ = writeln!(
                text,
                "\nuse    order {} on {}\nwhy    {}\nnext   plimsoll tune --a={} --b={}",
                chosen.order,
                scale(chosen.scale),
                self.why,
                plain(&chosen.a),
                plain(&chosen.b)
            );
        }
        text
    }
}

fn figures(quality: &Quality) -> String {
    let residuals = &quality.residuals;
    let validated = quality.validation_rmse_seconds;
    format!(
        "{:<10.4}{:<10.4}{:<13}{:<8.4}{:<9.4}{:<10.1}{:<10.1}{:<9.3}{:<5}{} before, {} after",
        quality.rmse,
        quality.rmse_seconds,
        validated.map_or("-".to_owned(), |error| format!("{error:.4}")),
        quality.r2_chronos,
        quality.r2_chronos_c,
        quality.aic,
        quality.bic,
        residuals.ljung_box_p,
        residuals.outside(&residuals.autocorrelations),
        residuals.outside(&residuals.with_earlier_load),
        residuals.outside(&residuals.with_later_load)
    )
}

/// Why the model was chosen, with warnings about it.
fn why(models: &[Model], at: usize) -> String {
    let (chosen, error) = (&models[at], models[at].validated().unwrap_or_default());
    let usable = || models.iter().filter(|model| model.refused.is_none());
    let errors = usable().filter_map(|model| Some((model.validated()?, model)));
    let mut text = format!(
        "the lowest order on its scale whose error on the second half, fitted on the first, is at most {:.0} % \
         over the best: {error:.4} s",
        100.0 * (WORTH - 1.0)
    );
    let best = errors.min_by(|x, y| x.0.total_cmp(&y.0));
    if let Some((least, best)) = best.filter(|(least, _)| *least < error) {
        let _ = write!(text, ", where {} has {least:.4} s", best.name());
    }
    let bic = |model: &&Model| {
        model
            .quality
            .as_ref()
            .map_or(f64::INFINITY, |quality| quality.bic)
    };
    let same_scale = usable().filter(|model| model.scale == chosen.scale);
    if let Some(best) = same_scale.min_by(|x, y| bic(x).total_cmp(&bic(y))) {
        let _ = match best.order == chosen.order {
            true => write!(text, "; BIC agrees"),
            false => write!(text, "; BIC prefers order {}", best.order),
        };
    }
    if let Some(quality) = &chosen.quality {
        text += &warnings(quality);
    }
    text
}

fn warnings(quality: &Quality) -> String {
    let residuals = &quality.residuals;
    let mut text = String::new();
    if !residuals.are_white() {
        text += "; warning: its residuals are not white, so it does not explain all of the delay";
    }
    if quality.r2_chronos < 0.8 {
        text += "; warning: R2 is below the 0.8 that the papers require";
    }
    if residuals.load_follows_delay() {
        text +=
            "; warning: the load followed the delay, as under a controller, which biases the model";
    }
    text
}

fn none(models: &[Model]) -> String {
    let told = models
        .iter()
        .filter_map(|model| Some(format!("{}: {}", model.name(), model.refused.as_ref()?)));
    let mut told: Vec<String> = told.collect();
    if told.is_empty() {
        told.push("no model could be fitted on the first half alone".to_owned());
    }
    told.join("; ")
}

fn scale(scale: Scale) -> &'static str {
    match scale {
        Scale::Raw => "raw",
        Scale::SquareRoot => "square root",
    }
}

fn list(weights: &[f64]) -> String {
    let told: Vec<String> = weights
        .iter()
        .map(|weight| format!("{weight:.5}"))
        .collect();
    told.join(", ")
}

/// Weights in a form that `plimsoll tune` accepts.
fn plain(weights: &[f64]) -> String {
    let told: Vec<String> = weights
        .iter()
        .map(|weight| format!("{weight:.6}"))
        .collect();
    told.join(",")
}
