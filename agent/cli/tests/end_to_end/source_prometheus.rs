//! Scrapes of a service that is wrong in every way: the last good answer stays in force.

use std::time::Duration;

use crate::support::{
    Agent,
    peer::{Peer, Script, answer},
    wait_for,
};

/// Quick answers, too few at once to have set the delay: the bound is held where it is.
const LIGHT: Script = Script::Work(100, 0.005);

/// An agent whose bound has come down from its nominal 64, and what HAProxy would obey.
fn controlled(peer: &Peer) -> (Agent, String) {
    let mut agent = Agent::new();
    agent.configure("", &service(peer));
    agent.write_config(&agent.config().replace("100ms", "50ms"));
    peer.play(Script::Work(100, 5.0));
    agent.start_again();
    wait_for("the bound is lowered", || {
        let bound = agent.service("stocks")["decision"]["bound"].as_f64()?;
        (bound < 40.0).then_some(())
    });
    peer.play(LIGHT);
    wait_for("light load", || {
        (agent.reason() == "light_load").then_some(())
    });
    let words = agent.words();
    assert!(words.starts_with("up ") && words != "up 50% maxconn:64");
    (agent, words)
}

fn service(peer: &Peer) -> String {
    let url = peer.url();
    format!(
        r#"
[[service]]
name = "stocks"
identities = ["queries/node1"]
[service.sla]
delay = "1s"
[service.bound]
nominal = 64
[service.controller]
kind = "pi"
[service.rules]
empty_hold_periods = 10000
[service.jobs]
kind = "prometheus"
gauge = "work_jobs"
[service.source]
kind = "prometheus"
url = "{url}"
histogram = "work_seconds"
labels = {{ class = "query" }}
timeout = "100ms"
max_body = "4KiB"
"#
    )
}

fn failures(agent: &Agent, kind: &str) -> f64 {
    agent.count(&format!(
        "plimsoll_source_failures_total{{kind=\"{kind}\",service=\"stocks\"}}"
    ))
}

/// Two more failures of this kind, seen from every side.
fn assert_held(agent: &Agent, url: &str, words: &str, kind: &str, message: &str) {
    let before = failures(agent, kind);
    wait_for(&format!("{kind}: {message}"), || {
        assert_eq!(agent.words(), words, "{message}");
        (failures(agent, kind) >= before + 2.0).then_some(())
    });
    let node = agent.service("stocks");
    assert_eq!(node["decision"]["reason"], "source_lost", "{message}");
    let said = node["source_error"].as_str().unwrap();
    assert!(
        said.contains(message) && said.contains(url),
        "{message} in: {said}"
    );
    let log = agent.log();
    let told = log.lines().find(|line| {
        line.contains("no observation") && line.contains(message) && line.contains(url)
    });
    assert!(told.is_some(), "{message} in: {log}");
}

fn assert_recovers(agent: &Agent, words: &str) {
    wait_for("recovery", || {
        assert_eq!(agent.words(), words);
        let node = agent.service("stocks");
        let works = node["source_error"].is_null() && node["finished"] == 100;
        works.then_some(())
    });
}

