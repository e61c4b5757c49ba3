//! What operators set on this node, and the drains the agent must undo.
//!
//! Operators set them over the control socket; the control loop and the outputs read [`Overrides`] at any time. With a state directory both survive a restart.

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

/// Most undone drains remembered; proxies that vanish for good would add up otherwise.
const MAX_OWED: usize = 1024;

/// One proxy's server line for one service. HAProxy's `maxconn` is per process and per backend, so
/// the same process asking under two identities counts twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyId {
    /// Service of this node.
    pub service: String,
    /// Identity it asked under.
    pub identity: String,
    /// Its name by `agent-send`, else its address.
    pub proxy: String,
}

/// What an operator set for one service. The default leaves everything to the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceOverride {
    /// Proxies are told to drain.
    pub drain: bool,
    /// Health instead of the probe's.
    pub health: Option<ForcedHealth>,
    /// Weight instead of the bound's, 1..=256 percent.
    pub weight_percent: Option<u16>,
    /// Bound instead of the controller's, in cost units.
    pub bound: Option<Cost>,
}

impl ServiceOverride {
    /// Whether nothing is set.
    pub fn is_default(&self) -> bool {
        *self == ServiceOverride::default()
    }
}

/// The overrides of all services and the drains that still need a `ready`.
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
    /// What the last run left in `state_directory`; nothing without one. An unreadable file is
    /// logged and ignored, so that the agent starts.
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
            tracing::warn!(file = %file.display(), %error, "ignored: operators' overrides start empty");
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

    /// Whether a restart finds it all again.
    pub fn is_persistent(&self) -> bool {
        self.file.is_some()
    }

    /// What is set for a service.
    pub fn of(&self, service: &str) -> ServiceOverride {
        self.services
            .load()
            .get(service)
            .copied()
            .unwrap_or_default()
    }

    /// The bound an operator set, for `NodeController::force`.
    pub fn forced_bound(&self, service: &str) -> Option<Cost> {
        self.of(service).bound
    }

    /// Changes what is set for a service.
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

    /// Remembers that this proxy is told to drain and needs a `ready` one day.
    pub fn owe_ready(&self, id: &ProxyId) {
        let mut owed = self.lock();
        if owed.contains(id) || owed.len() >= MAX_OWED {
            return;
        }
        owed.insert(id.clone());
        self.note_owed(&owed);
    }

    /// Whether this proxy needs a `ready`.
    pub fn owes_ready(&self, id: &ProxyId) -> bool {
        self.owed_count.load(Ordering::Acquire) > 0 && self.lock().contains(id)
    }

    /// Forgets the drain: this proxy was told `ready`.
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

    /// Writes the state directory's file, if there is one.
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

    /// Saves after each change; never returns.
    pub async fn keep_saved(&self) {
        loop {
            self.changed.notified().await;
            if let Err(error) = self.save().await {
                tracing::error!("operators' overrides are not kept: {error:#}");
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
