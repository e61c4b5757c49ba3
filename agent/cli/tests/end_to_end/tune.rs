//! `plimsoll tune` as people and scripts call it.

use std::process::Command;

use serde_json::Value;

/// The plant of Chronos eq. 4.
const CHRONOS: [&str; 4] = ["--a", "0.507,-0.089", "--b", "0.115,0.009"];

/// The command's output, or its error.
fn tune(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let out = command.arg("tune").args(arguments).output().unwrap();
    let (said, failed) = (out.stdout, out.stderr);
    match out.status.success() {
        true => Ok(String::from_utf8(said).unwrap()),
        false => Err(String::from_utf8(failed).unwrap()),
    }
}

fn json(arguments: &[&str]) -> Value {
    let arguments = [arguments, &["--json"]].concat();
    serde_json::from_str(&tune(&arguments).unwrap()).unwrap()
}

fn close(found: &Value, wanted: f64, tolerance: f64) {
    let found = found.as_f64().unwrap();
    assert!(
        (found - wanted).abs() <= tolerance,
        "{found} is not {wanted}"
    );
}

#[test]
fn the_gains_of_chronos_put_the_poles_where_the_paper_has_them() {
    let found = json(&[&CHRONOS[..], &["--kp", "1.29", "--ki", "2.01"]].concat());
    assert_eq!(found["stable"], true);
    let paper = [(0.496, 0.0), (0.282, 0.354), (0.282, -0.354)];
    assert_eq!(found["poles"].as_array().unwrap().len(), paper.len());
    for (pole, paper) in found["poles"].as_array().unwrap().iter().zip(paper) {
        close(&pole[0], paper.0, 0.005);
        close(&pole[1], paper.1, 0.005);
    }
    // 1.29 times the static gain, 0.124 / 0.582.
    close(&found["gains"]["relative"]["kp"], 0.27485, 1e-5);
    // Integrated twice, the same gains leave the unit circle.
    assert_eq!(found["double_integrating"]["stable"], false);
    assert_eq!(
        found["double_integrating"]["poles"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
}

#[test]
fn gains_for_an_sla_keep_it_and_are_close_to_those_of_the_paper() {
    let found = json(
        &[
            &CHRONOS[..],
            &["--delay", "2s", "--overshoot", "2.5s", "--settling", "100s"],
        ]
        .concat(),
    );
    assert_eq!(
        (&found["stable"], &found["within_sla"]),
        (&Value::Bool(true), &Value::Bool(true))
    );
    close(&found["gains"]["kp"], 1.29, 0.2);
    close(&found["gains"]["ki"], 2.01, 0.3);
    assert!(found["margins"]["modulus"].as_f64().unwrap() >= 0.6);
    // What it says of its gains it says of them when they are given.
    let gains = [
        found["gains"]["kp"].to_string(),
        found["gains"]["ki"].to_string(),
    ];
    let again = json(&[&CHRONOS[..], &["--kp", &gains[0], "--ki", &gains[1]]].concat());
    assert_eq!(
        (&again["poles"], &again["step"]),
        (&found["poles"], &found["step"])
    );
}

#[test]
fn people_are_told_the_same_and_shown_it() {
    let text = tune(&[&CHRONOS[..], &["--kp", "1.29", "--ki", "2.01"]].concat()).unwrap();
    for wanted in [
        "s(k) = 0.507 s(k-1) - 0.089 s(k-2) + 0.115 d(k-1) + 0.009 d(k-2)",
        "K_P 1.2900, K_I 2.0100",
        "kp = 0.2748, ki = 2.0100",
        "closed loop   poles 0.4967, 0.2819 ± 0.3509i",
        "stable; margins: gain 5.82x, phase 68.3°, modulus 0.729",
        "overshoot 0.0 %, settled (2 %) after 4 periods: within the SLA",
        "(Chronos-C eq. 5, literally) with these gains: UNSTABLE",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
    assert!(text.contains('⠤'), "{text}");
}

#[test]
fn an_unstable_loop_is_reported_and_not_drawn() {
    let wild = [&CHRONOS[..], &["--kp", "12.9", "--ki", "2.01"]].concat();
    let found = json(&wild);
    assert_eq!(
        (&found["stable"], &found["within_sla"]),
        (&Value::Bool(false), &Value::Bool(false))
    );
    assert!(found["step"].is_null() && found["margins"].is_null() && found["overshoot"].is_null());
    assert!(tune(&wild).unwrap().contains("UNSTABLE\n"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("step.svg");
    let refused = tune(&[&wild[..], &["--svg", file.to_str().unwrap()]].concat()).unwrap_err();
    assert_eq!(
        refused,
        "plimsoll: --svg: an unstable loop has no step response to draw\n"
    );
    assert!(!file.exists());
}

#[test]
fn the_picture_has_every_period_until_it_has_settled() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("step.svg");
    let arguments = [
        "--kp",
        "1.29",
        "--ki",
        "2.01",
        "--svg",
        file.to_str().unwrap(),
    ];
    tune(&[&CHRONOS[..], &arguments].concat()).unwrap();
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(
        svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    let points = svg.split("<polyline points=\"").nth(1).unwrap();
    assert_eq!(points.split('"').next().unwrap().split(' ').count(), 10);
    let nowhere = directory.path().join("none/step.svg");
    let refused =
        tune(&[&CHRONOS[..], &["--svg", nowhere.to_str().unwrap()]].concat()).unwrap_err();
    assert!(
        refused.contains("cannot write") && refused.contains("none/step.svg"),
        "{refused}"
    );
}

#[test]
fn what_cannot_be_tuned_is_refused_with_the_reason() {
    for (arguments, reason) in [
        (
            &["--a", "0.5", "--b", "-0.1"][..],
            "the static gain is -0.2: more backlog must make more delay",
        ),
        (&["--a", "0.5", "--b", "0"], "every b is 0"),
        (
            &["--a", "0.5", "--b", "nan"],
            "b1 is NaN: must be a finite number",
        ),
        (
            &["--a", "0.5", "--b", "x"],
            "invalid value 'x' for '--b <LIST>'",
        ),
        (
            &["--a", "0,0,0,0,0,0,0,0,0", "--b", "1"],
            "a has 9 coefficients: must have 1 to 8",
        ),
        (&["--a", "0.5", "--b", "1", "--kp", "1"], "--ki <KI>"),
        (
            &["--a", "0.5", "--b", "1", "--kp", "-1", "--ki", "1"],
            "unexpected argument '-1'",
        ),
        (
            &["--a", "0.5", "--b", "1", "--delay", "0s"],
            "--delay: must be above 0",
        ),
        (
            &["--a", "0.5", "--b", "1", "--overshoot", "500ms"],
            "--overshoot: must be at least the delay, 1s",
        ),
        (
            &["--a", "0.5", "--b", "1", "--settling", "500ms"],
            "no gains settle within 0.5 periods and overshoot by at most 10.0 %",
        ),
    ] {
        let refused = tune(arguments).unwrap_err();
        assert!(refused.contains(reason), "{reason} is not in: {refused}");
    }
}

#[test]
fn relative_gains_are_those_of_agent_toml() {
    let found = json(&[&CHRONOS[..], &["--kp", "0.25", "--ki", "1", "--relative"]].concat());
    close(&found["gains"]["relative"]["kp"], 0.25, 1e-12);
    // Over the static gain, 0.124 / 0.582.
    close(&found["gains"]["kp"], 0.25 * 0.582 / 0.124, 1e-9);
    let refused = tune(&[
        "--a",
        "1",
        "--b",
        "1",
        "--kp",
        "1",
        "--ki",
        "1",
        "--relative",
    ])
    .unwrap_err();
    assert!(
        refused
            .contains("--relative: needs a positive, finite static gain, but the model's is inf"),
        "{refused}"
    );
}

#[test]
fn the_guide_has_the_figures_of_the_program() {
    let guide = std::fs::read_to_string("../../docs/tuning.md").unwrap();
    let rows: Vec<Vec<&str>> = guide
        .lines()
        .map(|line| line.split('|').map(str::trim).collect())
        .filter(|cells: &Vec<&str>| cells.len() == 13 && cells[2].starts_with('`'))
        .collect();
    assert_eq!(rows.len(), 5);
    for row in rows {
        let model = [
            "--a",
            row[2].trim_matches('`'),
            "--b",
            row[3].trim_matches('`'),
        ];
        let defaults = json(&[&model[..], &["--kp", "0.25", "--ki", "1", "--relative"]].concat());
        let found = json(&[&model[..], &["--settling", "100s"]].concat());
        let number = |value: &Value| value.as_f64().unwrap();
        let margins = &defaults["margins"];
        let relative = &found["gains"]["relative"];
        let figures = [
            format!("{:.1}", number(&margins["gain"])),
            format!("{:.0}°", number(&margins["phase_degrees"])),
            format!("{:.2}", number(&margins["modulus"])),
            format!("{:.0} %", 100.0 * number(&defaults["overshoot"])),
            defaults["settling_periods"].to_string(),
            format!("{:.2}", number(&relative["kp"])),
            format!("{:.2}", number(&relative["ki"])),
            found["settling_periods"].to_string(),
        ];
        assert_eq!(row[4..12], figures, "{}", row[1]);
    }
}
