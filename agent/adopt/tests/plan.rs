//! Edits, notes and refusals, by feature of the file.

#![expect(clippy::expect_used, clippy::panic)]

use plimsoll_adopt::{Config, Plan, Problem, Source, Wish, plan};

const TOP: &str = "global\n    daemon\n\ndefaults\n    mode http\n    option httplog\n    timeout queue 1m\n\nfrontend web\n    \
                   bind :80\n    default_backend app\n\n";
const SERVERS: &str = "    server a 192.0.2.11:80 check\n    server b 192.0.2.12:80 check\n";

fn planned(text: &str, source: Source) -> Result<Plan, Vec<Problem>> {
    let environment = |name: &str| (name == "NODE").then(|| "192.0.2.13".to_owned());
    let config = Config::parse(text.as_bytes(), &environment);
    let wish = Wish {
        backend: "app",
        sla: "1s",
        sla_milliseconds: 1000.0,
        source,
        enforce: true,
        environment: &environment,
        resolve: &|name| (name == "known").then(|| [192, 0, 2, 14].into()),
    };
    plan(&config, &wish)
}

fn histogram() -> Source {
    Source::Histogram {
        url: "http://127.0.0.1:8080/metrics".to_owned(),
        name: "seconds".to_owned(),
        gauge: None,
    }
}

fn adopt(text: &str) -> (String, Vec<String>, Plan) {
    let found =
        planned(text, Source::Log).unwrap_or_else(|problems| panic!("{text}: {problems:?}"));
    let after = String::from_utf8(found.edits.apply(text.as_bytes())).expect("text");
    let again =
        planned(&after, Source::Log).unwrap_or_else(|problems| panic!("{after}: {problems:?}"));
    assert!(
        again.edits.is_empty(),
        "a second run changes more: {:?}\n{after}",
        again.edits
    );
    let notes = found
        .notes
        .iter()
        .map(|it| format!("{}: {}", it.line, it.text))
        .collect();
    (after, notes, found)
}

fn backend(body: &str) -> (String, Vec<String>) {
    let (after, notes, _) = adopt(&format!("{TOP}backend app\n{body}"));
    let (_, own) = after.split_once("backend app\n").expect("the backend");
    (own.to_owned(), notes)
}

fn refused(text: &str, source: Source) -> Vec<String> {
    let problems = planned(text, source).expect_err(text);
    problems
        .iter()
        .map(|it| format!("{}: {}", it.line, it.text))
        .collect()
}

const NEW: &str = "    timeout queue 50ms\n    option redispatch 1\n    http-error status 503 content-type text/plain string \
                   \"no node may carry more\\n\" hdr retry-after 1 hdr plimsoll-reason full\n";

#[test]
fn edits_follow_the_guide() {
    let (after, notes, plan) = adopt(&format!(
        "{TOP}backend app\n    balance roundrobin\n    option httpchk GET /\n    timeout check 5s\n{SERVERS}"
    ));
    let fields = "plimsoll %b/%s %Tw %Tc %Tr %Td %TR/%Ta @%[date(0,ms)]/%rt/%sc/%H/%pid %ST %ts %[var(txn.plimsoll_items)]";
    let classic = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r";
    assert_eq!(
        after,
        format!(
            "global\n    max-spread-checks 100\n    daemon\n\ndefaults\n    mode http\n    option httplog\n    timeout queue 1m\n\n\
             frontend web\n    log 192.0.2.11:5514 local0 info\n    log 192.0.2.12:5514 local0 info\n    \
             log-format \"{fields} {classic}\"\n    bind :80\n    default_backend app\n\nbackend app\n    balance leastconn\n    \
             option httpchk GET /\n    timeout check 5s\n{NEW}    default-server weight 100 agent-check agent-port 9101 agent-inter 250ms\n    \
             server a 192.0.2.11:80 check agent-send \"app/a\\n\"\n    server b 192.0.2.12:80 check agent-send \"app/b\\n\"\n"
        )
    );
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert_eq!(plan.agents.len(), 2);
    assert_eq!(plan.agents[1].host, "192.0.2.12");
    for line in [
        "listen = \"192.0.2.12:9101\"",
        "name = \"app\"",
        "identities = [\"app/b\"]",
        "delay = \"1s\"",
        "listen = \"udp://192.0.2.12:5514\"",
        "node = \"app/b\"",
    ] {
        assert!(
            plan.agents[1].text.contains(line),
            "{}",
            plan.agents[1].text
        );
    }
}

