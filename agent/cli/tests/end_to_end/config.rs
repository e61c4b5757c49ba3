//! Configurations as an operator writes them, right and wrong.

use std::{path::Path, process::Command};

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

const GOOD: &str = r#"[http]
listen = "127.0.0.1:9464"
[agent_check]
listen = "127.0.0.1:9101"
[[service]]
name = "stocks"
[service.sla]
delay = "1s"
[service.bound]
nominal = 64
[service.source]
kind = "prometheus"
url = "http://127.0.0.1:8001/metrics"
histogram = "d"
"#;

fn check(text: &str) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("agent.toml");
    std::fs::write(&file, text).unwrap();
    check_file(&file)
}

fn check_file(file: &Path) -> Result<(), String> {
    let out = Command::new(PLIMSOLL)
        .args(["agent", "--check-config", "--config"])
        .arg(file)
        .output()
        .unwrap();
    let text = String::from_utf8(out.stderr).unwrap();
    out.status.success().then_some(()).ok_or(text)
}

#[test]
fn each_mistake_names_file_line_and_key() {
    check(GOOD).unwrap();
    let second = "[[service]]\nname = \"stocks\"\nsla = { delay = \"1s\" }\nbound = { nominal = 1 }\n\
                  source = { kind = \"haproxy-log\", listen = \"udp://127.0.0.1:1\", node = \"b/s\" }\n";
    let cases = [
        (
            GOOD.replace("histogram =", "histogramm ="),
            14,
            "histogramm",
        ),
        (
            GOOD.replace("\"stocks\"", "\"stocks\"\naddress = \"192.0.2.11\""),
            7,
            "service[0].address",
        ),
        (GOOD.replace("\"1s\"", "\"0s\""), 8, "service[0].sla.delay"),
        (GOOD.replace("\"1s\"", "\"-1s\""), 8, "service[0].sla.delay"),
        (GOOD.replace("\"1s\"", "1"), 8, "service[0].sla.delay"),
        (
            GOOD.replace("\"1s\"", "\"1s\"\nobjective = \"p100\""),
            9,
            "service[0].sla.objective",
        ),
        (
            GOOD.replace("\"1s\"", "\"1s\"\novershoot = \"2s\""),
            9,
            "service[0].sla.overshoot",
        ),
        (
            GOOD.replace("= 64", "= 64\nmin = 100\nmax = 70"),
            12,
            "service[0].bound.max",
        ),
        (
            GOOD.replace("= 64", "= nan"),
            10,
            "service[0].bound.nominal",
        ),
        (
            GOOD.replace("= 64", "= 64\nmin = 65"),
            10,
            "service[0].bound.nominal",
        ),
        (
            GOOD.replace("= 64", "= 64\nmin = 0"),
            11,
            "service[0].bound.min",
        ),
        (
            GOOD.replace("\"d\"", "\"d\"\ntimeout = \"2s\""),
            15,
            "service[0].source.timeout",
        ),
        (
            GOOD.replace("\"prometheus\"", "\"magic\""),
            12,
            "service[0].source.kind",
        ),
        (
            GOOD.replace("http://127.0.0.1:8001", "https://127.0.0.1:8001"),
            13,
            "service[0].source.url",
        ),
        (
            GOOD.replace("\"d\"", "\"d\"\nnode = \"b/s\""),
            15,
            "service[0].source.node: unknown field `node`, expected one of `url`,",
        ),
        (
            GOOD.replace("\"d\"", "3"),
            14,
            "service[0].source.histogram: invalid type: integer",
        ),
        (
            GOOD.replace("\"d\"", "\"d_bucket\""),
            14,
            "service[0].source.histogram: must be the histogram's name, \"d\"",
        ),
        (
            format!("{GOOD}[service.jobs]\nkind = \"backlog\"\n"),
            15,
            "service[0].jobs.port: or unix, one of them, is required",
        ),
        (
            format!("{GOOD}[service.jobs]\nkind = \"backlog\"\nunix = \"fpm.sock\"\n"),
            17,
            "service[0].jobs.unix: must be an absolute path",
        ),
        (
            format!("{GOOD}[service.jobs]\nkind = \"sockets\"\nport = 1\nunix = \"/a\"\n"),
            18,
            "service[0].jobs.unix",
        ),
        (
            format!("{GOOD}[service.jobs]\nkind = \"backlog\"\nport = 1\n").replace(
                "kind = \"prometheus\"\nurl = \"http://127.0.0.1:8001/metrics\"\nhistogram = \"d\"",
                "kind = \"proxies\"",
            ),
            14,
            "service[0].jobs.kind: \"backlog\" is for source.kind = \"prometheus\"",
        ),
        (GOOD.replace("9464", "9101"), 4, "agent_check.listen"),
        (GOOD.replace("9464", "94640"), 2, "http.listen"),
        (
            GOOD.replace("[agent_check]", "allow = [\"192.0.2.0/33\"]\n[agent_check]"),
            3,
            "http.allow[0]",
        ),
        (
            GOOD.replace("[[service]]", "allow = []\n[[service]]"),
            5,
            "agent_check.allow",
        ),
        (
            GOOD.replace("[[service]]", "max_proxies_per_address = 65\n[[service]]"),
            5,
            "agent_check.max_proxies_per_address",
        ),
        (GOOD.replace("9464", "0"), 2, "http.listen"),
        (format!("{GOOD}{second}"), 16, "service[1].name"),
        (
            format!("{GOOD}{second}")
                .replace("\"stocks\"\nsla", "\"orders\"\nsla")
                .replace("udp://127.0.0.1:1", "tcp://127.0.0.1:9101"),
            19,
            "service[1].source.listen",
        ),
        (format!("bounds = 1\n{GOOD}"), 1, "bounds"),
        (
            GOOD.replace("\"stocks\"", "\"two words\""),
            6,
            "service[0].name",
        ),
        (GOOD.replace("nominal = 64", "nominal = = 64"), 10, ""),
    ];
    for (text, line, key) in cases {
        let error = check(&text).expect_err(&text);
        assert!(
            error.contains(&format!("agent.toml:{line}:")),
            "line {line} in: {error}{text}"
        );
        assert!(error.contains(key), "{key} in: {error}");
    }
}

