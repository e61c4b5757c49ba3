//! Metrics exported by the running agent, and their reference.

use crate::support;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    net::TcpListener,
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::support::databases::PostgreSql;
use crate::support::redis::Redis;
use crate::support::{Agent, Service, http_post, wait_for};

/// More than one service may have.
const MAX_SERIES: usize = 240;

fn reference() -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("metrics-reference")
        .output()
        .unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn the_reference_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kept = std::fs::read_to_string(root.join("../../docs/metrics.md")).unwrap();
    assert!(
        kept == reference(),
        "write it again: plimsoll metrics-reference > docs/metrics.md"
    );
}

/// A family: its type, and its labels with their values where these are a closed set.
type Family = (String, BTreeMap<String, BTreeSet<String>>);

/// The agent's families, as the reference has them.
fn catalogue() -> BTreeMap<String, Family> {
    let text = reference();
    let (agent, _) = text.split_once("## Gathers").unwrap();
    let rows = agent.lines().filter(|line| line.starts_with("| `"));
    let families = rows.map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        let name = cells[0].trim_matches(['|', ' ', '`']);
        let labels = cells[3].split("; ").filter(|label| !label.is_empty());
        let labels = labels.map(|label| {
            let (name, values) = label.split_once(": ").unwrap_or((label, ""));
            let values = values.split(", ").filter_map(|value| {
                let value = value.strip_prefix('`')?.strip_suffix('`')?;
                Some(value.to_owned())
            });
            (name.trim_matches('`').to_owned(), values.collect())
        });
        (name.to_owned(), (cells[1].to_owned(), labels.collect()))
    });
    families.collect()
}

/// The families of an exposition, with every series' labels.
fn exported(text: &str) -> BTreeMap<String, (String, Vec<BTreeMap<String, String>>)> {
    let mut families: BTreeMap<String, (String, Vec<_>)> = BTreeMap::new();
    for line in text.lines() {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap();
            families.insert(name.to_owned(), (kind.to_owned(), Vec::new()));
        } else if !line.starts_with('#') {
            let (series, _) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels
                .trim_end_matches('}')
                .split("\",")
                .filter(|l| !l.is_empty());
            let labels = labels.map(|label| {
                let (name, value) = label.split_once("=\"").unwrap();
                (name.to_owned(), value.trim_end_matches('"').to_owned())
            });
            let of_histogram = ["_bucket", "_sum", "_count"].map(|end| name.strip_suffix(end));
            let family = of_histogram
                .into_iter()
                .flatten()
                .find(|name| families.contains_key(*name));
            families
                .get_mut(family.unwrap_or(name))
                .unwrap()
                .1
                .push(labels.collect());
        }
    }
    families
}

