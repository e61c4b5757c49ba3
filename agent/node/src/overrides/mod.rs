//! Operators' overrides on this node, and the drains that the agent must undo.
//!
//! Operators set them over the control socket; the control loop and the outputs read [`Overrides`] at any time. With a
//! state directory, both survive a restart.

mod store;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::Context;
use arc_swap::ArcSwap;
use plimsoll_core::Cost;
pub use plimsoll_wire::ForcedHealth;
use plimsoll_wire::Override;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::kept_file;

/// Maximum number of pending `ready` answers: proxies that vanish for good would accumulate otherwise.
const MAX_OWED: usize = 1024;

/// One proxy's server line for one service. HAProxy's `maxconn` applies per process and backend, so a process that
/// asks under two identities counts twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyId {
    /// Service of this node.
    pub service: String,
    /// Identity that the proxy asked under.
    pub identity: String,
    /// The proxy's name from `agent-send`, else its address.
    pub proxy: String,
}

/// Overrides of one service. The default overrides nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceOverride {
    /// Drain the server at all proxies.
    pub drain: bool,
    /// Health, in place of the probe's.
    pub health: Option<ForcedHealth>,
    /// Weight in percent, 1..=256, in place of the one derived from the bound.
    pub weight_percent: Option<u16>,
    /// Bound in cost units, in place of the controller's.
    pub bound: Option<Cost>,
}

impl ServiceOverride {
    /// True if nothing is overridden.
    pub fn is_default(&self) -> bool {
        *self == ServiceOverride::default()
    }
}

/// Overrides of all services, and the drained proxies that still need a `ready`.
#[derive(Debug, Default)]
pub struct Overrides {
    services: ArcSwap<BTreeMap<String, ServiceOverride>>,
    owed: Mutex<BTreeSet<ProxyId>>,
    /// Size of `owed`, so that the common case takes no lock.
    owed_count: AtomicUsize,
    changed: Notify,
    file: Option<PathBuf>,
    saving: tokio::sync::Mutex<()>,
}

impl From<ServiceOverride> for Override {
    fn from(set: ServiceOverride) -> Self {
        Override {
            drain: set.drain,
            health: set.health,
            weight_percent: set.weight_percent,
            bound: set.bound.map(Cost::get),
        }
    }
}

impl Overrides {
    /// Loads the overrides of the last run from `state_directory`; none without a directory. A malformed file is logged
    /// and ignored so that the agent starts. Fails if the directory cannot be created.
    pub fn load(state_directory: Option<&Path>) -> anyhow::Result<Self> {
        let Some(directory) = state_directory else {
            return Ok(Overrides::default());
        };
        std::fs::create_dir_all(directory).with_context(|| {
            format!(
                "agent.state_directory: cannot create {}",
                directory.display()
            )
        })?;
        let file = directory.join("overrides.json");
        let kept = store::read(&file).unwrap_or_else(|error| {
            tracing::warn!(file = %file.display(), %error, "file ignored, starting without operators' overrides");
            store::Kept::default()
        });
        Ok(Overrides {
            services: ArcSwap::from_pointee(kept.services),
            owed_count: AtomicUsize::new(kept.owed_ready.len()),
            owed: Mutex::new(kept.owed_ready),
            file: Some(file),
            ..Overrides::default()
        })
    }

    /// True if the overrides survive a restart.
    pub fn is_persistent(&self) -> bool {
        self.file.is_some()
    }

    /// Overrides of a service.
    pub fn of(&self, service: &str) -> ServiceOverride {
        self.services
            .load()
            .get(service)
            .copied()
            .unwrap_or_default()
    }

    /// Bound set by an operator, for `NodeController::force`.
    pub fn forced_bound(&self, service: &str) -> Option<Cost> {
        self.of(service).bound
    }

    /// Changes the overrides of a service. `change` may be called more than once if another thread interferes.
    pub fn change(&self, service: &str, change: impl Fn(&mut ServiceOverride)) {
        self.services.rcu(|services| {
            let mut services = BTreeMap::clone(services);
            let mut set = services.get(service).copied().unwrap_or_default();
            change(&mut set);
            if set.is_default() {
                services.remove(service);
            } else {
                services.insert(service.to_owned(), set);
            }
            services
        });
        self.changed.notify_one();
    }

    /// Remembers that this proxy was drained and needs a `ready` later. Ignored beyond 1024 proxies.
    pub fn owe_ready(&self, id: &ProxyId) {
        let mut owed = self.lock();
        if owed.contains(id) || owed.len() >= MAX_OWED {
            return;
        }
        owed.insert(id.clone());
        self.note_owed(&owed);
    }

    /// True if this proxy needs a `ready`.
    pub fn owes_ready(&self, id: &ProxyId) -> bool {
        self.owed_count.load(Ordering::Acquire) > 0 && self.lock().contains(id)
    }

    /// Forgets the drain of this proxy, after `ready` was sent.
    pub fn told_ready(&self, id: &ProxyId) {
        let mut owed = self.lock();
        if owed.remove(id) {
            self.note_owed(&owed);
        }
    }

    fn note_owed(&self, owed: &BTreeSet<ProxyId>) {
        self.owed_count.store(owed.len(), Ordering::Release);
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<ProxyId>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the file in the state directory; does nothing without a directory.
    pub async fn save(&self) -> anyhow::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let _one_at_a_time = self.saving.lock().await;
        let kept = store::Kept {
            version: store::VERSION,
            services: BTreeMap::clone(&self.services.load()),
            owed_ready: self.lock().clone(),
        };
        kept_file::write(file, &kept)
            .await
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// Saves after every change. Never returns; errors are logged.
    pub async fn keep_saved(&self) {
        loop {
            self.changed.notified().await;
            if let Err(error) = self.save().await {
                tracing::error!("operators' overrides cannot be saved: {error:#}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn id(proxy: &str) -> ProxyId {
        ProxyId {
            service: "stocks".into(),
            identity: "stocks".into(),
            proxy: proxy.into(),
        }
    }

    #[tokio::test]
    async fn survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let before = Overrides::load(Some(directory.path())).unwrap();
        before.change("stocks", |set| set.weight_percent = Some(7));
        before.change("orders", |set| set.drain = true);
        before.change("orders", |set| set.drain = false);
        before.owe_ready(&id("a"));
        before.owe_ready(&id("b"));
        before.told_ready(&id("b"));
        before.save().await.unwrap();

        let after = Overrides::load(Some(directory.path())).unwrap();
        assert_eq!(after.of("stocks").weight_percent, Some(7));
        assert_eq!(after.of("orders"), ServiceOverride::default());
        assert!(after.owes_ready(&id("a")));
        assert!(!after.owes_ready(&id("b")));
    }

    #[test]
    fn a_broken_file_does_not_keep_the_agent_from_starting() {
        let directory = tempfile::tempdir().unwrap();
        for text in [
            "",
            "{",
            "{\"version\":99}",
            "{\"version\":1,\"services\":{\"a\":{\"weight\":1}}}",
            "\u{0}",
        ] {
            std::fs::write(directory.path().join("overrides.json"), text).unwrap();
            let overrides = Overrides::load(Some(directory.path())).unwrap();
            assert_eq!(overrides.of("a"), ServiceOverride::default(), "{text:?}");
        }
    }

    #[test]
    fn what_is_owed_is_bounded() {
        let overrides = Overrides::default();
        for n in 0..3 * MAX_OWED {
            overrides.owe_ready(&id(&n.to_string()));
        }
        assert_eq!(overrides.lock().len(), MAX_OWED);
    }
}
