//! Parsing and printing reproduces any file byte for byte.

use plimsoll_adopt::{Config, Edits, Kind, Source, Wish, plan, servers, unified_diff};
use proptest::prelude::*;

/// Pieces of haproxy.cfg, so that random files reach the planning of edits.
fn piece() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "global",
        "max-spread-checks 5s",
        "backend c",
        "frontend g",
        "frontend h\noption httplog # why\nuse_backend b if x",
        "listen l\ndefault_backend b",
        "defaults\nmode http",
        "use_backend %[x]",
        ".if a\nserver i 192.0.2.5:80\n.endif",
        ".if a\noption httplog\n.endif",
        "cookie c",
        "stick on src",
        "balance source",
        "balance static-rr",
        "hash-type map-based djb2 avalanche",
        "default-server minconn 1 weight",
        "default-server weight 5",
        "default-server agent-check agent-port 1",
        "log-format 'a b'",
        "log-format \"a b\" # c",
        "option httplog",
        "option logasap",
        "option dontlog-normal",
        "option redispatch",
        "no log",
        "log 192.0.2.3:5514 local0",
        "  # c",
        "",
        "\r",
        "\t timeout queue 1m",
        "timeout queue",
        "http-error status 503",
        "errorfile 503 /x",
        "server u unix@/x agent-check backup",
        "server v 192.0.2.3:81 weight 1 maxconn 2 minconn 3 # d",
        "server w 192.0.2.4:80 agent-send \"b/other\\n\"",
        "server x \"$A\" backup weight 9",
        "server y ::1:80 check weight 7",
    ])
    .prop_map(str::to_owned)
}

proptest! {
    #[test]
    fn printing_gives_the_same_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let config = Config::parse(&bytes, &|_| None);
        prop_assert_eq!(config.print(), &bytes[..]);
        prop_assert_eq!(Edits::default().apply(&bytes), &bytes[..]);
        prop_assert!(unified_diff("x", &bytes, &bytes).is_empty());
    }

    #[test]
    fn second_run_plans_no_edits(pieces in prop::collection::vec(piece(), 0..16)) {
        let head = "defaults\nmode http\nfrontend f\ndefault_backend b\nbackend b\nserver z 192.0.2.3:80\n";
        let (early, late) = pieces.split_at(pieces.len() / 2);
        let text = format!("global\n{}\n{head}{}\n", early.join("\n"), late.join("\n"));
        let environment = |name: &str| (name == "A").then(|| "192.0.2.9".to_owned());
        let read = |bytes: &[u8], source: &Source| {
            let config = Config::parse(bytes, &environment);
            assert_eq!(config.print(), bytes);
            let wish = Wish {
                backend: "b",
                sla: "1s",
                sla_milliseconds: 1000.0,
                source: source.clone(),
                enforce: *source == Source::Log,
                environment: &environment,
                resolve: &|_| None,
            };
            plan(&config, &wish).map(|it| String::from_utf8_lossy(&it.edits.apply(bytes)).into_owned())
        };
        let histogram = Source::Histogram { url: "http://127.0.0.1/".to_owned(), name: "x".to_owned(), gauge: None };
        for source in [Source::Log, histogram] {
            if let Ok(once) = read(text.as_bytes(), &source) {
                prop_assert_eq!(read(once.as_bytes(), &source), Ok(once.clone()));
            }
        }
    }
}

#[test]
fn sections_begin_by_their_word_and_inherit() {
    let text = "  global\nsetenv D x\n  defaults \"$D\" # c\n  defaults from x\n mode http\nbackend a\nserver s 1\n\
                listen b from x\nmode tcp\n";
    let config = Config::parse(text.as_bytes(), &|_| None);
    assert_eq!(config.problems, []);
    let found: Vec<_> = config
        .sections
        .iter()
        .map(|it| (it.kind, it.name.as_str(), it.defaults))
        .collect();
    assert_eq!(
        found,
        [
            (Kind::Global, "", None),
            (Kind::Defaults, "x", None),
            (Kind::Defaults, "", Some(1)),
            (Kind::Backend, "a", Some(2)),
            (Kind::Listen, "b", Some(1)),
        ]
    );
    let mode = config.in_force(&config.sections[3], |line| line.word(0) == "mode");
    assert_eq!(mode.map(|line| line.number), Some(5));
}

#[test]
fn servers_in_defaults_are_no_servers_of_a_backend() {
    let text = "defaults\nserver x 192.0.2.1:80\nbackend a\nserver y 192.0.2.2:80\nbackend b\n";
    let config = Config::parse(text.as_bytes(), &|_| None);
    let names = |at: usize| -> Vec<&str> {
        let found = servers(&config, &config.sections[at]);
        found.iter().map(|it| it.name).collect()
    };
    assert_eq!((names(1), names(2)), (vec!["y"], vec![]));
}

#[test]
fn problems_name_their_line() {
    for (text, line, words) in [
        ("server a\n", 1, "outside any section"),
        ("global\n.if a\n", 2, ".if without .endif"),
        ("global\n.endif\n", 2, ".endif without .if"),
        ("global\nsetenv a 'b\n", 2, "never closed"),
        ("global\ndaemon", 2, "truncated"),
        ("backend\n", 1, "has no name"),
        ("backend a from b\n", 1, "no preceding \"defaults b\""),
    ] {
        let config = Config::parse(text.as_bytes(), &|_| None);
        let found = config
            .problems
            .first()
            .map(|it| (it.line, it.text.contains(words)));
        assert_eq!(found, Some((line, true)), "{text}: {:?}", config.problems);
    }
}