#[test]
fn comments_spaces_and_line_ends_stay() {
    let text = format!(
        "{TOP}backend app\n\t# their servers\n\tserver  a   192.0.2.11:80   weight 3  check # old\n\tserver b 192.0.2.12:80 maxconn 9\n"
    );
    let (after, ..) = adopt(&text);
    assert!(
        after.contains("\n\tserver  a   192.0.2.11:80  check agent-send \"app/a\\n\" # old\n"),
        "{after}"
    );
    assert!(
        after.contains("\n\tserver b 192.0.2.12:80 agent-send \"app/b\\n\"\n"),
        "{after}"
    );
    assert!(
        after.contains("agent-inter 250ms\n\t# their servers\n"),
        "{after}"
    );
    let (crlf, ..) = adopt(&text.replace('\n', "\r\n"));
    assert_eq!(crlf, after.replace('\n', "\r\n"));
}

#[test]
fn plans_a_file_of_10000_lines() {
    let many: String = (0..2500)
        .map(|it| format!("backend b{it}\n    # one\n    server s 198.51.100.1:{it}\n\n"))
        .collect();
    let (after, ..) = adopt(&format!("{TOP}{many}backend app\n{SERVERS}"));
    assert!(after.contains(&many));
}

#[test]
fn existing_settings_are_kept() {
    for (body, kept, note) in [
        (
            "    timeout queue 200ms\n",
            "    timeout queue 200ms\n",
            "the guide has 50ms",
        ),
        (
            "    no option redispatch\n",
            "    no option redispatch\n",
            "option redispatch stays",
        ),
        (
            "    errorfile 503 /e\n",
            "    errorfile 503 /e\n",
            "its own page for 503",
        ),
        (
            "    balance random(2)\n",
            "    balance random(2)\n",
            "it supports weights",
        ),
        (
            "    balance first\n",
            "    balance first\n",
            "it does not support weights",
        ),
        (
            "    cookie S insert\n",
            "    cookie S insert\n",
            "cookie stays",
        ),
        (
            "    stick-table type ip size 1m\n    stick on src\n",
            "    stick on src\n",
            "stick stays",
        ),
        (
            "    balance source\n",
            "    balance source\n",
            "becomes consistent",
        ),
        (
            "    balance source\n    hash-type consistent\n",
            "    hash-type consistent\n",
            "shares of the keys",
        ),
        (
            "    option httpchk\n",
            "    option httpchk\n",
            "a full node answers it late",
        ),
        ("    fullconn 10\n", "    fullconn 10\n", "fullconn stays"),
        (
            "    http-request set-log-level silent if TRUE\n",
            "silent if TRUE\n",
            "agents do not see requests",
        ),
        (
            "    .if defined(X)\n    server x 192.0.2.99:80\n    .endif\n",
            "    server x 192.0.2.99:80\n",
            "left alone",
        ),
    ] {
        let (after, notes) = backend(&format!("{body}{SERVERS}"));
        assert!(after.contains(kept), "{body}: {after}");
        assert!(
            notes.iter().any(|it| it.contains(note)),
            "{body}: {notes:?}"
        );
    }
    for (body, changed) in [
        (
            "    timeout queue 2s # long\n",
            "    timeout queue 50ms # long\n",
        ),
        ("    option redispatch\n", "    option redispatch 1\n"),
        ("    balance static-rr\n", "    balance leastconn\n"),
        (
            "    balance uri depth 2\n    hash-type map-based djb2\n",
            "    balance uri depth 2\n    hash-type consistent djb2\n",
        ),
        ("    balance source\n", "    hash-type consistent\n"),
        (
            "    default-server maxconn 5 inter 3s weight 7\n",
            "    default-server inter 3s\n",
        ),
        (
            "",
            "    default-server weight 100 agent-check agent-port 9101 agent-inter 250ms\n",
        ),
    ] {
        let (after, _) = backend(&format!("{body}{SERVERS}"));
        assert!(after.contains(changed), "{body}: {after}");
    }
    let (after, _) = backend(&format!("    default-server maxconn 5\n{SERVERS}"));
    assert!(!after.contains("maxconn"), "{after}");
}

#[test]
fn a_cookie_keeps_redispatch_as_it_is() {
    let (after, _) = backend(&format!("    cookie S insert\n{SERVERS}"));
    assert!(!after.contains("redispatch"), "{after}");
}

#[test]
fn a_backup_gets_no_agent() {
    let (after, notes) = backend(&format!(
        "{SERVERS}    server sorry 127.0.0.1:81 backup weight 9\n"
    ));
    assert!(
        after.ends_with("    server sorry 127.0.0.1:81 backup weight 9 no-agent-check\n"),
        "{after}"
    );
    assert!(
        notes.iter().any(|it| it.contains("\"sorry\" is a backup")),
        "{notes:?}"
    );
}