fn promtool(text: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed");
    let mut stdin = promtool.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// Three services, one for each source; of the first everything is on.
fn services(
    service: &Service,
    redis: &Redis,
    database: &PostgreSql,
    http_port: u16,
) -> [String; 4] {
    let (port, redis) = (service.port, redis.url());
    let socket = database.socket().display().to_string();
    let ring = |cluster| {
        format!(
            "[service.ring]\ncluster = \"{cluster}\"\nnode = \"node1\"\nslots = 1000\nlease = \"2s\"\n"
        )
    };
    let named = |name| {
        format!(
            "[[service]]\nname = \"{name}\"\naddress = \"127.0.0.1:{port}\"\n\
             [service.sla]\ndelay = \"500ms\"\n[service.bound]\nnominal = 40\n[service.controller]\nkind = \"pi\"\n"
        )
    };
    let common = format!(
        r#"
[envoy]
peers = ["http://127.0.0.1:{http_port}"]
[redis]
urls = ["{redis}"]
timeout = "5s"
[placement]
cluster = "c"
"#
    );
    let scraped = named("stocks")
        + &format!(
            r#"
[service.source]
kind = "prometheus"
url = "http://127.0.0.1:{port}/metrics"
histogram = "work_seconds"
cost = "work_seconds_count"
[service.jobs]
kind = "backlog"
port = {port}
[service.load]
kind = "cpu+network"
interface = "lo"
speed = 1e9
[service.health]
kind = "tcp"
address = "127.0.0.1:{port}"
[service.updates]
url = "http://127.0.0.1:{port}/metrics"
[service.role]
address = "unix://{socket}"
user = "plimsoll"
"#
        );
    let logged = named("logged")
        + "[service.source]\nkind = \"haproxy-log\"\nlisten = \"unix://DIR/log.sock\"\nnode = \"queries/node1\"\n";
    let told = named("told")
        + "[service.source]\nkind = \"proxies\"\n"
        + &ring("told")
        + "[[partition]]\nname = \"p1\"\naddress = \"unix:///nowhere\"\nuser = \"u\"\ndatabase = \"d\"\n\
           queries = { one = \"SELECT 1\" }\n";
    [common, scraped + &ring("c"), logged, told]
}

#[test]
fn what_is_exported_is_what_the_catalogue_has() {
    let service = Service::start();
    let redis = Redis::start(&[]);
    let database = PostgreSql::start();
    let mut agent = Agent::new();
    let parts = services(&service, &redis, &database, agent.http_port);
    agent.configure("", &parts.concat());
    agent.start_again();
    agent.check("stocks lb1\n").unwrap();
    let observed = r#"{"service": "told", "dispatchers": [{"name": "p", "instance": "i", "lease_seconds": 60,
        "nodes": [{"name": "node1", "demand": 1, "observation": "1 0 0 0 0 -"}]}]}"#;
    wait_for("the exchange", || {
        let (status, _) = http_post(agent.http_port, "/v1/observe", "", observed)?;
        (status == 200).then_some(())
    });

    let catalogue = catalogue();
    assert!(catalogue.len() > 50, "{catalogue:#?}");
    let log = UnixDatagram::unbound().unwrap();
    let text = wait_for("every family", || {
        // Without lines some figures of the log are not known.
        let line = b"plimsoll queries/node1 0 1 29 0 0/30 200 -- -";
        log.send_to(line, agent.directory.path().join("log.sock"))
            .ok()?;
        let (_, text) = agent.get("/metrics")?;
        let exported = exported(&text);
        let missing = catalogue.keys().find(|name| !exported.contains_key(*name));
        missing.is_none().then_some(text)
    });
    promtool(&text);
    let mut of_one = BTreeSet::new();
    for (name, (kind, series)) in exported(&text) {
        let (listed, labels) = catalogue.get(&name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(kind, *listed, "{name}");
        for mut series in series {
            series.remove("service");
            if !series.contains_key("partition") {
                of_one.insert((name.clone(), series.clone()));
            }
            series.remove("le");
            for (label, value) in series {
                let values = labels
                    .get(&label)
                    .unwrap_or_else(|| panic!("{name}: {label}"));
                assert!(
                    values.is_empty() || values.contains(&value),
                    "{name}: {label}={value}"
                );
            }
        }
    }
    // As though one service had everything, even all three sources.
    assert!(of_one.len() < MAX_SERIES, "{} series", of_one.len());

    // What is removed is forgotten.
    let of = |service: &str, part: &str| {
        let (_, text) = agent.get("/metrics").unwrap();
        let label = format!("service=\"{service}\"");
        text.lines()
            .any(|line| line.starts_with(part) && line.contains(&label))
    };
    assert!(of("logged", "plimsoll_") && of("told", "plimsoll_") && of("stocks", "plimsoll_ring_"));
    assert!(
        agent
            .get("/metrics")
            .unwrap()
            .1
            .contains("partition=\"p1\"")
    );
    let (scraped, _) = parts[1].split_once("[service.ring]").unwrap();
    agent.configure("", scraped);
    assert_eq!(agent.reload(), "applied");
    let left = || {
        let (_, text) = agent.get("/metrics").unwrap();
        let is_left = |line: &&str| {
            let of = |service: &str| line.contains(&format!("service=\"{service}\""));
            let is_ring = line.starts_with("plimsoll_ring_") || line.starts_with("plimsoll_redis_");
            let is_gone = of("logged") || of("told") || of("stocks") && is_ring;
            line.starts_with("plimsoll_") && is_gone || line.contains("partition=\"p1\"")
        };
        let lines = text.lines().filter(is_left);
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let until = Instant::now() + support::PATIENCE;
    while !left().is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(left(), Vec::<String>::new(), "{}", agent.log());
    wait_for("the scraped one goes on", || {
        of("stocks", "plimsoll_bound").then_some(())
    });
}

#[test]
fn requests_are_counted_by_the_sla() {
    let service = Service::start();
    // Half of what is between two ends of the service's only bucket, 0 and 0.6 s, is within 0.3 s.
    let mut agent = Agent::unstarted(&service, "");
    let config = agent
        .config()
        .replace("delay = \"1s\"", "delay = \"300ms\"");
    agent.write_config(&config);
    agent.start_again();
    let count = |result| {
        agent.count(&format!(
            "plimsoll_requests_total{{result=\"{result}\",service=\"stocks\"}}"
        ))
    };
    wait_for("requests", || (count("timely") >= 100.0).then_some(()));
    let (_, text) = agent.get("/metrics").unwrap();
    let value = |series: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap_or_else(|| panic!("{series} in {text}"))
            .trim()
            .parse()
            .unwrap()
    };
    let timely = value("plimsoll_requests_total{result=\"timely\",service=\"stocks\"}");
    let late = value("plimsoll_requests_total{result=\"late\",service=\"stocks\"}");
    assert_eq!(timely, late);
    let bucket = |le| {
        value(&format!(
            "plimsoll_service_delay_seconds_bucket{{service=\"stocks\",le=\"{le}\"}}"
        ))
    };
    assert_eq!(
        [bucket("0.3"), bucket("0.6"), bucket("+Inf")],
        [timely, timely + late, timely + late]
    );
    let mean = value("plimsoll_service_delay_seconds_sum{service=\"stocks\"}") / (timely + late);
    assert_eq!(mean, 0.5);
}

