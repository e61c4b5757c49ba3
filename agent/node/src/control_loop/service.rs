//! `[[service]]`: a service on this node, assembled from the settings of its components.

use std::time::Duration;

use plimsoll_core::{Cost, Law, Settings};
use plimsoll_settings::{Checked, MAX_NAME, at, number, word, wrong};
use plimsoll_signal::{
    health_probe::{HealthConfig, HealthSection, health},
    host_load::{LoadConfig, LoadSection, load},
    jobs::{BacklogConfig, DelaySource, JobsConfig, JobsSection, Listens, backlog, jobs},
    role::{RoleConfig, RoleSection, role},
    sources::{SourceConfig, SourceSection, source},
    updates::{UpdatesConfig, UpdatesSection, updates},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::{BoundSection, ControllerSection, RulesSection, SlaSection, settings};
use crate::ring::{RingSection, RingSettings, ring};

/// Words in an agent-check answer besides health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendWords {
    /// Weight and connection limit.
    #[default]
    Both,
    /// Weight only.
    Weight,
    /// Connection limit only.
    Maxconn,
}

impl SendWords {
    /// True if answers contain a weight.
    pub fn weight(self) -> bool {
        self != SendWords::Maxconn
    }

    /// True if answers contain a connection limit.
    pub fn maxconn(self) -> bool {
        self != SendWords::Weight
    }
}

/// Checked configuration of one service on this node.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceConfig {
    /// Name, unique on this node.
    pub name: String,
    /// Further `agent-send` identities.
    pub identities: Vec<String>,
    /// `host:port` that proxies connect to.
    pub address: Option<String>,
    /// Settings of its controller.
    pub settings: Settings,
    /// Bound in cost units that corresponds to a weight of 100 %; `None`: the node's highest recent capacity.
    pub full_weight_bound: Option<Cost>,
    /// Relative change up to which a weight stays unchanged, 0 to 0.5.
    pub weight_dead_band: f64,
    /// Words in agent-check answers.
    pub send: SendWords,
    /// Source of delays.
    pub source: SourceConfig,
    /// Source of the number of jobs.
    pub jobs: JobsConfig,
    /// Listen queue with requests that the service has not accepted yet; `None` if it cannot be sampled.
    pub backlog: Option<BacklogConfig>,
    /// Measure of the node's load.
    pub load: LoadConfig,
    /// Local probe.
    pub health: Option<HealthConfig>,
    /// Membership in a ring.
    pub ring: Option<RingSettings>,
    /// Adaptive update periods of its temporal data.
    pub updates: Option<UpdatesConfig>,
    /// Role of its database.
    pub role: Option<RoleConfig>,
}

/// One service on this node; at least one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[[service]]")]
pub struct ServiceSection {
    /// Also a valid `agent-send` identity.
    #[schemars(extend("x-values" = "1 to 120 printable characters", "x-default" = "required"))]
    pub(super) name: String,
    /// `observe`: decisions have no effect on proxies; they are only shown in `/v1/node`, metrics, `plimsoll top` and
    /// the agent's page. HAProxy's agent checks get an answer without weight, `maxconn` or state, Envoy the mean
    /// weight and an empty load report; the node does not join the ring in Redis, no update period is lengthened, and
    /// no partition query is refused because of the bound. `/v1/role` is unaffected.
    #[schemars(extend("x-values" = "`enforce`, `observe`", "x-default" = "`\"enforce\"`"))]
    pub(super) mode: Option<String>,
    /// Additional `agent-send` identities, by convention `backend/server`. Must be unique among services.
    #[schemars(extend("x-values" = "list of the same", "x-default" = "`[]`"))]
    #[serde(default)]
    pub(super) identities: Vec<String>,
    /// Address at which proxies reach this node's service. Shown in `/v1/node`.
    #[schemars(extend("x-values" = "host:port; IP address (IPv6 in brackets) or name", "x-default" = "none"))]
    pub(super) address: Option<String>,
    #[schemars(skip)]
    pub(super) sla: SlaSection,
    #[schemars(skip)]
    #[serde(default)]
    pub(super) bound: BoundSection,
    #[schemars(skip)]
    #[serde(default)]
    pub(super) controller: ControllerSection,
    #[schemars(skip)]
    #[serde(default)]
    pub(super) rules: RulesSection,
    #[schemars(skip)]
    #[serde(default)]
    pub(super) output: OutputSection,
    #[schemars(skip)]
    pub(super) source: SourceSection,
    #[schemars(skip)]
    #[serde(default)]
    pub(super) jobs: JobsSection,
    #[schemars(skip)]
    #[serde(default)]
    pub(super) load: LoadSection,
    #[schemars(skip)]
    pub(super) health: Option<HealthSection>,
    #[schemars(skip)]
    pub(super) ring: Option<RingSection>,
    #[schemars(skip)]
    pub(super) updates: Option<UpdatesSection>,
    #[schemars(skip)]
    pub(super) role: Option<RoleSection>,
}

