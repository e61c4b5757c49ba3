//! Load reports of the real agent: over gRPC, and as a header's text.

use crate::support;
use std::{
    collections::HashMap,
    io::Write,
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::support::{
    Agent, free_port,
    peer::{Peer, Script},
    wait_for,
};
use tonic::{
    Code, Request, Status, Streaming,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

const METHOD: &str = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";

#[derive(Clone, PartialEq, prost::Message)]
struct Asked {
    #[prost(message, optional, tag = "1")]
    interval: Option<Interval>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Interval {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Report {
    #[prost(double, tag = "1")]
    cpu: f64,
    #[prost(double, tag = "6")]
    rps: f64,
    #[prost(double, tag = "7")]
    eps: f64,
    #[prost(map = "string, double", tag = "8")]
    named: HashMap<String, f64>,
    #[prost(double, tag = "9")]
    utilization: f64,
}

/// An agent of these services, whose nodes finish so many requests of so many seconds between looks.
fn agent(peer: &Peer, services: &[&str], orca: u16) -> Agent {
    let mut agent = Agent::new();
    let services = services.iter().map(|name| {
        let url = peer.url();
        format!(
            r#"
[[service]]
name = "{name}"
[service.sla]
delay = "1s"
[service.bound]
nominal = 100
[service.controller]
kind = "fixed"
[service.source]
kind = "prometheus"
url = "{url}"
histogram = "work_seconds"
"#
        )
    });
    let envoy = format!("[envoy]\norca_listen = \"127.0.0.1:{orca}\"");
    agent.configure(&envoy, &services.collect::<String>());
    agent.start_again();
    agent
}

async fn connect(port: u16, authority: &str) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
    let origin = format!("http://{authority}").parse().unwrap();
    endpoint.origin(origin).connect().await.unwrap()
}

async fn ask(
    channel: Channel,
    interval: Option<Interval>,
    path: &'static str,
) -> Result<Streaming<Report>, Status> {
    let mut client = Grpc::new(channel);
    client.ready().await.unwrap();
    let codec: ProstCodec<Asked, Report> = ProstCodec::default();
    let path = PathAndQuery::from_static(path);
    let answer = client
        .server_streaming(Request::new(Asked { interval }), path, codec)
        .await;
    answer.map(tonic::Response::into_inner)
}

async fn next(reports: &mut Streaming<Report>) -> Report {
    let next = tokio::time::timeout(support::PATIENCE, reports.message());
    next.await.expect("a report in time").unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_come_at_the_interval_asked_for() {
    let (peer, port) = (Peer::start(Script::Work(20, 0.05)), free_port());
    let agent = agent(&peer, &["stocks"], port);
    wait_for("a period", || {
        agent.service("stocks")["observed_seconds"].as_f64()
    });
    for (interval, least) in [
        (
            Some(Interval {
                seconds: 0,
                nanos: 300_000_000,
            }),
            0.3,
        ),
        (
            Some(Interval {
                seconds: 0,
                nanos: 1,
            }),
            0.1,
        ),
        (
            Some(Interval {
                seconds: -5,
                nanos: 0,
            }),
            0.1,
        ),
        (None, 0.1),
    ] {
        let mut reports = ask(connect(port, "x").await, interval, METHOD)
            .await
            .unwrap();
        let began = Instant::now();
        let first = next(&mut reports).await;
        assert!(
            first.rps > 0.0 && first.eps == 0.0 && first.cpu == 0.0,
            "{first:?}"
        );
        // Twenty requests of 50 ms in about 0.1 s: ten at a time, of a hundred.
        assert!((0.01..1.0).contains(&first.utilization), "{first:?}");
        assert_eq!(first.named["plimsoll.bound"], 100.0);
        for _ in 0..3 {
            next(&mut reports).await;
        }
        let took = began.elapsed();
        assert!(
            took >= Duration::from_secs_f64(2.5 * least),
            "{interval:?}: {took:?}"
        );
        assert_eq!(agent.metric("plimsoll_orca_streams"), Some(1.0));
        drop(reports);
        wait_for("the stream is gone", || {
            agent.metric("plimsoll_orca_streams").filter(|n| *n == 0.0)
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authority_names_one_of_several_services() {
    let (peer, port) = (Peer::start(Script::Work(20, 0.05)), free_port());
    let agent = agent(&peer, &["stocks", "bonds"], port);
    for authority in ["stocks", "bonds:9701"] {
        let mut reports = ask(connect(port, authority).await, None, METHOD)
            .await
            .unwrap();
        next(&mut reports).await;
    }
    let refused = ask(connect(port, "127.0.0.1").await, None, METHOD)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("several services"), "{refused}");
    let other = "/xds.service.orca.v3.OpenRcaService/Other";
    let refused = ask(connect(port, "stocks").await, None, other)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);

    assert_eq!(agent.get("/v1/orca").unwrap().0, 400);
    assert_eq!(agent.get("/v1/orca?service=nope").unwrap().0, 404);
    assert_eq!(agent.get("/v1/orca?service=bonds").unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_connections_are_limited_and_malformed_input_does_no_harm() {
    let (peer, port) = (Peer::start(Script::Work(20, 0.05)), free_port());
    let agent = agent(&peer, &["stocks"], port);
    for garbage in [
        "GET / HTTP/1.1\r\n\r\n",
        "\0\0\0\0",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\u{7f}\u{7f}\u{7f}",
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(garbage.as_bytes()).unwrap();
    }
    // None of them is read, so they had better be quiet.
    let rarely = Some(Interval {
        seconds: 3600,
        nanos: 0,
    });
    let mut streams = Vec::new();
    for _ in 0..4 {
        let channel = connect(port, "x").await;
        for _ in 0..64 {
            streams.push(ask(channel.clone(), rarely, METHOD).await.unwrap());
        }
    }
    let refused = ask(connect(port, "x").await, None, METHOD).await;
    assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
    streams.clear();
    wait_for("the streams are gone", || {
        agent.metric("plimsoll_orca_streams").filter(|n| *n == 0.0)
    });
    let mut reports = ask(connect(port, "x").await, None, METHOD).await.unwrap();
    next(&mut reports).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_lock_no_client_out() {
    let (peer, port) = (Peer::start(Script::Work(20, 0.05)), free_port());
    let agent = agent(&peer, &["stocks"], port);
    let often = Some(Interval {
        seconds: 0,
        nanos: 100_000_000,
    });
    let mut first = ask(connect(port, "x").await, often, METHOD).await.unwrap();
    let mut idle: Vec<_> = Vec::new();
    for _ in 0..2 {
        idle.extend((0..300).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()));
        let asked = async { ask(connect(port, "x").await, often, METHOD).await.unwrap() };
        let asked = tokio::time::timeout(support::PATIENCE, asked).await;
        next(&mut asked.expect("a stream in time")).await;
    }
    let crowded = "plimsoll_http_connections_closed_total{reason=\"crowded\"}";
    assert!(agent.count(crowded) > 0.0);
    for _ in 0..20 {
        next(&mut first).await;
    }
}

#[test]
fn the_header_has_the_form_that_envoy_reads() {
    let peer = Peer::start(Script::Work(20, 0.05));
    let agent = agent(&peer, &["stocks"], free_port());
    let text = wait_for("a load", || {
        let (_, text) = agent.get("/v1/orca")?;
        (!text.contains("rps_fractional=0.000")).then_some(text)
    });
    let pairs = text.strip_prefix("TEXT ").unwrap().split(',');
    let pairs: Vec<_> = pairs.map(|pair| pair.split_once('=').unwrap()).collect();
    let names: Vec<_> = pairs.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["application_utilization", "rps_fractional", "eps"]);
    assert!(
        pairs.iter().all(|(_, value)| value.parse::<f64>().is_ok()),
        "{text}"
    );
    // Nothing is known any more: a report without throughput, which clients do not use.
    peer.play(Script::answer(500, ""));
    wait_for("no load", || {
        agent
            .get("/v1/orca")
            .filter(|(_, text)| text.contains("rps_fractional=0.000"))
    });
}

#[test]
fn a_port_in_use_is_reported_at_startup() {
    let peer = Peer::start(Script::Work(1, 0.1));
    let agent = agent(&peer, &["stocks"], free_port());
    let mut second = Agent::new();
    let config = agent.config();
    let swap = |text: String, a: u16, b: u16| text.replace(&a.to_string(), &b.to_string());
    let text = swap(config, agent.http_port, second.http_port);
    second.write_config(&swap(text, agent.check_port, second.check_port));
    let said = second.start_refused();
    assert!(
        said.contains("envoy.orca_listen: cannot listen on"),
        "{said}"
    );
    second.kill();
}
