//! SIGHUP: what a reload changes, what it keeps, and what it refuses.

use std::net::UdpSocket;

use crate::support::{
    Agent, free_port,
    peer::{Peer, Script},
    wait_for,
};

const LIGHT: Script = Script::Work(100, 0.005);

fn service(name: &str, peer: &Peer) -> String {
    let url = peer.url();
    format!(
        r#"
[[service]]
name = "{name}"
identities = ["queries/{name}"]
[service.sla]
delay = "1s"
[service.bound]
nominal = 64
[service.controller]
kind = "pi"
[service.source]
kind = "prometheus"
url = "{url}"
histogram = "work_seconds"
timeout = "100ms"
[service.jobs]
kind = "prometheus"
gauge = "work_jobs"
"#
    )
}

/// Waits until the loop took so many more steps.
fn steps(agent: &Agent, name: &str, more: u32) {
    for _ in 0..more {
        let last = agent.service(name)["stepped_at"].clone();
        wait_for("a step", || {
            (agent.service(name)["stepped_at"] != last).then_some(())
        });
    }
}

#[test]
fn another_sla_keeps_the_bound() {
    let peer = Peer::start(Script::Work(100, 5.0));
    let agent = Agent::with(&service("stocks", &peer));
    let bound = || agent.service("stocks")["decision"]["bound"].as_f64();
    wait_for("the bound is lowered", || (bound()? < 40.0).then_some(()));
    peer.play(LIGHT);
    wait_for("light load", || {
        (agent.reason() == "light_load").then_some(())
    });
    let before = bound();

    let config = agent.config();
    agent.write_config(&config.replace("delay = \"1s\"", "delay = \"2s\""));
    assert_eq!(agent.reload(), "applied");
    wait_for("the new SLA", || {
        assert_eq!(bound(), before);
        (agent.service("stocks")["settings"]["sla"]["delay"] == 2.0).then_some(())
    });
    steps(&agent, "stocks", 3);
    assert_eq!(bound(), before);
    let answer = agent.check("stocks\n").unwrap();
    assert!(answer.contains(" of 2s"), "{answer}");
    assert!(agent.log().contains("reloaded"), "{}", agent.log());
}

#[test]
fn a_bad_file_changes_nothing() {
    let peer = Peer::start(LIGHT);
    let agent = Agent::with(&service("stocks", &peer));
    let good = agent.config();
    let held = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap();
    let line_of = |text: &str, part: &str| {
        let index = text.lines().position(|line| line.contains(part));
        format!("agent.toml:{}:", index.unwrap() + 1)
    };
    let log_service = |listen: &str| {
        format!(
            "{good}\n[[service]]\nname = \"orders\"\nsla = {{ delay = \"1s\" }}\nbound = {{ nominal = 1 }}\n\
             source = {{ kind = \"haproxy-log\", listen = \"{listen}\", node = \"b/s\" }}\n"
        )
    };
    let cases = [
        (
            good.replace("nominal", "nominall"),
            "nominall",
            "unknown field",
        ),
        (
            good.replace("delay = \"1s\"", "delay = \"0s\""),
            "delay = \"0s\"",
            "service[0].sla.delay: must be above 0",
        ),
        (
            good.replace("= 64", "= 64\nmin = 100"),
            "nominal = 64",
            "service[0].bound.nominal: must be between",
        ),
        (
            good.replace("timeout = \"100ms\"", "timeout = \"200ms\""),
            "timeout",
            "service[0].source.timeout: must not be above agent.period",
        ),
        (
            log_service(&format!("tcp://127.0.0.1:{}", agent.check_port)),
            "haproxy-log",
            "conflicts with agent_check.listen",
        ),
        (good.replace("[agent]", "[agent"), "[agent", ""),
        (
            good.replace(&agent.http_port.to_string(), &free_port().to_string()),
            "",
            "http.listen: needs a restart to change",
        ),
        (
            good.replace(&agent.check_port.to_string(), &free_port().to_string()),
            "",
            "agent_check.listen: needs a restart to change",
        ),
        (
            good.replace("control.sock", "other.sock"),
            "",
            "control.socket: needs a restart to change",
        ),
        (
            log_service(&format!("udp://{taken}")),
            "",
            "service[1].source.listen: cannot listen on",
        ),
        (String::new(), "", "service"),
    ];
    for (text, at, message) in cases {
        agent.write_config(&text);
        let said = agent.log().len();
        assert_eq!(agent.reload(), "refused", "{text}");
        let log = agent.log().split_off(said);
        let refused = log.lines().find(|line| line.contains("reload refused"));
        let refused = refused.expect(&log);
        assert!(
            refused.contains("ERROR")
                && refused.contains("agent.toml")
                && refused.contains(message),
            "{message} in: {refused}"
        );
        if !at.is_empty() {
            assert!(refused.contains(&line_of(&text, at)), "{at} in: {refused}");
        }
        assert!(agent.words().starts_with("up 50% maxconn:"));
    }
    drop(held);
    std::fs::remove_file(agent.config_path()).unwrap();
    assert_eq!(agent.reload(), "refused");
    assert!(agent.log().contains("No such file"), "{}", agent.log());

    steps(&agent, "stocks", 2);
    assert_eq!(agent.service("stocks")["settings"]["sla"]["delay"], 1.0);
    assert_eq!(agent.get("/readyz").unwrap().0, 200);
    agent.write_config(&good);
    assert_eq!(agent.reload(), "applied");
}