#[test]
fn a_peer_that_is_no_good_http_server() {
    let peer = Peer::start(LIGHT);
    let (agent, words) = controlled(&peer);
    let whole = answer(200, "", peer.text());
    let cut_off = format!("HTTP/1.1 200 x\r\n\r\n{}", peer.text().trim_end());
    let long = "# a comment\n".repeat(400);
    let endless = format!("HTTP/1.1 200 {}", "x".repeat(1 << 20));
    let cases = [
        (Script::Hang, "timeout", "no whole answer within 50ms"),
        (Script::Drip(whole.clone()), "timeout", "no whole answer"),
        (
            Script::Raw(Duration::from_millis(300), whole.clone()),
            "timeout",
            "no whole answer",
        ),
        (
            Script::answer(200, peer.text() + &long),
            "too_large",
            "larger than 4096 bytes",
        ),
        (
            Script::raw(&whole[..whole.len() - 20]),
            "truncated",
            "body broke off",
        ),
        (Script::raw(cut_off), "truncated", "cut off"),
        (Script::raw(Vec::new()), "truncated", "closed before"),
        (Script::answer(500, peer.text()), "status", "status 500"),
        (
            Script::raw(answer(302, "location: /\r\n", "")),
            "status",
            "status 302",
        ),
        (
            Script::raw(b"\x00\xff\x16garbage\r\n\r\n"),
            "garbage",
            "HTTP",
        ),
        (Script::raw(endless), "garbage", "too large"),
        (
            Script::answer(200, b"work_seconds \xff\xfe\n"),
            "garbage",
            "not UTF-8",
        ),
    ];
    for (script, kind, message) in cases {
        peer.play(script);
        assert_held(&agent, &peer.url(), &words, kind, message);
        peer.play(LIGHT);
        assert_recovers(&agent, &words);
    }
    let (port, url) = (peer.port, peer.url());
    drop(peer);
    assert_held(&agent, &url, &words, "unreachable", "refused");
    let _peer = Peer::on(port, LIGHT);
    assert_recovers(&agent, &words);
}

#[test]
fn a_text_that_cannot_be() {
    let peer = Peer::start(LIGHT);
    let (agent, words) = controlled(&peer);
    let text = peer.text();
    let edited = |from: &str, to: &str| {
        assert!(text.contains(from), "{from} in {text}");
        text.replace(from, to)
    };
    // The value of the series that begins so.
    let set = |series: &str, value: &str| {
        let line = text.lines().find(|line| line.starts_with(series)).unwrap();
        let (name, _) = line.rsplit_once(' ').unwrap();
        edited(line, &format!("{name} {value}"))
    };
    let first = "work_seconds_bucket{class=\"query\",le=\"0.01\"}";
    let long = "x".repeat(2000);
    let cases = [
        (set(first, "NaN"), "garbage", "a count of NaN"),
        (set(first, "-1"), "garbage", "a count of -1"),
        (set(first, "1e300"), "garbage", "a count of 1000"),
        (set(first, "many"), "garbage", "is not a series"),
        (set(first, "999999999"), "garbage", "decrease"),
        (set("work_seconds_sum", "NaN"), "garbage", "_sum is NaN"),
        (set("work_seconds_sum", "-1"), "garbage", "_sum is -1"),
        (set("work_seconds_sum", "1e300"), "garbage", "_sum is 1000"),
        (
            edited("_sum", "_total"),
            "garbage",
            "{class=\"query\"} has no _sum",
        ),
        (
            edited("+Inf", "20").replace("_count", "_events"),
            "garbage",
            "no +Inf bucket",
        ),
        (edited("\"10\"", "\"1\""), "garbage", "differ"),
        (
            edited("work_seconds", "play_seconds"),
            "no_series",
            "work_seconds",
        ),
        (edited("\"query\"", "\"other\""), "no_series", "labels"),
        (
            edited("work_jobs 0", "work_jobs NaN"),
            "garbage",
            "work_jobs is NaN",
        ),
        (
            edited("work_jobs 0", "work_jobs 1e12"),
            "garbage",
            "work_jobs is 1000000000000",
        ),
        (
            edited(
                "_sum{",
                &format!("_sum{{class=\"query\",x=\"\\\u{1b}{long}\"}} 1\nx{{"),
            ),
            "garbage",
            "has no buckets for",
        ),
    ];
    for (text, kind, message) in cases {
        peer.play(Script::answer(200, text));
        assert_held(&agent, &peer.url(), &words, kind, message);
        peer.play(LIGHT);
        assert_recovers(&agent, &words);
    }
    let log = agent.log();
    assert!(
        log.lines().all(|line| line.len() < 1000) && !log.contains('\u{1b}'),
        "what the service says is shown in part, without control characters: {log}"
    );
}

