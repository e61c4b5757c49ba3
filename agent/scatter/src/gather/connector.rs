//! Connections to agents, with TLS by the configuration in force.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use arc_swap::ArcSwap;
use hyper::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::{net::TcpStream, time::timeout};
use tower::Service;

use crate::gather::GatherConfig;

/// Timeout for connecting to an agent, and for the TLS handshake with it.
const CONNECT_WAIT: Duration = Duration::from_secs(1);

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Opened = Result<MaybeHttpsStream<TokioIo<TcpStream>>, Failure>;

/// A connector for hyper-util's client.
#[derive(Clone, Debug)]
pub struct Connector {
    plain: HttpConnector,
    config: Arc<ArcSwap<GatherConfig>>,
}

impl Connector {
    /// By this configuration.
    pub fn new(config: Arc<ArcSwap<GatherConfig>>) -> Self {
        let mut plain = HttpConnector::new();
        plain.set_nodelay(true);
        plain.set_connect_timeout(Some(CONNECT_WAIT));
        Connector { plain, config }
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Opened> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.plain.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tls = self.config.load().agents.tls.clone();
        let mut plain = self.plain.clone();
        let Some(tls) = tls else {
            let opened = plain.call(uri);
            return Box::pin(async { Ok(MaybeHttpsStream::Http(opened.await?)) });
        };
        plain.enforce_http(false);
        let opened = HttpsConnector::from((plain, tls.config())).call(uri);
        Box::pin(async {
            let late = |_| io::Error::from(io::ErrorKind::TimedOut);
            timeout(2 * CONNECT_WAIT, opened).await.map_err(late)?
        })
    }
}