#[test]
fn services_come_and_go() {
    let (one, two) = (Peer::start(LIGHT), Peer::start(LIGHT));
    let agent = Agent::with(&service("stocks", &one));
    let alone = agent.config();
    let both = alone.clone() + &service("orders", &two);
    let series = || -> Vec<String> {
        let text = agent.get("/metrics").unwrap().1;
        let of_orders = text.lines().filter(|line| line.contains("\"orders\""));
        of_orders.map(str::to_owned).collect()
    };
    assert_eq!(agent.check("orders lb1\n").unwrap(), "\n");

    // The second time with a loop that was ended.
    for _ in 0..2 {
        agent.write_config(&both);
        assert_eq!(agent.reload(), "applied");
        wait_for("orders is answered for", || {
            agent
                .check("queries/orders lb1\n")
                .unwrap()
                .starts_with("up 50% maxconn:64")
                .then_some(())
        });
        wait_for("a failure of its source", || {
            two.play(Script::Hang);
            let name = "plimsoll_source_failures_total{kind=\"timeout\",service=\"orders\"}";
            agent.metric(name)
        });
        assert!(!series().is_empty());

        // A scrape is under way now, and must not bring the service back when it ends.
        agent.write_config(&alone);
        assert_eq!(agent.reload(), "applied");
        assert_eq!(agent.check("orders lb1\n").unwrap(), "\n");
        wait_for("orders is gone", || {
            (series().is_empty() && agent.service("orders").is_null()).then_some(())
        });
        steps(&agent, "stocks", 4);
        assert_eq!(series(), Vec::<String>::new());
        assert!(agent.service("orders").is_null());
        two.play(LIGHT);
    }

    // Gone and back before the loop has ended.
    agent.write_config(&both);
    assert_eq!(agent.reload(), "applied");
    agent.write_config(&alone);
    assert_eq!(agent.reload(), "applied");
    agent.write_config(&both);
    assert_eq!(agent.reload(), "applied");
    wait_for("orders is back", || {
        agent.service("orders")["finished"]
            .as_u64()
            .filter(|n| *n > 0)
    });
    assert_eq!(
        agent.metric("plimsoll_task_restarts_total{task=\"control_loop\"}"),
        Some(0.0)
    );
}

#[test]
fn a_node_that_is_down_stays_down() {
    let peer = Peer::start(LIGHT);
    let probed = Peer::start(Script::answer(500, ""));
    let health = format!(
        "[service.health]\nkind = \"http\"\nurl = \"{}\"\ninterval = \"50ms\"\nfall = 2\nrise = 2\n",
        probed.url()
    );
    let agent = Agent::with(&(service("stocks", &peer) + &health));
    let down = || agent.words() == "down";
    wait_for("it is down", || down().then_some(()));
    let config = agent.config();
    agent.write_config(&config.replace("fall = 2", "fall = 30"));
    assert_eq!(agent.reload(), "applied");
    let steps = || agent.service("stocks")["stepped_at"].as_f64().unwrap();
    let reloaded = steps();
    wait_for("half a second of steps", || {
        assert!(down(), "a reload is no sign of health");
        (steps() > reloaded + 0.5).then_some(())
    });
    probed.play(Script::answer(200, ""));
    wait_for("it is up", || {
        agent.words().starts_with("up ").then_some(())
    });
}
