//! Identification against NumPy and SciPy (`golden/identify.py`).
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;

use plimsoll_science::{Identified, Residuals, Scale, Segment, identify};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    segments: Vec<Measured>,
    models: BTreeMap<String, Vec<Model>>,
}

#[derive(Deserialize)]
struct Measured {
    load: Vec<f64>,
    delay: Vec<f64>,
}

#[derive(Deserialize)]
struct Model {
    a: Vec<f64>,
    b: Vec<f64>,
    rmse: f64,
    rmse_seconds: f64,
    r2_chronos: f64,
    r2_chronos_c: f64,
    aic: f64,
    bic: f64,
    validation_rmse_seconds: f64,
    residuals: Golden,
}

#[derive(Deserialize)]
struct Golden {
    mean: f64,
    bound: f64,
    autocorrelations: Vec<f64>,
    ljung_box: f64,
    ljung_box_p: f64,
    with_earlier_load: Vec<f64>,
    with_later_load: Vec<f64>,
}

fn cases() -> BTreeMap<String, (Case, Identified)> {
    let cases: BTreeMap<String, Case> =
        serde_json::from_str(include_str!("../golden/identify.json")).unwrap();
    let identified = |case: Case| {
        let segments = case.segments.iter().map(|one| Segment {
            load: one.load.clone(),
            delay: one.delay.clone(),
        });
        let found = identify(&segments.collect::<Vec<_>>()).unwrap();
        (case, found)
    };
    let cases = cases.into_iter();
    cases.map(|(name, case)| (name, identified(case))).collect()
}

fn close(name: &str, found: f64, golden: f64) {
    let allowed = 1e-6 * golden.abs().max(1e-3);
    assert!(
        (found - golden).abs() <= allowed,
        "{name}: {found} is not {golden}"
    );
}

fn all_close(name: &str, found: &[f64], golden: &[f64]) {
    assert_eq!(found.len(), golden.len(), "{name}");
    for (found, golden) in found.iter().zip(golden) {
        close(name, *found, *golden);
    }
}

fn same_residuals(name: &str, found: &Residuals, golden: &Golden) {
    close(&format!("{name}, mean"), found.mean, golden.mean);
    close(&format!("{name}, bound"), found.bound, golden.bound);
    all_close(
        &format!("{name}, autocorrelations"),
        &found.autocorrelations,
        &golden.autocorrelations,
    );
    close(
        &format!("{name}, Ljung-Box"),
        found.ljung_box,
        golden.ljung_box,
    );
    close(&format!("{name}, p"), found.ljung_box_p, golden.ljung_box_p);
    all_close(
        &format!("{name}, earlier"),
        &found.with_earlier_load,
        &golden.with_earlier_load,
    );
    all_close(
        &format!("{name}, later"),
        &found.with_later_load,
        &golden.with_later_load,
    );
}

#[test]
fn models_and_quality_match_numpy() {
    for (case, (golden, found)) in cases() {
        for candidate in &found.candidates {
            let scale = match candidate.scale {
                Scale::Raw => "raw",
                Scale::SquareRoot => "square_root",
            };
            let name = format!("{case}, {scale}, order {}", candidate.order);
            let golden = &golden.models[scale][candidate.order - 1];
            let (model, quality) = (
                candidate.model.as_ref().unwrap(),
                candidate.quality.as_ref().unwrap(),
            );
            all_close(&name, model.a(), &golden.a);
            all_close(&name, model.b(), &golden.b);
            close(&name, quality.rmse, golden.rmse);
            close(&name, quality.rmse_seconds, golden.rmse_seconds);
            close(&name, quality.r2_chronos, golden.r2_chronos);
            close(&name, quality.r2_chronos_c, golden.r2_chronos_c);
            close(&name, quality.aic, golden.aic);
            close(&name, quality.bic, golden.bic);
            close(
                &name,
                quality.validation_rmse_seconds.unwrap(),
                golden.validation_rmse_seconds,
            );
            same_residuals(&name, &quality.residuals, &golden.residuals);
        }
    }
}

#[test]
fn plants_of_the_traces_are_identified() {
    for (case, scale) in [("chronos", Scale::Raw), ("wide", Scale::SquareRoot)] {
        let (_, found) = &cases()[case];
        let chosen = &found.candidates[found.chosen.unwrap()];
        assert_eq!((chosen.scale, chosen.order), (scale, 2), "{case}");
        let model = chosen.model.as_ref().unwrap();
        assert!(
            (model.static_gain() / 0.21306 - 1.0).abs() < 0.05,
            "{case}: {model:?}"
        );
        assert!(
            chosen.quality.as_ref().unwrap().residuals.are_white(),
            "{case}"
        );
    }
}