#[test]
fn no_error_shows_a_secret() {
    const SECRET: &str = "271828";
    for (redis, told) in [
        (
            format!("[redis]\nurls = []\npassword_file = {SECRET}"),
            "redis.password_file",
        ),
        (
            format!("[redis]\nurls = []\npassword = {SECRET}"),
            "redis.password",
        ),
        (
            format!("[redis]\nurls = [\"redis://u:{SECRET}@192.0.2.1:6379\"]"),
            "redis.urls[0]",
        ),
        (
            format!("[redis]\nurls = \"redis://u:{SECRET}@192.0.2.1:6379\""),
            "redis.urls",
        ),
    ] {
        let error = check(&format!("{GOOD}{redis}\n")).expect_err(&redis);
        assert!(error.contains(told) && !error.contains(SECRET), "{error}");
    }
    for (from, to) in [
        (
            "listen = \"127.0.0.1:9464\"",
            format!("token_file = {SECRET}"),
        ),
        ("http://", format!("http://u:{SECRET}@")),
    ] {
        let error = check(&GOOD.replace(from, &to)).expect_err(&to);
        assert!(!error.contains(SECRET), "{error}");
    }
}

#[test]
fn agent_checks_are_asked_on_loopback_unless_it_is_said_where() {
    let listens = |address: &str| {
        let http = format!("[http]\nlisten = \"{address}\"\n");
        let (_, services) = GOOD.split_once("[[service]]").unwrap();
        check(&format!("{http}[[service]]{services}"))
    };
    let error = listens("127.0.0.1:9101").unwrap_err();
    assert!(
        error.contains("agent_check.listen: 127.0.0.1:9101 conflicts"),
        "{error}"
    );
    listens("192.0.2.1:9101").unwrap();
}

#[test]
fn the_examples_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for example in ["agent.toml", "first.toml"] {
        // The package makes the directory.
        let text = std::fs::read_to_string(root.join("packaging").join(example)).unwrap();
        check(&text.replace("/var/lib/plimsoll", "/tmp")).unwrap();
    }
    let of_gather = root.join("packaging/gather.toml");
    let mut check = Command::new(PLIMSOLL);
    check.args(["gather", "--check-config", "--config"]);
    assert!(check.arg(of_gather).status().unwrap().success());
}

#[test]
fn the_references_are_up_to_date() {
    for command in ["agent", "gather"] {
        let out = Command::new(PLIMSOLL)
            .args(["config-reference", command])
            .output()
            .unwrap();
        let page = format!("docs/{command}-config.md");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let kept = std::fs::read_to_string(root.join(&page)).unwrap();
        assert!(
            kept == String::from_utf8(out.stdout).unwrap(),
            "write it again: plimsoll config-reference {command} > {page}"
        );
    }
}

#[test]
fn each_controller_takes_its_own_keys_and_no_others() {
    let with = |keys: &str| check(&format!("{GOOD}[service.controller]\n{keys}\n"));
    for good in [
        "kind = \"pi\"\nkp = 0.3\nki = 2.0\nform = \"double-integrating\"",
        "kind = \"parabola\"\nkp = 0.3\nki = 2.0",
        "kind = \"pi\"\ngains = \"auto\"",
        "kind = \"parabola\"\ngains = \"auto\"\nkp = 0.3",
        "kind = \"pi\"\ngains = \"fixed\"",
        "kind = \"proportional\"\ngain = 0.4",
        "kind = \"inverse-delay\"",
        "kind = \"fixed\"",
    ] {
        with(good).unwrap();
    }
    for (wrong, key) in [
        ("kind = \"parable\"", "service[0].controller.kind"),
        (
            "kind = \"parabola\"\ngain = 0.4",
            "service[0].controller.gain",
        ),
        ("kind = \"fixed\"\nkp = 0.4", "service[0].controller.kp"),
        (
            "kind = \"pi\"\ngains = \"best\"",
            "service[0].controller.gains",
        ),
        (
            "kind = \"inverse-delay\"\ngains = \"auto\"",
            "service[0].controller.gains",
        ),
        (
            "kind = \"pi\"\nform = \"double-integrating\"\ngains = \"auto\"",
            "service[0].controller.gains",
        ),
    ] {
        let problem = with(wrong).unwrap_err();
        assert!(problem.contains(key), "{wrong}: {problem}");
    }
}

