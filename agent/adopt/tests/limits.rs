//! Limits of servers' own, before and after the agents are obeyed.

#![expect(clippy::expect_used)]

use plimsoll_adopt::{Config, Plan, Source, Wish, plan};

const TOP: &str = "global\n    daemon\n\ndefaults\n    mode http\n    option httplog\n    timeout queue 1m\n\nfrontend web\n    \
                   bind :80\n    default_backend app\n\n";
const SERVERS: &str = "    server a 192.0.2.11:80 check\n    server b 192.0.2.12:80 check\n";

fn planned(text: &str, enforce: bool) -> Plan {
    let config = Config::parse(text.as_bytes(), &|_| None);
    let wish = Wish {
        backend: "app",
        sla: "1s",
        sla_milliseconds: 1000.0,
        source: Source::Log,
        enforce,
        environment: &|_| None,
        resolve: &|_| None,
    };
    plan(&config, &wish).expect("a plan")
}

fn edited(text: &str, plan: &Plan) -> String {
    String::from_utf8(plan.edits.apply(text.as_bytes())).expect("text")
}

#[test]
fn minconn_of_defaults_is_taken_back() {
    let text = format!("{TOP}backend app\n{SERVERS}").replace(
        "mode http\n",
        "mode http\n    default-server minconn 2 maxconn 9\n",
    );
    let after = edited(&text, &planned(&text, true));
    assert!(after.contains("agent-inter 250ms minconn 0\n"), "{after}");
    assert!(planned(&after, true).edits.is_empty(), "{after}");
}

#[test]
fn limits_stay_until_the_agents_are_obeyed() {
    let defaults = "mode http\n    default-server minconn 2\n";
    let servers = "    timeout queue 5s\n    default-server inter 3s minconn 3 weight 7\n    \
                   server a 192.0.2.11:80 maxconn 9 # old\n    server b 192.0.2.12:80 maxconn 9 weight 7\n";
    let text = format!("{TOP}backend app\n{servers}").replace("mode http\n", defaults);
    let observing = planned(&text, false);
    let after = edited(&text, &observing);
    for kept in [
        "    timeout queue 5s\n",
        "    default-server inter 3s minconn 3\n",
        "    server a 192.0.2.11:80 maxconn 9 agent-send \"app/a\\n\" # old\n",
        "    server b 192.0.2.12:80 maxconn 9 agent-send \"app/b\\n\"\n",
    ] {
        assert!(after.contains(kept), "{kept}: {after}");
    }
    let note = "maxconn 9 and `timeout queue` stay while";
    assert!(
        observing.notes.iter().any(|it| it.text.starts_with(note)),
        "{:?}",
        observing.notes
    );
    for agent in &observing.agents {
        assert!(
            agent.text.contains("\nmode = \"observe\" "),
            "{}",
            agent.text
        );
    }
    let again = planned(&after, false);
    assert!(again.edits.is_empty(), "{:?}", again.edits);

    let at_once = planned(&text, true);
    assert!(!at_once.agents[0].text.contains("mode ="));
    for text in [
        edited(&after, &planned(&after, true)),
        edited(&text, &at_once),
    ] {
        for changed in [
            "    timeout queue 50ms\n",
            "    default-server inter 3s\n",
            "    server a 192.0.2.11:80 agent-send \"app/a\\n\" # old\n",
            "    server b 192.0.2.12:80 agent-send \"app/b\\n\"\n",
            "minconn 0\n",
        ] {
            assert!(text.contains(changed), "{changed}: {text}");
        }
        assert!(planned(&text, true).edits.is_empty(), "{text}");
    }
}

#[test]
fn the_log_is_read_by_the_name_of_the_server_whatever_agent_send_says() {
    let text = format!(
        "{TOP}backend app\n    server a 192.0.2.11:80 agent-check agent-port 9101 agent-send \"other\\n\"\n"
    );
    let agent = &planned(&text, true).agents[0].text;
    assert!(agent.contains("identities = [\"other\"]\n"), "{agent}");
    assert!(agent.contains("node = \"app/a\"\n"), "{agent}");
}
