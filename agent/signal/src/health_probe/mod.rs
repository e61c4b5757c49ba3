//! Probes the service locally and reports when it goes down or comes up.

mod settings;

use plimsoll_net::get;
use tokio::{net::TcpStream, sync::watch};

pub use plimsoll_wire::Health;
pub use settings::{HealthConfig, HealthSection, HealthTarget, health};

/// Health, with the reason if it is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Down after `fall` failed probes in a row, up after `rise` successful ones.
    pub health: Health,
    /// Error of the probe that turned the health to down; `None` while up.
    pub detail: Option<String>,
}

impl Verdict {
    /// The verdict without any known failure.
    pub fn up() -> Self {
        Verdict {
            health: Health::Up,
            detail: None,
        }
    }
}

/// Probes at `config.interval` until all receivers of `verdict` are dropped.
pub async fn run(config: HealthConfig, verdict: watch::Sender<Verdict>) {
    let mut ticks = tokio::time::interval(config.interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut same = 0;
    while !verdict.is_closed() {
        ticks.tick().await;
        let probed = probe(&config).await;
        let was_up = verdict.borrow().health == Health::Up;
        if probed.is_ok() == was_up {
            same = 0;
            continue;
        }
        same += 1;
        match probed {
            Ok(()) if same >= config.rise => verdict.send_replace(Verdict::up()),
            Err(why) if same >= config.fall => verdict.send_replace(Verdict {
                health: Health::Down,
                detail: Some(why),
            }),
            _ => continue,
        };
        same = 0;
    }
}

async fn probe(config: &HealthConfig) -> Result<(), String> {
    match &config.target {
        HealthTarget::Tcp(address) => {
            let connected = tokio::time::timeout(config.timeout, TcpStream::connect(address)).await;
            match connected {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(format!("connect to {address}: {error}")),
                Err(_) => Err(format!("connect to {address}: timeout")),
            }
        }
        HealthTarget::Http(url) => match get(url, config.timeout, 1 << 20).await {
            Ok((200..=399, _)) => Ok(()),
            Ok((status, _)) => Err(format!("{url}: status {status}")),
            Err(error) => Err(error.message),
        },
    }
}
