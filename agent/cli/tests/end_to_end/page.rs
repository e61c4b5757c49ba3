//! `/`, the page for people.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use crate::support::{Agent, Service, http_get_with, http_post, wait_for};

fn page(agent: &Agent) -> String {
    let (status, page) = agent.get("/").unwrap();
    assert_eq!(status, 200);
    page
}

/// Once it has all of these.
fn page_with(agent: &Agent, wanted: &[&str]) -> String {
    wait_for(&format!("{wanted:?} on the page"), || {
        let page = page(agent);
        wanted
            .iter()
            .all(|text| page.contains(text))
            .then_some(page)
    })
}

#[test]
fn the_page_shows_the_node_and_loads_nothing() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let wanted = [
        "<bdi>stocks</bdi> <span class=\"state up\">up</span>",
        "<h3>Delay of 95\u{a0}% of the requests</h3>",
        "<span>the bound allows 40</span>",
        "<strong>50\u{a0}%</strong>",
        "<code>fixed</code></a>: fixed by hand or configuration",
        "<bdi>lb1</bdi>",
        "<code>up 50% maxconn:40 ",
        "href=\"/v1/node\"",
        "href=\"/metrics\"",
        "/docs/runbook.md\"",
        "class=\"measured\" d=\"M",
    ];
    let page = wait_for("the whole page", || {
        // A proxy is forgotten after a second.
        agent.check("queries/node1 lb1\n").unwrap();
        let page = page(&agent);
        let missing = wanted.iter().filter(|text| !page.contains(**text));
        let missing: Vec<_> = missing.collect();
        println!("missing: {missing:?}");
        missing.is_empty().then_some(page)
    });
    for text in [
        "<script", "<img", "<link", "src=", "url(", "@import", "style=", "onload=",
    ] {
        assert!(!page.contains(text), "{text} in:\n{page}");
    }
    let (_, head, _) = http_get_with(agent.http_port, "/", "").unwrap();
    for line in [
        "content-type: text/html; charset=utf-8",
        "content-security-policy: default-src 'none'; style-src 'sha256-",
        "cache-control: no-store",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
    ] {
        assert!(head.contains(line), "{line} in:\n{head}");
    }
}

#[test]
fn words_of_others_are_no_markup() {
    let service = Service::start();
    let mut agent = Agent::unstarted(&service, "");
    let config = agent.config();
    let config = config.replace("queries/node1", "<b>&node1");
    agent.write_config(&config.replace("\"stocks\"", "\"<i>stocks\""));
    agent.start_again();
    let page = wait_for("the proxy on the page", || {
        agent.check("<b>&node1 <script>'</script>\n").unwrap();
        let page = page(&agent);
        page.contains("<bdi>&#60;script&#62;&#39;&#60;/script&#62;</bdi>")
            .then_some(page)
    });
    assert!(page.contains("<bdi>&#60;b&#62;&#38;node1</bdi>"), "{page}");
    for markup in ["<script", "<b>", "<i>"] {
        assert!(!page.contains(markup), "{markup} in:\n{page}");
    }
}

#[test]
fn only_reading_is_allowed_and_only_what_is_known_is_read() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    assert_eq!(http_post(agent.http_port, "/", "", "").unwrap().0, 405);
    let mut stream = TcpStream::connect(("127.0.0.1", agent.http_port)).unwrap();
    write!(
        stream,
        "HEAD / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 OK") && body.is_empty(),
        "{answer}"
    );

    let refreshed = "<meta http-equiv=\"refresh\" content=\"5\">";
    assert!(!page(&agent).contains("http-equiv"));
    let (status, page) = agent.get("/?refresh=5").unwrap();
    assert!(status == 200 && page.contains(refreshed), "{page}");
    let (status, problem) = agent.get("/?refresh=0").unwrap();
    let expected = "refresh: must be from 1 to 3600 seconds, is 0\n";
    assert_eq!((status, &*problem), (400, expected));
    assert_eq!(agent.get("/?refresh=x").unwrap().0, 400);
    assert_eq!(agent.get("/?other=1").unwrap().0, 400);
}

#[test]
fn what_a_lost_source_said_last_is_not_shown_as_if_it_were_of_now() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    let delay = |page: &str| {
        let (_, after) = page.split_once("of the requests</h3>").unwrap();
        let (_, value) = after.split_once("<strong>").unwrap();
        value.split_once("</strong>").unwrap().0.to_owned()
    };
    wait_for("a delay", || {
        (delay(&page(&agent)) != "unknown").then_some(())
    });
    drop(service);
    let page = page_with(&agent, &["The source fails: ", "The last observation was "]);
    assert_eq!(delay(&page), "unknown");
    // Its probe of the same port fails as well.
    let page = page_with(&agent, &["<span class=\"state down\">down</span>"]);
    assert!(page.contains("Not healthy: "), "{page}");
}

#[test]
fn what_is_only_observed_is_shown_as_what_would_be() {
    let service = Service::start();
    let mut agent = Agent::unstarted(&service, "");
    let config = agent.config();
    let name = "name = \"stocks\"\n";
    agent.write_config(&config.replace(name, &format!("{name}mode = \"observe\"\n")));
    agent.start_again();
    page_with(
        &agent,
        &[
            "<span class=\"state observed\">observed only</span>",
            "no proxy is told the bound, the weight or the state.",
            "<span>the bound would allow 40</span>",
            "<h3>Weight, if obeyed</h3>",
            "<dt>Bound, if obeyed</dt>",
            "<span>would be refused: ",
        ],
    );
}

#[test]
fn an_operators_word_is_shown() {
    let service = Service::start();
    let agent = Agent::start(&service, "");
    agent.node(&["drain"]).unwrap();
    agent.node(&["force", "weight", "20"]).unwrap();
    page_with(
        &agent,
        &[
            "<span class=\"state down\">drained</span>",
            "Set by hand: drain, weight 20\u{a0}%.",
            "<span>set to 20\u{a0}%</span>",
        ],
    );
}