/// Answers to HAProxy's agent checks.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[service.output]")]
pub struct OutputSection {
    /// Bound that corresponds to a weight of 100 %; if set, must be the same on all nodes of a backend.
    #[schemars(extend("x-values" = "above 0, cost units", "x-default" = "2 × `nominal`; `load-line`: the highest recent capacity of this node"))]
    full_weight_bound: Option<f64>,
    /// Relative change up to which a weight stays unchanged.
    #[schemars(extend("x-values" = "0 to 0.5", "x-default" = "`0.05`"))]
    weight_dead_band: Option<f64>,
    /// Content of the answer.
    #[schemars(extend("x-values" = "`both`, `weight`, `maxconn`", "x-default" = "`\"both\"`"))]
    send: Option<String>,
}

/// Checks `[[service]]`. `path` prefixes the keys in errors; `period` is the control period; `has_peers` is true if
/// agents of other nodes forward its role to proxies.
pub fn service(
    path: &str,
    raw: ServiceSection,
    period: Duration,
    has_peers: bool,
) -> Checked<ServiceConfig> {
    for (key, name) in std::iter::once(("name".to_owned(), &raw.name)).chain(
        raw.identities
            .iter()
            .enumerate()
            .map(|(i, name)| (format!("identities[{i}]"), name)),
    ) {
        let fine = !name.is_empty()
            && name.len() <= MAX_NAME
            && name.bytes().all(|b| b.is_ascii_graphic());
        if !fine {
            return wrong(
                format!("{path}.{key}"),
                format!(
                    "must be 1 to {MAX_NAME} printable ASCII characters without spaces, is {name:?}"
                ),
            );
        }
    }
    let settings = settings(path, &raw)?;
    let twice_nominal = settings.limits.nominal.map(|nominal| 2.0 * nominal.get());
    let by_law = twice_nominal.filter(|_| settings.law != Law::LoadLine);
    let full_weight_bound = raw.output.full_weight_bound.or(by_law);
    if let Some(full) = full_weight_bound
        && !(full.is_finite() && full > 0.0)
    {
        return wrong(
            format!("{path}.output.full_weight_bound"),
            format!("must be above 0, is {full}"),
        );
    }
    let source = source(&format!("{path}.source"), &raw.source, period)?;
    let delays = DelaySource {
        scraped: source.scraped(),
        counts_jobs: source.counts_queries(),
    };
    Ok(ServiceConfig {
        settings,
        full_weight_bound: full_weight_bound.map(Cost),
        weight_dead_band: number(
            &format!("{path}.output.weight_dead_band"),
            raw.output.weight_dead_band.unwrap_or(0.05),
            0.0..=0.5,
        )?,
        send: word(
            &format!("{path}.output.send"),
            raw.output.send.as_deref(),
            SendWords::Both,
            &[
                ("both", SendWords::Both),
                ("weight", SendWords::Weight),
                ("maxconn", SendWords::Maxconn),
            ],
        )?,
        jobs: jobs(&format!("{path}.jobs"), &raw.jobs, &delays, period)?,
        backlog: backlog(&format!("{path}.jobs"), &raw.jobs, &listens(&raw), &delays)?,
        source,
        load: load(&format!("{path}.load"), &raw.load)?,
        health: raw
            .health
            .as_ref()
            .map(|h| health(&format!("{path}.health"), h))
            .transpose()?,
        ring: raw
            .ring
            .as_ref()
            .map(|r| ring(&format!("{path}.ring"), r, period))
            .transpose()?,
        updates: raw
            .updates
            .as_ref()
            .map(|u| updates(&format!("{path}.updates"), u, period))
            .transpose()?,
        role: raw
            .role
            .as_ref()
            .map(|r| role(&format!("{path}.role"), r, period, has_peers))
            .transpose()?,
        address: raw
            .address
            .as_deref()
            .map(|address| at(&format!("{path}.address"), plimsoll_net::host_port(address)))
            .transpose()?,
        name: raw.name,
        identities: raw.identities,
    })
}

/// Addresses of the service in its other tables.
fn listens(raw: &ServiceSection) -> Listens<'_> {
    Listens {
        address: raw.address.as_deref(),
        probed: raw.health.as_ref().and_then(HealthSection::address),
    }
}
