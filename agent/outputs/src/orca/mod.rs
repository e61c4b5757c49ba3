//! Load reports in ORCA's format: out of band over gRPC (`xds.service.orca.v3.OpenRcaService/StreamCoreMetrics`), and
//! as the text of a response header.

mod connection;
mod report;

/// Generated from `proto/orca.proto`.
mod protocol {
    tonic::include_proto!("xds.service.orca.v3");
}

use std::{pin::Pin, sync::Arc, time::Duration};

use ipnet::IpNet;
use plimsoll_net::{Door, Places, is_allowed};
use plimsoll_node::state::{NodeState, ServiceState, SharedState};
use prometheus::{Gauge, IntCounterVec};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    time::MissedTickBehavior,
};
use tokio_stream::{Stream, StreamExt, wrappers::IntervalStream};
use tokio_util::sync::CancellationToken;
use tonic::{
    Status,
    body::Body,
    codegen::http::{self, uri::Authority},
    transport::Server,
};
use tower::util::MapRequestLayer;

use connection::{OpenStream, Streams};
use protocol::{
    OrcaLoadReport, OrcaLoadReportRequest,
    open_rca_service_server::{OpenRcaService, OpenRcaServiceServer},
};

/// Maximum number of streams, over all connections; an Envoy or a gRPC client has one.
const MAX_STREAMS: usize = 256;
const MAX_CONNECTIONS: usize = 256;
const MAX_STREAMS_PER_CONNECTION: u32 = 64;
/// Maximum size of a request.
const MAX_BYTES: usize = 16 << 10;
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// Minimum interval between reports.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum interval between reports.
const MAX_INTERVAL: Duration = Duration::from_secs(3600);
/// Interval of keep-alive pings.
const PING: Duration = Duration::from_secs(20);
/// A connection silent for longer is closed, so clients must answer pings.
const SILENCE: Duration = Duration::from_secs(45);

/// Networks that may request reports, and the services that have them.
#[derive(Clone, Debug, PartialEq)]
pub struct OrcaConfig {
    /// Networks allowed to connect; `None` allows all.
    pub allow: Option<Vec<IpNet>>,
    /// Interval between reports, if the client requests none.
    pub period: Duration,
    /// This node's services.
    pub services: Vec<String>,
}

/// Shared state that the server needs.
#[derive(Clone)]
pub struct OrcaContext {
    /// This node's last decisions.
    pub state: SharedState,
    /// Current configuration.
    pub config: watch::Receiver<Arc<OrcaConfig>>,
    /// Number of open streams.
    pub streams: Gauge,
    /// Closed connections, by reason.
    pub closed: IntCounterVec,
}

/// Serves `StreamCoreMetrics` until `stop`.
pub async fn serve(
    listener: TcpListener,
    context: OrcaContext,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let config = context.config.clone();
    let door = Door {
        listener,
        places: Places::new(MAX_CONNECTIONS),
        allows: Box::new(move |address| is_allowed(config.borrow().allow.as_deref(), address)),
        closed: context.closed.clone(),
        silence: SILENCE,
        head: None,
    };
    let reports = Reports {
        context,
        permits: Arc::new(Semaphore::new(MAX_STREAMS)),
    };
    let service = OpenRcaServiceServer::new(reports).max_decoding_message_size(MAX_BYTES);
    let served = Server::builder()
        .layer(MapRequestLayer::new(keep_authority))
        .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION)
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .http2_keepalive_interval(Some(PING))
        .add_service(service)
        .serve_with_incoming(connection::accept(door));
    // Not a graceful shutdown, since streams never end.
    tokio::select! {
        served = served => Ok(served?),
        () = stop.cancelled() => Ok(()),
    }
}

/// Value of the response header `endpoint-load-metrics` for a service; for the only service if none is named.
pub fn header(
    state: &NodeState,
    config: &OrcaConfig,
    service: Option<&str>,
) -> Result<String, OrcaError> {
    let service = match service {
        Some(service) => service,
        None => only(config).ok_or(OrcaError::Ambiguous)?,
    };
    let state = state.services.get(service).ok_or(OrcaError::Unknown)?;
    Ok(report::text(&report::of(state)))
}

