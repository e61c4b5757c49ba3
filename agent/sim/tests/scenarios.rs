//! Scenario files: the built-in ones, and errors in others.
#![allow(clippy::unwrap_used)]

use plimsoll_sim::{POLICIES, SCENARIOS, Scenario, ScenarioError, run};

const GOOD: &str = "about = 'test'\nsla_seconds = 1.0\nseconds = 10.0\npolicies = ['rr']\n[clients]\nitems = [80, 80]\n\
                    phases = [{ from = 0.0, load = 0.4 }]\n[[nodes]]\ncores = 8\nworkers = 8\nitem_seconds = 0.001\n";

fn problem(text: &str) -> String {
    match Scenario::parse("test.toml", text) {
        Err(error) => error.to_string(),
        Ok(_) => "nothing".to_owned(),
    }
}

#[test]
fn built_in_scenarios_are_valid_and_name_known_policies() {
    for name in SCENARIOS {
        let scenario = Scenario::find(name).unwrap();
        assert_eq!(scenario.name, *name);
        for policy in &scenario.policies {
            let family = policy
                .split_once("static-")
                .map_or(policy.as_str(), |_| "static");
            assert!(POLICIES.contains(&family), "{name}: {policy}");
        }
    }
}

#[test]
fn errors_name_file_and_key() {
    assert_eq!(problem(GOOD), "nothing");
    let cases = [
        (
            "sla_seconds = 1.0",
            "sla_seconds = 0.0",
            "test.toml: sla_seconds: must be above 0",
        ),
        (
            "sla_seconds = 1.0",
            "sla_seconds = nan",
            "test.toml: sla_seconds: must be above 0",
        ),
        ("seconds = 10.0", "seconds = inf", "test.toml: seconds: "),
        (
            "seconds = 10.0",
            "seconds = 10.0\nmeasured_from = 10.0",
            "test.toml: measured_from: must be before the end",
        ),
        (
            "seconds = 10.0",
            "seconds = 10.0\nproxies = 0",
            "test.toml: proxies: ",
        ),
        (
            "items = [80, 80]",
            "items = [80, 60]",
            "test.toml: clients.items: ",
        ),
        (
            "items = [80, 80]",
            "items = [80, 80]\ncount = 9000000",
            "test.toml: clients.count: ",
        ),
        (
            "items = [80, 80]",
            "items = [80, 80]\ncount = 5",
            "test.toml: clients.phases[0]: must have think",
        ),
        (
            "items = [80, 80]",
            "items = [80, 80]\nkeys = 9000000",
            "test.toml: clients.keys: ",
        ),
        (
            "workers = 8",
            "workers = 8\ncache_keys = 2",
            "test.toml: nodes[0]: cache_keys",
        ),
        (
            "from = 0.0",
            "from = 1.0",
            "test.toml: clients.phases: the first must be from 0",
        ),
        (
            "load = 0.4",
            "load = -1.0",
            "test.toml: clients.phases[0]: must have load",
        ),
        ("workers = 8", "workers = 0", "test.toml: nodes[0]: "),
        (
            "workers = 8",
            "workers = 8\ncount = 20000",
            "test.toml: nodes: must be within 1 and 10000",
        ),
        (
            "item_seconds = 0.001",
            "item_seconds = 0",
            "test.toml: nodes[0]: item_seconds",
        ),
        (
            "item_seconds = 0.001",
            "item_seconds = 1\n[[changes]]\nat = 1.0\nnode = 1\nto = 'down'",
            "test.toml: changes[0]: there are only 1 nodes",
        ),
        (
            "item_seconds = 0.001",
            "item_seconds = 1\n[[changes]]\nat = 1.0\nnode = 0\nto = 'slow'",
            "test.toml: changes[0]: slow needs a value",
        ),
        (
            "item_seconds = 0.001",
            "item_seconds = 1\n[[changes]]\nat = 1.0\nnode = 0\nto = 'contended'\nvalue = -1",
            "test.toml: changes[0]: slow needs a value",
        ),
        (
            "[[nodes]]",
            "[writes]\napply = 1.5\n[[nodes]]",
            "test.toml: writes.apply: must be within 0 and 1",
        ),
        (
            "[[nodes]]\n",
            "[writes]\napply = 0.5\n[[nodes]]\ncount = 101\n",
            "test.toml: writes: takes at most 100 nodes",
        ),
        (
            "policies = ['rr']",
            "policies = ['fc-prop-updates']",
            "test: policies: fc-prop-updates needs [updates]",
        ),
        (
            "policies = ['rr']",
            "policies = ['static-0']",
            "test: policies: there is no policy \"static-0\"",
        ),
        (
            "item_seconds = 0.001",
            "item_seconds = 1\n[tuning]\nmin = 0.0",
            "test.toml: tuning: ",
        ),
    ];
    for (from, to, expected) in cases {
        let found = problem(&GOOD.replace(from, to));
        assert!(found.starts_with(expected), "{to}: {found}");
    }
    let updates = format!(
        "{GOOD}[updates]\nitems = 100\nperiod = 0.5\nlongest = 5.0\nupdate_seconds = 0.001\nreads = 2.0\nskew = 1.0\n"
    );
    assert_eq!(problem(&updates), "nothing");
    for (from, to, key) in [
        ("items = 100", "items = 0", "items"),
        ("items = 100", "items = 900000", "items"),
        ("period = 0.5", "period = 0", "period"),
        ("longest = 5.0", "longest = 0.1", "longest"),
        (
            "update_seconds = 0.001",
            "update_seconds = 0.1",
            "update_seconds",
        ),
        ("reads = 2.0", "reads = nan", "reads"),
        ("skew = 1.0", "skew = -1", "skew"),
    ] {
        let found = problem(&updates.replace(from, to));
        assert!(
            found.starts_with(&format!("test.toml: updates.{key}: ")),
            "{to}: {found}"
        );
    }
    let unknown = problem(&GOOD.replace("workers", "worker"));
    assert!(
        unknown.contains("test.toml") && unknown.contains("line 10") && unknown.contains("worker"),
        "{unknown}"
    );
}

#[test]
fn unknown_scenario_or_policy_is_refused_with_the_known_ones() {
    let error = Scenario::find("chronos-d").unwrap_err().to_string();
    assert!(error.contains("chronos-c"), "{error}");
    let error = run(&Scenario::parse("test.toml", GOOD).unwrap(), "fc-prob", 1).unwrap_err();
    assert!(matches!(&error, ScenarioError::Value { key, .. } if key == "policies"));
    assert!(error.to_string().contains("fc-prop"), "{error}");
}
