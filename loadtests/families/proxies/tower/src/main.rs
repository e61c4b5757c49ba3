//! A reverse proxy that places requests by tower's middleware, and does nothing else.
//!
//! Nodes are chosen by two choices at random and peak EWMA, among those whose concurrency limit has room; a request
//! for which none has is shed.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use futures_util::future::{Either, poll_fn, ready};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    Request, Response, StatusCode, Uri,
    body::{Bytes, Incoming},
    header::{HOST, HeaderName, HeaderValue, RETRY_AFTER},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use serde::Deserialize;
use tokio::net::{TcpListener, TcpStream};
use tower::{
    BoxError, Service,
    balance::p2c::Balance,
    discover::ServiceList,
    limit::ConcurrencyLimit,
    load::{CompleteOnResponse, PeakEwmaDiscover},
    load_shed::{LoadShed, error::Overloaded},
};

const TOWER: &str = "0.5.3";
/// As HAProxy's in haproxy/examples.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
const NODE: HeaderName = HeaderName::from_static("x-plimsoll-node");
const REASON: HeaderName = HeaderName::from_static("plimsoll-reason");

#[derive(Parser)]
#[command(version = TOWER, name = "tower", about)]
struct Arguments {
    /// JSON with listen, admin, nodes and settings
    #[arg(long)]
    config: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    listen: String,
    admin: String,
    nodes: BTreeMap<String, String>,
    settings: Settings,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Maximum number of requests in flight at a node.
    limit: usize,
    /// Assumed delay of a node before its first answer.
    default_rtt_seconds: f64,
    /// Time constant of the average.
    decay_seconds: f64,
}

type Body = BoxBody<Bytes, hyper::Error>;
type Answer = Result<Response<Body>, BoxError>;

/// One node, over HTTP.
#[derive(Clone)]
struct Node {
    name: HeaderValue,
    address: String,
    client: Client<HttpConnector, Incoming>,
}

impl Service<Request<Incoming>> for Node {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        let node = self.clone();
        Box::pin(async move {
            let path = request
                .uri()
                .path_and_query()
                .map_or("/", |path| path.as_str());
            *request.uri_mut() = Uri::try_from(format!("http://{}{path}", node.address))?;
            request.headers_mut().remove(HOST);
            let mut answer = node.client.request(request).await?;
            answer.headers_mut().insert(NODE, node.name);
            Ok(answer.map(BodyExt::boxed))
        })
    }
}

type Nodes = PeakEwmaDiscover<ServiceList<Vec<ConcurrencyLimit<Node>>>>;
type Balancer = LoadShed<Balance<Nodes, Request<Incoming>>>;

fn balancer(config: &Config) -> Result<Balancer> {
    ensure!(!config.nodes.is_empty(), "nodes: at least one is needed");
    ensure!(config.settings.limit > 0, "settings.limit: must be above 0");
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let nodes = config.nodes.iter().map(|(name, address)| {
        let node = Node {
            name: HeaderValue::from_str(name)?,
            address: address.clone(),
            client: client.clone(),
        };
        Ok(ConcurrencyLimit::new(node, config.settings.limit))
    });
    let nodes = PeakEwmaDiscover::new(
        ServiceList::new(nodes.collect::<Result<Vec<_>>>()?),
        Duration::try_from_secs_f64(config.settings.default_rtt_seconds)?,
        Duration::try_from_secs_f64(config.settings.decay_seconds)?,
        CompleteOnResponse::default(),
    );
    Ok(LoadShed::new(Balance::new(nodes)))
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut answer = Response::new(
        Full::new(text.into())
            .map_err(|never| match never {})
            .boxed(),
    );
    *answer.status_mut() = status;
    answer
}

async fn forward(balancer: Arc<Mutex<Balancer>>, request: Request<Incoming>) -> Response<Body> {
    let mut request = Some(request);
    let answer = poll_fn(|context| {
        let mut balancer = balancer.lock().expect("no holder panics");
        // A shedding service is always ready; asking is what lets it find a node.
        let ready_now = balancer.poll_ready(context);
        Poll::Ready(match (ready_now, request.take()) {
            (Poll::Ready(Ok(())), Some(request)) => Either::Left(balancer.call(request)),
            (Poll::Ready(Err(error)), _) => Either::Right(ready(Err(error))),
            _ => Either::Right(ready(Err("the balancer is not ready".into()))),
        })
    })
    .await
    .await;
    match answer {
        Ok(answer) => answer,
        Err(error) if error.is::<Overloaded>() => {
            let mut refused = plain(StatusCode::SERVICE_UNAVAILABLE, "no node admits it\n");
            refused
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("1"));
            refused
                .headers_mut()
                .insert(REASON, HeaderValue::from_static("full"));
            refused
        }
        Err(error) => {
            eprintln!("{error:?}");
            plain(StatusCode::BAD_GATEWAY, "the node failed\n")
        }
    }
}

async fn serve<F, R>(listener: TcpListener, handler: F)
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<Body>> + Send + 'static,
{
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                eprintln!("cannot accept: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        tokio::spawn(connection(stream, handler.clone()));
    }
}

async fn connection<F, R>(stream: TcpStream, handler: F)
where
    F: Fn(Request<Incoming>) -> R,
    R: Future<Output = Response<Body>>,
{
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| {
        let answer = handler(request);
        async { Ok::<_, std::convert::Infallible>(answer.await) }
    });
    // A client that leaves is none of our concern.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let path = Arguments::parse().config;
    let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
    let config: Config =
        serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
    let balancer = Arc::new(Mutex::new(
        balancer(&config).with_context(|| path.display().to_string())?,
    ));
    let front = TcpListener::bind(&config.listen)
        .await
        .context(config.listen.clone())?;
    let admin = TcpListener::bind(&config.admin)
        .await
        .context(config.admin.clone())?;
    let rows: BTreeMap<_, _> = config
        .nodes
        .keys()
        .map(|name| (name, serde_json::json!({ "limit": config.settings.limit })))
        .collect();
    let state = Bytes::from(serde_json::to_vec(&rows)?);
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        () = serve(front, move |request| forward(balancer.clone(), request)) => {}
        () = serve(admin, move |_| ready(plain(StatusCode::OK, state.clone()))) => {}
        _ = terminated.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(())
}