#[test]
fn a_service_that_was_removed_while_envoys_peers_were_asked_leaves_no_series() {
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", peer.local_addr().unwrap());
    let named = |name| {
        format!(
            "[[service]]\nname = \"{name}\"\n[service.sla]\ndelay = \"500ms\"\n\
             [service.source]\nkind = \"haproxy-log\"\nlisten = \"unix://DIR/{name}.sock\"\nnode = \"b/{name}\"\n"
        )
    };
    let mut agent = Agent::new();
    let configure = |agent: &Agent, services: &str| {
        agent.configure(&format!("[envoy]\npeers = [\"{url}\"]"), services);
        // A peer is waited for as long as half of it.
        agent.write_config(
            &agent
                .config()
                .replace("period = \"100ms\"", "period = \"1s\""),
        );
    };
    configure(&agent, &(named("gone") + &named("stays")));
    agent.start_again();
    let (asked, _) = peer.accept().unwrap();
    configure(&agent, &named("stays"));
    assert_eq!(agent.reload(), "applied");
    let has = |words: [&str; 2]| {
        let (_, text) = agent.get("/metrics").unwrap();
        let mut lines = text.lines();
        lines.any(|line| words.iter().all(|word| line.contains(word)))
    };
    let of_gone = ["plimsoll_", "service=\"gone\""];
    wait_for("its loop's end", || (!has(of_gone)).then_some(()));
    drop(asked);
    wait_for("the round's end", || {
        has(["plimsoll_cluster_nodes", "service=\"stays\""]).then_some(())
    });
    wait_for("nothing of it", || (!has(of_gone)).then_some(()));
}