#[test]
fn servers_of_one_host_have_one_agent() {
    let (after, _, plan) = adopt(&format!(
        "{TOP}backend app\n    server a 127.0.0.1:81\n    server b 127.0.0.1:82\n"
    ));
    assert!(
        after.contains("    log 127.0.0.1:5514 local0 info\n    log 127.0.0.1:5515 local0 info\n"),
        "{after}"
    );
    let [agent] = plan.agents.as_slice() else {
        panic!("{:?}", plan.agents);
    };
    for line in [
        "name = \"app/a\"",
        "name = \"app/b\"",
        "udp://127.0.0.1:5514",
        "udp://127.0.0.1:5515",
    ] {
        assert!(agent.text.contains(line), "{}", agent.text);
    }
}

#[test]
fn addresses_are_adopted() {
    let (after, notes, plan) = adopt(&format!(
        "{TOP}backend app\n    server a ${{NODE}}:80\n    server b [2001:db8::1]:80\n    server c known:80\n    server d hidden:80\n    \
         server e /run/app.sock\n"
    ));
    for line in [
        "log 192.0.2.13:5514 ",
        "log [2001:db8::1]:5514 ",
        "log known:5514 ",
        "log hidden:5514 ",
        "server e /run/app.sock agent-addr 127.0.0.1 agent-send \"app/e\\n\"",
    ] {
        assert!(after.contains(line), "{line}: {after}");
    }
    assert!(
        notes
            .iter()
            .any(|it| it.contains("from the current environment")),
        "{notes:?}"
    );
    let listens: Vec<bool> = [
        "192.0.2.13:",
        "[2001:db8::1]:",
        "192.0.2.14:",
        "ADDRESS:",
        "127.0.0.1:",
    ]
    .iter()
    .zip(&plan.agents)
    .map(|(at, agent)| agent.text.contains(&format!("listen = \"{at}9101\"")))
    .collect();
    assert_eq!(listens, [true; 5], "{:?}", plan.agents);
}

#[test]
fn a_template_and_tcp_need_the_services_own_histogram() {
    let template =
        format!("{TOP}backend app\n    server-template t 3 _http._tcp.app resolvers dns\n");
    assert!(refused(&template, Source::Log)[0].starts_with("14: server-template \"t\""));
    let tcp = format!("{TOP}backend app\n    mode tcp\n{SERVERS}");
    assert!(refused(&tcp, Source::Log)[0].starts_with("14: backend \"app\" has mode tcp"));
    let late = format!("{TOP}backend app\n    server a x:80 init-addr last,none\n");
    assert!(refused(&late, Source::Log)[0].starts_with("14: server \"a\": HAProxy may start"));
    for (text, wanted) in [
        (template, "resolvers dns agent-send \"app\\n\"\n"),
        (tcp, "agent-send \"app/b\\n\"\n"),
        (late, "none agent-send \"app/a\\n\"\n"),
    ] {
        let plan = planned(&text, histogram()).unwrap_or_else(|it| panic!("{it:?}"));
        let after = String::from_utf8(plan.edits.apply(text.as_bytes())).expect("text");
        assert!(after.ends_with(wanted), "{after}");
        assert!(
            !after.contains("5514") && !after.contains("plimsoll %b"),
            "{after}"
        );
        assert!(plan.agents[0].text.contains("kind = \"prometheus\""));
    }
}

#[test]
fn log_formats_are_extended() {
    for (written, wanted) in [
        (
            "log-format \"%ci %ST\"",
            "%[var(txn.plimsoll_items)] %ci %ST\"\n",
        ),
        (
            "log-format %ci\\ %ST # ours",
            "%[var(txn.plimsoll_items)] \"%ci\\ %ST # ours\n",
        ),
        (
            "log-format '{\"a\":\"%ci\"}'",
            "%[var(txn.plimsoll_items)] \"'{\"a\":\"%ci\"}'\n",
        ),
        ("option tcplog", "%ac/%fc/%bc/%sc/%rc %sq/%bq\"\n"),
        ("option httplog clf", "%CC %CS %hrl %hsl\"\n"),
        ("option httpslog", "%sslv/%sslc\"\n"),
        ("option logasap", "%{+Q}r\"\n"),
    ] {
        let text = format!("{TOP}backend app\n{SERVERS}")
            .replace("bind :80\n", &format!("bind :80\n    {written}\n"));
        let (after, ..) = adopt(&text);
        assert!(after.contains(wanted), "{written}: {after}");
        assert!(!after.contains("logasap"), "{after}");
    }
    let inherited =
        format!("{TOP}backend app\n{SERVERS}").replace("option httplog", "option dontlog-normal");
    assert!(
        adopt(&inherited)
            .0
            .contains("    no option dontlog-normal\n")
    );
    let dropped = format!("{TOP}backend app\n{SERVERS}")
        .replace("bind :80\n", "option httplog\n    bind :80\n    no log\n");
    let (after, ..) = adopt(&dropped);
    assert!(
        after.contains("    no log\n    log 192.0.2.11:5514")
            && after.matches("option httplog").count() == 1,
        "{after}"
    );
}

