//! Relays exchanges to the function library for proxies that cannot connect to Redis.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use plimsoll_wire::{Dispatcher, Exchanged};
use tokio::sync::{Mutex as AsyncMutex, watch};

use super::{
    follow::{RingBoard, RingNodes},
    link::Link,
    server::told,
    settings::{LinkSettings, RingsConfig},
};

/// After a failure, Redis is not tried again for this long; requests in the meantime get the same error.
const PAUSE: Duration = Duration::from_millis(250);

/// Why an exchange failed.
#[derive(Debug)]
pub enum ExchangeError {
    /// Several services have a ring, and the request names none.
    Ambiguous,
    /// No service has a ring, or not the named one.
    NoRing,
    /// Redis is unavailable or returned an error.
    Redis(String),
}

/// Connections for exchanges, opened on first use. Reports have their own, so that a large exchange cannot delay
/// them.
#[derive(Debug)]
pub struct Exchanges {
    config: watch::Receiver<Arc<RingsConfig>>,
    board: Arc<RingBoard>,
    held: Mutex<BTreeMap<String, Arc<Connection>>>,
}

#[derive(Debug)]
struct Connection {
    settings: LinkSettings,
    cluster: String,
    link: Arc<AsyncMutex<Option<Link>>>,
    trouble: Mutex<Option<(String, Instant)>>,
}

impl Exchanges {
    /// Creates exchanges without a connection.
    pub fn new(config: watch::Receiver<Arc<RingsConfig>>, board: Arc<RingBoard>) -> Self {
        Exchanges {
            config,
            board,
            held: Mutex::default(),
        }
    }

    /// Relays all dispatchers' reports in one round trip; `service` is optional if only one has a ring.
    pub async fn exchange(
        &self,
        service: Option<&str>,
        dispatchers: &[Dispatcher],
    ) -> Result<Exchanged, ExchangeError> {
        let (service, connection) = self.connection(service)?;
        let answer = connection.exchange(dispatchers).await;
        let (answer, nodes) = answer.map_err(ExchangeError::Redis)?;
        self.board.put_nodes(&service, Arc::new(nodes));
        Ok(answer)
    }

    fn connection(
        &self,
        service: Option<&str>,
    ) -> Result<(String, Arc<Connection>), ExchangeError> {
        let config = Arc::clone(&self.config.borrow());
        let mut rings = config.rings.iter();
        let found = match service {
            Some(service) => rings.find(|(name, _)| *name == service),
            None => match (rings.next(), rings.next()) {
                (Some(only), None) => Some(only),
                (Some(_), Some(_)) => return Err(ExchangeError::Ambiguous),
                _ => None,
            },
        };
        let found = found.zip(config.link.as_ref());
        let ((name, ring), settings) = found.ok_or(ExchangeError::NoRing)?;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|name, _| config.rings.contains_key(name));
        let fits = |held: &Connection| held.settings == *settings && held.cluster == ring.cluster;
        let connection = match held.get(name).filter(|held| fits(held)) {
            Some(held) => Arc::clone(held),
            None => {
                let new = Arc::new(Connection::new(settings.clone(), ring.cluster.clone()));
                held.insert(name.clone(), Arc::clone(&new));
                new
            }
        };
        Ok((name.clone(), connection))
    }
}

impl Connection {
    fn new(settings: LinkSettings, cluster: String) -> Self {
        Connection {
            settings,
            cluster,
            link: Arc::default(),
            trouble: Mutex::default(),
        }
    }

    async fn exchange(
        self: Arc<Self>,
        dispatchers: &[Dispatcher],
    ) -> Result<(Exchanged, RingNodes), String> {
        self.check_trouble()?;
        let limit = self.settings.timeout;
        let both = async {
            let mut link = Arc::clone(&self).link().await?;
            link.exchange(dispatchers).await
        };
        let problem = match tokio::time::timeout(limit, both).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(problem)) => told(&problem),
            Err(_) => format!("no answer in {}", humantime::format_duration(limit)),
        };
        self.fail(&problem);
        // Keep a connection that is being opened: it may take longer than this exchange.
        if let Ok(mut link) = self.link.try_lock() {
            *link = None;
        }
        Err(problem)
    }

    /// Returns the connection, opening it if needed. Opening continues even if all callers give up.
    async fn link(self: Arc<Self>) -> anyhow::Result<Link> {
        let mut held = Arc::clone(&self.link).lock_owned().await;
        if let Some(link) = &*held {
            return Ok(link.clone());
        }
        if let Err(problem) = self.check_trouble() {
            bail!("{problem}");
        }
        let opened = tokio::spawn(async move {
            let link = Link::open(&self.settings, &self.cluster).await;
            match &link {
                Ok(link) => *held = Some(link.clone()),
                Err(problem) => self.fail(&told(problem)),
            }
            link
        });
        opened.await.context("connecting")?
    }

    fn check_trouble(&self) -> Result<(), String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match &*trouble {
            Some((problem, at)) if at.elapsed() < PAUSE => Err(problem.clone()),
            _ => Ok(()),
        }
    }

    fn fail(&self, problem: &str) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        *trouble = Some((problem.to_owned(), Instant::now()));
    }
}
