//! Metrics of the role of a node's database.

use plimsoll_core::role::Role;
use plimsoll_exposition::{Catalogue, Label, Services, show};
use prometheus::{GaugeVec, Result};

use crate::role::RoleState;

/// Metrics of the services with `[service.role]`.
#[derive(Clone, Debug)]
pub struct RoleMetrics {
    role: GaugeVec,
    lag: GaugeVec,
    serves: GaugeVec,
    /// Registry of the series per service.
    pub services: Services,
}

impl RoleMetrics {
    /// Registers the metrics in the catalogue.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        catalogue.section("Role of the database");
        let roles = Label::one_of("role", Role::ALL.map(Role::as_str));
        let what = Label::one_of("what", ["reads", "writes"]);
        Ok(RoleMetrics {
            role: catalogue.gauges(
                "plimsoll_node_role",
                "1 or 0",
                "Role of the database in its last answer; both 0 before the first.",
                &[Label::service(), roles],
            )?,
            lag: catalogue.gauges(
                "plimsoll_replication_lag_seconds",
                "seconds",
                "Upper bound of the lag behind the primary at the last answer; 0 on the primary, absent if unknown.",
                &[Label::service()],
            )?,
            serves: catalogue.gauges(
                "plimsoll_node_takes",
                "1 or 0",
                "Whether the database accepts reads, and writes; both 0 if it has not answered for long.",
                &[Label::service(), what],
            )?,
            services: catalogue.services(),
        })
    }

    /// Sets the gauges of a service.
    pub fn show(&self, service: &str, state: &RoleState) {
        let truth = |is_so: bool| f64::from(u8::from(is_so));
        for role in Role::ALL {
            let is_so = state.standing.is_some_and(|it| it.role == role);
            let labels = [service, role.as_str()];
            self.role.with_label_values(&labels).set(truth(is_so));
        }
        let lag = state.standing.and_then(|it| it.lag);
        show(&self.lag, &[service], lag.map(|lag| lag.get()));
        for (what, is_so) in [("reads", state.takes_reads), ("writes", state.takes_writes)] {
            self.serves
                .with_label_values(&[service, what])
                .set(truth(is_so));
        }
    }
}