#[test]
fn counters_that_begin_again_are_a_restarted_service() {
    let peer = Peer::start(LIGHT);
    let (agent, words) = controlled(&peer);
    // What it did before the restart must not be taken for new work, nor make less than none.
    peer.forget_counts();
    let scrapes = agent.count("plimsoll_steps_total{reason=\"light_load\",service=\"stocks\"}");
    wait_for("five more periods", || {
        let node = agent.service("stocks");
        assert!(node["finished"].as_u64().unwrap() <= 200, "{node}");
        assert_eq!(agent.words(), words);
        let now = agent.count("plimsoll_steps_total{reason=\"light_load\",service=\"stocks\"}");
        (now >= scrapes + 5.0).then_some(())
    });
    // Restarted and idle since.
    peer.play(Script::Work(0, 0.0));
    peer.forget_counts();
    wait_for("nothing finishes", || {
        assert_eq!(agent.words(), words);
        let node = agent.service("stocks");
        (agent.reason() == "empty" && node["finished"] == 0).then_some(())
    });
    assert!(agent.service("stocks")["source_error"].is_null());
}

#[test]
fn counters_that_cannot_go_on_are_a_new_base() {
    let peer = Peer::start(LIGHT);
    let (agent, words) = controlled(&peer);
    let once = |kind: &str, script: Option<Script>| {
        let before = failures(&agent, kind);
        if let Some(script) = script {
            peer.play(script);
        }
        wait_for(kind, || {
            assert_eq!(agent.words(), words);
            (failures(&agent, kind) > before).then_some(())
        });
    };
    // One bucket is missing for a while.
    let without: String = peer
        .text()
        .lines()
        .filter(|line| !line.contains("\"0.1\""))
        .map(|line| format!("{line}\n"))
        .collect();
    once("buckets", Some(Script::answer(200, without)));
    assert!(agent.log().contains("other buckets"), "{}", agent.log());
    wait_for("the new buckets serve", || {
        (agent.reason() == "empty").then_some(())
    });
    once("buckets", Some(LIGHT));
    assert_recovers(&agent, &words);

    peer.add(1_000_000_000_000, 0.005);
    once("garbage", None);
    assert!(
        agent.log().contains("implausible since the last scrape"),
        "{}",
        agent.log()
    );
    assert_recovers(&agent, &words);
}

#[test]
fn a_lost_source_is_logged_once_with_its_reason() {
    let peer = Peer::start(LIGHT);
    let mut agent = Agent::new();
    agent.configure("", &service(&peer));
    let config = agent.config();
    agent.write_config(&config.replace("[agent]", "[agent]\nlog_format = \"json\""));
    agent.start_again();
    wait_for("it works", || {
        (agent.reason() == "light_load").then_some(())
    });
    peer.play(Script::answer(503, ""));
    wait_for("five failures", || {
        (failures(&agent, "status") >= 5.0).then_some(())
    });
    peer.play(LIGHT);
    assert_recovers(&agent, &agent.words());

    let lines: Vec<serde_json::Value> = agent
        .log()
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    let about = |start: &str| -> Vec<_> {
        let message = |line: &&serde_json::Value| {
            let message = line["fields"]["message"].as_str();
            message.is_some_and(|message| message.starts_with(start))
        };
        lines.iter().filter(message).collect()
    };
    let lost = about("no observation");
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(lost[0]["level"], "WARN");
    assert_eq!(lost[0]["fields"]["kind"], "status");
    assert_eq!(about("the source works again").len(), 1);
    let rules = about("bound follows another rule");
    let held: Vec<_> = rules
        .iter()
        .filter(|line| line["fields"]["reason"] == "source_lost")
        .collect();
    assert_eq!(held.len(), 1, "{rules:?}");
    let fields = &held[0]["fields"];
    assert_eq!(fields["service"], "stocks");
    assert_eq!(
        (fields["bound"].as_f64(), fields["was"].as_f64()),
        (Some(64.0), Some(64.0))
    );
    assert_eq!(held[0]["level"], "INFO");
}