#[test]
fn other_sections_are_noted() {
    let shared = format!(
        "{TOP}backend app\n{SERVERS}backend other\n    server x 192.0.2.12:80\nbackend old\n    server y 192.0.2.9:80 agent-check agent-port 1\n"
    );
    let (_, notes, _) = adopt(&shared);
    assert!(
        notes
            .iter()
            .any(|it| it.starts_with("17: backend \"other\" also sends to 192.0.2.12:80")),
        "{notes:?}"
    );
    assert!(
        notes
            .iter()
            .any(|it| it.contains("agent checks without agent-send")),
        "{notes:?}"
    );
    let listen = "defaults\n  mode http\nlisten app\n  bind :80\n  server a 192.0.2.1:80\n";
    let (after, ..) = adopt(listen);
    assert!(
        after.starts_with("global\n    max-spread-checks 100\n\n")
            && after.contains("listen app\n  log 192.0.2.1:5514"),
        "{after}"
    );
    let dynamic = format!("{TOP}backend app\n{SERVERS}")
        .replace("default_backend app", "use_backend %[path,map(/m)]");
    assert!(
        adopt(&dynamic)
            .1
            .iter()
            .any(|it| it.contains("known only at run time"))
    );
}

#[test]
fn refusals_name_line_and_cause() {
    let app = |body: &str| format!("{TOP}backend app\n{body}");
    for (text, wanted) in [
        (
            format!("{TOP}backend other\n{SERVERS}"),
            "0: no backend \"app\"; backends with servers are other",
        ),
        (
            app(&format!("{SERVERS}backend app\n{SERVERS}")),
            "16: duplicate backend \"app\", first at line 13",
        ),
        (app(""), "13: backend \"app\" has no servers"),
        (
            app("    disabled\n    server a 192.0.2.1:80\n"),
            "14: backend \"app\" is disabled",
        ),
        (
            app("    server a 192.0.2.1:80\n    server a 192.0.2.2:80\n"),
            "15: duplicate server \"a\", first at line 14",
        ),
        (
            app("    server a *:80\n"),
            "14: server \"a\": its address is the one",
        ),
        (
            app("    server a \"${GONE}:80\"\n"),
            "14: server \"a\": $GONE is not set here",
        ),
        (
            app("    server a $GONE:80\n"),
            "14: server \"a\": $GONE is not set here",
        ),
        (
            app("    server a abns@x\n"),
            "14: server \"a\": \"abns@\" has no host",
        ),
        (
            app("    server a 192.0.2.1:80 agent-check agent-port 777\n"),
            "14: server \"a\" already has an agent-check (agent-port 777)",
        ),
        (
            app("    mode health\n    server a 192.0.2.1:80\n"),
            "14: backend \"app\" has mode health",
        ),
        (
            format!("{TOP}.if defined(X)\nbackend app\n{SERVERS}.endif\n"),
            "14: backend \"app\" is within the .if of line 13",
        ),
        (
            app(SERVERS).replace("default_backend app", "default_backend other"),
            "13: no frontend of this file sends",
        ),
        (
            app(SERVERS).replace("bind :80", "log-format '%{+json}o %(a)ci'"),
            "10: this log format is encoded",
        ),
        (app("    server a 'x\n"), "14: a quote"),
    ] {
        let found = refused(&text, Source::Log);
        assert!(found[0].starts_with(wanted), "{wanted}: {found:?}");
    }
}

#[test]
fn server_to_which_nothing_can_be_added_is_refused() {
    let identity = "agent-check agent-port 9101 agent-send \"\u{e9}\\n\"";
    let taken = "an agent accepts up to 120 printable ASCII characters for the text of agent-send, not \"\u{e9}\"";
    for (end, problem) in [
        ("maxconn # 9", "maxconn has no value"),
        ("cookie a\\", "its last word ends in a backslash"),
        (identity, taken),
    ] {
        let text = format!("{TOP}backend app\n    server a 192.0.2.11:80 {end}\n");
        let wanted = format!("14: server \"a\": {problem}");
        assert_eq!(refused(&text, Source::Log), [wanted]);
    }
}
