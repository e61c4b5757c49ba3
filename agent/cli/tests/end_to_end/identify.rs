//! `plimsoll identify` on traces as they come, and on a live agent.

use std::{
    fmt::Write as _,
    io::Write as _,
    process::{Command, Output, Stdio},
};

use crate::support::{Agent, Service, free_port, wait_for};
use serde_json::Value;

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

/// Runs the command on a trace on its standard input.
fn identify(csv: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(PLIMSOLL);
    command.args(["identify", "-"]).args(arguments);
    let pipes = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    // It may end before it has read all.
    let _ = child.stdin.take().unwrap().write_all(csv.as_bytes());
    child.wait_with_output().unwrap()
}

fn json(csv: &str, arguments: &[&str]) -> Value {
    let out = identify(csv, &[arguments, &["--json"]].concat());
    serde_json::from_slice(&out.stdout).unwrap()
}

fn refusal(csv: &str, arguments: &[&str]) -> String {
    let out = identify(csv, arguments);
    assert!(!out.status.success());
    String::from_utf8(out.stderr).unwrap()
}

/// A load without a pattern in 0..1, the same on every machine.
fn noise() -> impl FnMut() -> f64 {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A node of Chronos eq. 4, with noise.
fn chronos(periods: usize) -> Vec<(f64, f64)> {
    let mut noise = noise();
    let mut made: Vec<(f64, f64)> = vec![(5.0, 1.0), (9.0, 1.5)];
    for k in 2..periods {
        let ((load1, delay1), (load2, delay2)) = (made[k - 1], made[k - 2]);
        let clean = 0.507 * delay1 - 0.089 * delay2 + 0.115 * load1 + 0.009 * load2;
        made.push((
            2.0 + 18.0 * noise(),
            (clean + 0.1 * (noise() - 0.5)).max(0.0),
        ));
    }
    made
}

fn csv(periods: &[(f64, f64)]) -> String {
    let mut text = "time,delay,backlog,finished\n".to_owned();
    for (at, (load, delay)) in periods.iter().enumerate() {
        writeln!(text, "{},{delay},{load},12", 1000.5 + at as f64).unwrap();
    }
    text
}

#[test]
fn a_known_node_is_found_and_can_be_tuned() {
    let trace = csv(&chronos(400));
    let found = json(&trace, &[]);
    assert_eq!(
        (&found["chosen"]["order"], &found["chosen"]["scale"]),
        (&2.into(), &"raw".into())
    );
    for (name, wanted) in [("a", [0.507, -0.089]), ("b", [0.115, 0.009])] {
        for (found, wanted) in found["chosen"][name].as_array().unwrap().iter().zip(wanted) {
            assert!(
                (found.as_f64().unwrap() - wanted).abs() < 0.03,
                "{name}: {found} is not {wanted}"
            );
        }
    }
    assert_eq!(found["models"].as_array().unwrap().len(), 8);
    let second = &found["models"][1];
    assert!(
        (second["rmse"].as_f64().unwrap() - 0.1 / 12f64.sqrt()).abs() < 0.003,
        "{second}"
    );
    let both = second["r2_chronos"].as_f64().unwrap() + second["r2_chronos_c"].as_f64().unwrap();
    assert!((both - 1.0).abs() < 1e-12);
    assert!(
        second["residuals"]["ljung_box_p"].as_f64().unwrap() > 0.01,
        "{second}"
    );

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("model.json");
    std::fs::write(&file, found.to_string()).unwrap();
    let tune = |path: &std::path::Path| {
        let mut command = Command::new(PLIMSOLL);
        command
            .args(["tune", "--json", "--model"])
            .arg(path)
            .output()
            .unwrap()
    };
    let tuned: Value = serde_json::from_slice(&tune(&file).stdout).unwrap();
    assert_eq!(tuned["plant"]["a"], found["chosen"]["a"]);
    assert_eq!(
        (&tuned["stable"], &tuned["within_sla"]),
        (&true.into(), &true.into())
    );
    std::fs::write(&file, "{\"chosen\": null, \"why\": \"too short\"}").unwrap();
    let refused = String::from_utf8(tune(&file).stderr).unwrap();
    assert!(
        refused.contains("model.json has no usable model: too short"),
        "{refused}"
    );
}

#[test]
fn people_are_told_what_to_use_and_why() {
    let out = identify(&csv(&chronos(400)), &[]);
    let text = String::from_utf8(out.stdout).unwrap();
    for wanted in [
        "trace  400 periods of 1.000 s, 396 fitted; 0 gaps, 0 resets, 0 without a value",
        "load   backlog, varies by ",
        "use    order 2 on raw",
        "why    the lowest order on its scale whose error on the second half",
        "next   plimsoll tune --a=0.47",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
}

#[test]
fn gaps_restarts_and_idle_periods_cut_the_trace() {
    let periods = chronos(400);
    let mut text = "seconds, queue ,s,done\n".to_owned();
    for (at, (load, delay)) in periods.iter().enumerate() {
        // A gap of ten periods; then the clock starts again.
        let time = match at {
            0..100 => at as f64,
            100..300 => at as f64 + 10.0,
            _ => at as f64 - 300.0,
        };
        let (delay, done) = match at {
            50 => ("NaN".to_owned(), 3),
            60 => (String::new(), 3),
            70 => ("0.0".to_owned(), 0),
            _ => (delay.to_string(), 3),
        };
        writeln!(text, "{time},{load}, {delay},{done}").unwrap();
    }
    let named = [
        "--time",
        "seconds",
        "--load",
        "queue",
        "--delay",
        "s",
        "--finished",
        "done",
    ];
    let found = json(&text, &named);
    let seen = &found["trace"];
    for (name, wanted) in [("periods", 400), ("gaps", 1), ("resets", 1), ("empty", 3)] {
        assert_eq!(seen[name], wanted, "{name}");
    }
    // 397 with values, in six stretches that lose four each.
    assert_eq!(seen["fitted"], 373);
    assert_eq!(seen["load"], "queue");
    assert_eq!(found["chosen"]["order"], 2);
}

#[test]
fn what_is_wrong_is_named_with_line_and_column() {
    let good = csv(&chronos(100));
    let with = |line: &str| good.replacen("1002.5,", line, 1);
    for (text, arguments, reason) in [
        (
            good.as_str(),
            &["--load", "mpl"][..],
            "no column \"mpl\"; the columns are time, delay, backlog, finished",
        ),
        (
            &with("1002.5,x"),
            &[],
            "standard input: line 4: column \"delay\": \"x",
        ),
        (
            &with("1002.5,-"),
            &[],
            "standard input: line 4: column \"delay\": -",
        ),
        (
            &with("1002.5,inf,1,1\n1003.5,"),
            &[],
            "line 4: column \"delay\": \"inf\" is not a number",
        ),
        (&with(","), &[], "line 4: column \"time\": missing time"),
        (
            &with("1001.5,"),
            &[],
            "line 4: column \"time\": only 0 s after the previous line, but a period is 1 s",
        ),
        (&with("1002.5,1,"), &[], "found record with 5 fields"),
        ("", &[], "no column \"time\""),
        (
            "time,delay,backlog\n",
            &[],
            "0 lines, but the time in column",
        ),
        (
            "time,delay,backlog\n1,,1\n2,1,\n",
            &[],
            "no line has numbers in both column \"delay\" and column \"backlog\"",
        ),
        (
            &csv(&chronos(80)),
            &[],
            "76 periods have four before them without a gap: at least 80 are required",
        ),
        (
            &csv(&[(5.0, 0.1), (5.0, 0.2)].repeat(60)),
            &[],
            "the load varied by 0.00 % of its mean",
        ),
    ] {
        let refused = refusal(text, arguments);
        assert!(refused.contains(reason), "{reason} is not in: {refused}");
    }
    let mut endless = "time,delay,backlog\n".to_owned();
    for at in 0..200_001 {
        writeln!(endless, "{at},1,1").unwrap();
    }
    assert!(refusal(&endless, &[]).contains("more than the limit of 200000 lines"));
    let no_file = Command::new(PLIMSOLL)
        .args(["identify", "/nowhere.csv"])
        .output()
        .unwrap();
    assert!(
        String::from_utf8(no_file.stderr)
            .unwrap()
            .contains("cannot read /nowhere.csv")
    );
}

#[test]
fn a_node_with_inverse_response_has_no_usable_model() {
    let backwards: Vec<_> = chronos(300)
        .into_iter()
        .map(|(load, delay)| (25.0 - load, delay))
        .collect();
    let found = json(&csv(&backwards), &[]);
    assert!(found["chosen"].is_null());
    for model in found["models"].as_array().unwrap() {
        assert!(
            model["refused"].as_str().unwrap().contains("wrong sign"),
            "{model}"
        );
    }
    let refused = refusal(&csv(&backwards), &[]);
    assert!(
        refused.contains("no usable model: order 1 on raw: wrong sign"),
        "{refused}"
    );
}

#[test]
fn a_live_agent_is_recorded() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    wait_for("a period with requests", || {
        let finished = agent.service("stocks")["finished"].as_u64();
        finished.filter(|finished| *finished > 0)
    });
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.csv");
    let url = format!("http://127.0.0.1:{}", agent.http_port);
    let record = |more: &[&str]| {
        let mut command = Command::new(PLIMSOLL);
        command
            .args(["identify", "--record", &url, "--for", "5s"])
            .args(more);
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    let refused = record(&["--load", "bound", "--save", file.to_str().unwrap()]);
    // It is recorded, and far too short.
    assert!(
        refused.contains("periods have four before them"),
        "{refused}"
    );
    let trace = std::fs::read_to_string(&file).unwrap();
    let mut lines = trace.lines();
    assert_eq!(lines.next(), Some("time,delay,backlog,jobs,bound,finished"));
    let mut before = 0.0;
    let mut whole = 0;
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let time: f64 = cells[0].parse().unwrap();
        assert!(time > before, "{trace}");
        before = time;
        // A hundred requests a scrape, in the bucket up to 0.6 s; the bound is fixed.
        assert_eq!(cells[4], "40", "{trace}");
        if cells[5] != "0" {
            assert!(
                (0.0..0.6).contains(&cells[1].parse::<f64>().unwrap()),
                "{trace}"
            );
            whole += 1;
        }
    }
    assert!(whole > 0, "{trace}");
    let refused = record(&["--service", "none"]);
    assert!(
        refused.contains("--service none:") && refused.contains("has stocks"),
        "{refused}"
    );
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let out = Command::new(PLIMSOLL)
        .args(["identify", "--record", &nobody])
        .output()
        .unwrap();
    let refused = String::from_utf8(out.stderr).unwrap();
    assert!(refused.contains("cannot record the agent"), "{refused}");
}
