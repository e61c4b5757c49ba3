//! Bad messages and bad settings.

use super::*;

#[test]
fn hostile_messages_are_refused_by_name() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let agent = started(&service, &redis, "node1", "");
    let dispatcher = Dispatcher::join(&agent, "lb1/1#a");
    let report = |key: &str, value: Value| {
        let mut body = json!({
            "op": "report", "id": "lb1/1#a", "generation": dispatcher.generation, "version": 1,
        });
        body[key] = value;
        body
    };
    let many: Vec<String> = (0..1025).map(|n| format!("={n}")).collect();
    for (body, wanted) in [
        (json!({}), "missing field `op`"),
        (json!({ "op": "fly" }), "unknown variant `fly`"),
        (json!({ "op": "join", "id": "a b#c" }), "id must be"),
        (
            json!({ "op": "join", "id": "x".repeat(300) + "#a" }),
            "id must be",
        ),
        (json!({ "op": "join", "id": "lb1/1#a" }), "never used twice"),
        (
            json!({ "op": "join", "id": "lb1/1#z", "zzz": 1 }),
            "unknown field `zzz`",
        ),
        (report("busy", json!(many)), "maximum 1024"),
        (
            report("busy", json!(["=a b"])),
            "busy: \"=a b\" is no object set",
        ),
        (report("busy", json!(["*64"])), "an object set is"),
        (report("loads", json!({ "x": 1 })), "loads must be"),
        (report("loads", json!({ "=a 1 =b": 1 })), "is no object set"),
        (report("loads", json!({ "=a": -1 })), "from 0 to 1e15"),
        (report("loads", json!({ "=a": 1e300 })), "from 0 to 1e15"),
        (report("generation", json!("a b")), "generation must be"),
        (report("version", json!(-1)), "version"),
        (
            json!({ "op": "move", "set": "A17", "node": "node1" }),
            "an object set is",
        ),
        (
            json!({ "op": "move", "set": "=A", "node": "node9" }),
            "not live; live: node1",
        ),
        (json!({ "op": "leave", "id": "" }), "id must be"),
    ] {
        let (status, answer) = post(&agent, &body);
        assert_eq!(status, 400, "{body}: {answer}");
        let problem = answer["problem"].as_str().unwrap();
        assert!(problem.contains(wanted), "{problem}, not {wanted}");
    }
    let other = json!({ "op": "join", "id": "a#b", "cluster": "d" });
    assert_eq!(post(&agent, &other).0, 404);
    // Versions that have never been, or cannot be, do not take the table away.
    for version in [999_999_999_u64, 1_000_000_000_000_000] {
        let (status, answer) = post(&agent, &report("version", json!(version)));
        assert_eq!((status, answer["status"].as_str()), (200, Some("unknown")));
    }
    wait_for("it is in force as before", || {
        let answer = Dispatcher::ask(&agent, "lb2/1#c");
        (answer["status"] == "open")
            .then(|| assert_eq!(answer["generation"], dispatcher.generation.as_str()))
    });
}

#[test]
fn an_agent_without_placement_rejects_placement_requests() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    assert_eq!(agent.get("/v1/placement").unwrap().0, 404);
    assert!(
        cli(&agent, &["show"])
            .unwrap_err()
            .contains("no [placement]")
    );
}

#[test]
fn what_cannot_be_configured_is_named() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    for (more, wanted) in [
        ("when_lost = \"panic\"", "placement.when_lost"),
        ("gain = 2", "placement.gain"),
        ("initial = \"a b\"", "placement.initial"),
        (
            "[placement.pins]\nA17 = \"node1\"",
            "placement.pins.A17: an object set is",
        ),
        ("[placement.pins]\n\"=A\" = \"a b\"", "placement.pins.=A"),
    ] {
        let agent = member(&service, &redis, "node1", more);
        let told = agent.start_refused();
        assert!(told.contains(wanted), "{told}");
    }
    let agent = member(&service, &redis, "node1", "");
    agent.write_config(&agent.config().replace(
        "[placement]\ncluster = \"c\"",
        "[placement]\ncluster = \"d\"",
    ));
    let told = agent.start_refused();
    assert!(
        told.contains("no [service.ring] of this agent has the cluster \"d\""),
        "{told}"
    );
}