/// Why there is no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrcaError {
    /// None was named, but there are several services.
    Ambiguous,
    /// Unknown service, or no step yet.
    Unknown,
}

fn only(config: &OrcaConfig) -> Option<&str> {
    match &config.services[..] {
        [service] => Some(service),
        _ => None,
    }
}

/// The service named by the client's `:authority`, without its port; if there is only one, that one.
fn service_of(config: &OrcaConfig, authority: &str) -> Result<String, Status> {
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host);
    let named = |name: &&str| *name == authority || *name == host;
    let mut names = config.services.iter().map(String::as_str);
    if let Some(name) = names.find(named).or_else(|| only(config)) {
        return Ok(name.to_owned());
    }
    Err(Status::invalid_argument(format!(
        "this agent has several services: name one as the authority, not {authority:?}"
    )))
}

struct Reports {
    context: OrcaContext,
    permits: Arc<Semaphore>,
}

type ReportStream = Pin<Box<dyn Stream<Item = Result<OrcaLoadReport, Status>> + Send>>;

#[tonic::async_trait]
impl OpenRcaService for Reports {
    type StreamCoreMetricsStream = ReportStream;

    async fn stream_core_metrics(
        &self,
        request: tonic::Request<OrcaLoadReportRequest>,
    ) -> Result<tonic::Response<ReportStream>, Status> {
        let extensions = request.extensions();
        let authority = extensions.get().map_or("", Authority::as_str);
        let kept = extensions.get().map(Streams::open);
        self.stream(request.get_ref(), authority, kept)
    }
}

/// Handlers see a request's extensions but not its URI.
fn keep_authority(mut request: http::Request<Body>) -> http::Request<Body> {
    if let Some(authority) = request.uri().authority().cloned() {
        request.extensions_mut().insert(authority);
    }
    request
}

impl Reports {
    fn stream(
        &self,
        request: &OrcaLoadReportRequest,
        authority: &str,
        kept: Option<OpenStream>,
    ) -> Result<tonic::Response<ReportStream>, Status> {
        let config = self.context.config.borrow();
        let service = service_of(&config, authority)?;
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            return Err(Status::resource_exhausted("too many streams"));
        };
        let interval = interval(request).unwrap_or(config.period);
        let mut ticks = tokio::time::interval(interval.clamp(MIN_INTERVAL, MAX_INTERVAL));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let state = Arc::clone(&self.context.state);
        let open = Open::new(&self.context.streams);
        let reports = IntervalStream::new(ticks).filter_map(move |_| {
            // Held for the life of the stream.
            let _held = (&permit, &open, &kept);
            let all = state.load();
            let state: Option<&Arc<ServiceState>> = all.services.get(&service);
            state.map(|state| Ok(report::of(state)))
        });
        Ok(tonic::Response::new(Box::pin(reports)))
    }
}

/// The requested interval; `None` if it is missing, negative or zero.
fn interval(request: &OrcaLoadReportRequest) -> Option<Duration> {
    let asked = request.report_interval?;
    // Prost's conversion overflows at the most negative seconds.
    let seconds = Duration::from_secs(u64::try_from(asked.seconds).ok()?);
    let nanos = Duration::from_nanos(u64::try_from(asked.nanos).ok()?);
    seconds.checked_add(nanos).filter(|it| !it.is_zero())
}

/// Counts an open stream in the gauge.
struct Open(Gauge);

impl Open {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Open(gauge.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use prost_types::Duration as Asked;

    use super::*;

    #[test]
    fn only_time_ahead_is_an_interval() {
        let interval = |seconds, nanos| {
            interval(&OrcaLoadReportRequest {
                report_interval: Some(Asked { seconds, nanos }),
            })
        };
        assert_eq!(interval(1, 500_000_000), Some(Duration::from_millis(1500)));
        for (seconds, nanos) in [(0, 0), (-1, 0), (0, -1), (i64::MIN, i32::MIN)] {
            assert_eq!(interval(seconds, nanos), None);
        }
        assert!(interval(i64::MAX, i32::MAX).is_some());
    }
}