#[test]
fn each_kind_of_load_takes_its_own_keys_and_no_others() {
    let with = |keys: &str| check(&format!("{GOOD}[service.load]\n{keys}\n"));
    for good in [
        "kind = \"delay\"",
        "kind = \"cpu\"\ncgroup = \"/system.slice/mariadb.service\"",
        "kind = \"network\"\ninterface = \"eth0.7\"",
        "kind = \"cpu+network\"\ninterface = \"eth0\"\nspeed = 1000000000",
    ] {
        with(good).unwrap();
    }
    for (wrong, key) in [
        ("kind = \"disk\"", "service[0].load.kind"),
        ("speed = 1e9", "service[0].load.speed"),
        (
            "kind = \"network\"\ncgroup = \"/a\"",
            "service[0].load.cgroup",
        ),
        (
            "kind = \"cpu\"\ncgroup = \"/a/../b\"",
            "service[0].load.cgroup",
        ),
        ("kind = \"cpu\"\ncgroup = \"a\"", "service[0].load.cgroup"),
        (
            "kind = \"network\"\nspeed = 1e9",
            "service[0].load.interface",
        ),
        (
            "kind = \"network\"\ninterface = \"../x\"",
            "service[0].load.interface",
        ),
        (
            "kind = \"network\"\ninterface = \"eth0\"\nspeed = nan",
            "service[0].load.speed",
        ),
    ] {
        let problem = with(wrong).unwrap_err();
        assert!(problem.contains(key), "{wrong}: {problem}");
    }
}

#[test]
fn update_periods_have_a_url_and_sound_limits() {
    let with = |keys: &str| check(&format!("{GOOD}[service.updates]\n{keys}\n"));
    let url = "url = \"http://127.0.0.1:1/accesses\"\n";
    with(url).unwrap();
    with(&format!("{url}longest = \"10s\"\nupdate_cost = 0.25")).unwrap();
    for (wrong, key) in [
        (String::new(), "url"),
        ("url = \"ftp://a/\"".to_owned(), "service[0].updates.url"),
        (
            format!("{url}longest = \"0s\""),
            "service[0].updates.longest",
        ),
        (
            format!("{url}longest = \"2days\""),
            "service[0].updates.longest",
        ),
        (
            format!("{url}update_cost = 0"),
            "service[0].updates.update_cost",
        ),
        (
            format!("{url}update_cost = nan"),
            "service[0].updates.update_cost",
        ),
        (format!("{url}period = 1"), "period"),
    ] {
        let problem = with(&wrong).unwrap_err();
        assert!(problem.contains(key), "{wrong}: {problem}");
    }
}

#[test]
fn each_kind_of_jobs_takes_its_own_keys_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let password = directory.path().join("password");
    std::fs::write(&password, "x\n").unwrap();
    let with = |keys: &str| {
        let keys = keys.replace("PASSWORD", &format!("{password:?}"));
        check(&format!("{GOOD}[service.jobs]\n{keys}\n"))
    };
    for good in [
        "kind = \"none\"",
        "kind = \"sockets\"\nport = 1",
        "kind = \"mysql\"\naddress = \"127.0.0.1:3306\"\nuser = \"a\"\npassword_file = PASSWORD",
        "kind = \"postgresql\"\naddress = \"unix:///run/postgresql/.s.PGSQL.5432\"\nuser = \"a\"\ndatabase = \"b\"",
    ] {
        with(good).unwrap();
    }
    let mysql = "kind = \"mysql\"\naddress = \"localhost:3306\"\nuser = \"a\"\n";
    for (wrong, key) in [
        ("kind = \"oracle\"".to_owned(), "service[0].jobs.kind"),
        ("user = \"a\"".to_owned(), "service[0].jobs.user"),
        (format!("{mysql}port = 1"), "service[0].jobs.port"),
        (format!("{mysql}gauge = \"g\""), "service[0].jobs.gauge"),
        (
            format!("{mysql}database = \"b\""),
            "service[0].jobs.database",
        ),
        (
            format!("{mysql}password_file = \"/none\""),
            "service[0].jobs.password_file",
        ),
        (mysql.replace("user = \"a\"", ""), "service[0].jobs.user"),
        (mysql.replace("\"a\"", "\"\""), "service[0].jobs.user"),
        (
            mysql.replace("localhost:3306", "unix://a"),
            "service[0].jobs.address",
        ),
        (
            mysql.replace("localhost:3306", "localhost"),
            "service[0].jobs.address",
        ),
    ] {
        let problem = with(&wrong).unwrap_err();
        assert!(problem.contains(key), "{wrong}: {problem}");
    }
}
