//! The filter's configuration: JSON, with errors that name the field.

mod checks;
mod primaries;

use plimsoll_core::{
    dispatch::{DispatchSettings, MAX_COST, Placement},
    schedule::{NewsSettings, Policy, UpdateAlgorithm},
};
use serde::Deserialize;

use self::{
    checks::{check_cluster, check_common, checked, is_header, is_proxy, whole, within},
    primaries::RawPrimary,
};
use crate::part::Part;

pub use self::primaries::PrimarySettings;

/// The configuration of a filter, by its position in the chain.
#[derive(Clone, Debug, PartialEq)]
pub enum Config {
    /// HTTP filter that admits requests and names hosts.
    Downstream(Box<Settings>),
    /// Upstream HTTP filter that counts and measures attempts.
    Upstream,
    /// HTTP filter that names the primary of a request's object set.
    Primary(Box<PrimarySettings>),
}

/// Settings of the downstream position.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Cluster of the ring, also the label of metrics.
    pub cluster: String,
    /// Name of the Envoy cluster of the agents' HTTP servers.
    pub agents: String,
    /// Name of the service at the agents; optional if they have only one.
    pub service: Option<String>,
    /// Bearer token that the agents require.
    pub token: Option<String>,
    /// Name of this proxy; the node id if not configured.
    pub proxy: Option<String>,
    /// Part of the request with the key.
    pub key: Option<Part>,
    /// Part of the request with the cost in items.
    pub cost: Option<Part>,
    /// Part of the request that identifies its route, for learning the route's cost.
    pub route: Option<Part>,
    /// Part of the request with the number of its class.
    pub class: Option<Part>,
    /// Cost of a request that states none and has no route.
    pub default_cost: f64,
    /// Maximum cost that a request may state; by default 10 times the mean of the costs reported in responses.
    pub max_cost: Option<f64>,
    /// Maximum number of routes for which costs are learned.
    pub routes: usize,
    /// Response header with the number of items actually touched.
    pub items_header: Option<String>,
    /// Response header with the node's number of active requests.
    pub jobs_header: Option<String>,
    /// Response header with the node's load.
    pub load_header: Option<String>,
    /// Request header that passes the hosts to the override-host policy.
    pub hosts_header: String,
    /// Number of additional hosts, for retries.
    pub alternatives: usize,
    /// Interval between exchanges with an agent, in seconds.
    pub period: f64,
    /// Time of silence after which a dispatcher's shares expire, in seconds.
    pub lease: f64,
    /// Timeout of a request to an agent, in seconds.
    pub timeout: f64,
    /// `Retry-After` of a refusal, in whole seconds.
    pub retry_after: u32,
    /// Settings of the dispatcher.
    pub dispatch: DispatchSettings,
}

#[derive(Deserialize)]
struct Positioned {
    #[serde(default)]
    position: Position,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Position {
    #[default]
    Downstream,
    Upstream,
    Primary,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawUpstream {
    #[serde(rename = "position")]
    _position: Position,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default, rename = "position")]
    _position: Position,
    cluster: String,
    agents: String,
    service: Option<String>,
    token: Option<String>,
    proxy: Option<String>,
    #[serde(default)]
    policy: PolicyName,
    key: Option<Part>,
    class: Option<Part>,
    #[serde(default)]
    cost: RawCost,
    #[serde(default)]
    scheduler: RawScheduler,
    news: Option<RawNews>,
    #[serde(default = "hosts_header")]
    hosts_header: String,
    #[serde(default = "two")]
    alternatives: f64,
    #[serde(default = "one")]
    period: f64,
    #[serde(default = "three")]
    lease: f64,
    #[serde(default = "ten")]
    age_limit: f64,
    #[serde(default = "one")]
    timeout: f64,
    #[serde(default = "half")]
    spill: f64,
    #[serde(default = "one")]
    retry_after: f64,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PolicyName {
    #[default]
    FcHash,
    FcProp,
    RoundRobin,
    WeightedRoundRobin,
    WeightedRandom,
    BasicLi,
    JobInformed,
    LoadInformed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawCost {
    from: Option<Part>,
    route: Option<Part>,
    default: f64,
    min: f64,
    max: Option<f64>,
    routes: f64,
    items_header: Option<String>,
}

impl Default for RawCost {
    fn default() -> Self {
        RawCost {
            from: None,
            route: None,
            default: 1.0,
            min: 1.0,
            max: None,
            routes: 1000.0,
            items_header: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawScheduler {
    arrivals: f64,
    max_nodes: f64,
    interval: f64,
    artificial: f64,
}

impl Default for RawScheduler {
    fn default() -> Self {
        RawScheduler {
            arrivals: 100.0,
            max_nodes: 3.0,
            interval: 0.1,
            artificial: 0.01,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawNews {
    update: UpdateName,
    phase: f64,
    jobs_header: Option<String>,
    load_header: Option<String>,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum UpdateName {
    #[default]
    Periodic,
    Continuous,
    OnAccess,
}

/// Name of this proxy: the configured one, otherwise the node id if it is a valid name.
pub fn proxy_name(configured: Option<&str>, node_id: impl FnOnce() -> Option<String>) -> String {
    let name = configured.map(str::to_owned).or_else(node_id);
    let name = name.filter(|name| is_proxy(name));
    name.unwrap_or_else(|| "envoy".to_owned())
}

fn hosts_header() -> String {
    "x-plimsoll-hosts".to_owned()
}

fn half() -> f64 {
    0.5
}

fn one() -> f64 {
    1.0
}

fn two() -> f64 {
    2.0
}

fn three() -> f64 {
    3.0
}

fn ten() -> f64 {
    10.0
}

/// Parses a configuration; the error names the field.
pub fn parse(text: &[u8]) -> Result<Config, String> {
    match text.trim_ascii_start().first() {
        None => return Err("configuration: is missing".to_owned()),
        Some(b'{') => {}
        // Lists would be parsed as the fields in order.
        Some(_) => {
            let problem = "configuration: must be a JSON object in a google.protobuf.StringValue";
            return Err(problem.to_owned());
        }
    }
    let positioned: Positioned = read(text)?;
    match positioned.position {
        Position::Upstream => {
            let _: RawUpstream = read(text)?;
            Ok(Config::Upstream)
        }
        Position::Primary => Ok(Config::Primary(Box::new(
            read::<RawPrimary>(text)?.resolve()?,
        ))),
        Position::Downstream => Ok(Config::Downstream(Box::new(read::<Raw>(text)?.resolve()?))),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBalancer {
    cluster: String,
}

/// Parses the configuration of a load balancing policy for retries; returns the name of its cluster.
pub fn parse_balancer(text: &[u8]) -> Result<String, String> {
    let RawBalancer { cluster } = read(text)?;
    check_cluster(&cluster)?;
    Ok(cluster)
}

fn read<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|problem| {
        let path = problem.path().to_string();
        match path.as_str() {
            // The value is not echoed, since it may be the secret.
            "token" => "token: must be a string".to_owned(),
            "." | "?" => problem.inner().to_string(),
            _ => format!("{path}: {}", problem.inner()),
        }
    })?;
    reader.end().map_err(|problem| problem.to_string())?;
    Ok(value)
}

impl Raw {
    fn resolve(self) -> Result<Settings, String> {
        let (proxy, token) = (self.proxy.as_deref(), self.token.as_deref());
        check_common(&self.cluster, proxy, &self.agents, token)?;
        let placement = self.scheduler.placement(self.policy)?;
        if self.news.is_some() && !matches!(placement, Placement::Scheduled(_)) {
            let problem = "news: only the schedulers look at load; fc_hash and fc_prop do not";
            return Err(problem.to_owned());
        }
        let raw_news = self.news.unwrap_or_default();
        for (field, header) in [
            ("hosts_header", Some(&self.hosts_header)),
            ("cost.items_header", self.cost.items_header.as_ref()),
            ("news.jobs_header", raw_news.jobs_header.as_ref()),
            ("news.load_header", raw_news.load_header.as_ref()),
        ] {
            if header.is_some_and(|header| !is_header(header)) {
                return Err(format!(
                    "{field}: must be a header's name, in lower-case letters"
                ));
            }
        }
        let seconds = |field, value| within(field, value, 0.1, 3600.0, " s");
        let period = within("period", self.period, 0.1, 60.0, " s")?;
        let lease = seconds("lease", self.lease)?;
        if lease < 2.0 * period {
            return Err(
                "lease: must be at least two periods, or one late report loses the shares"
                    .to_owned(),
            );
        }
        Ok(Settings {
            alternatives: whole("alternatives", self.alternatives, 0.0, 8.0)?,
            default_cost: within("cost.default", self.cost.default, 1e-6, MAX_COST, "")?,
            max_cost: self
                .cost
                .max
                .map(|max| within("cost.max", max, 1e-6, MAX_COST, ""))
                .transpose()?,
            routes: whole("cost.routes", self.cost.routes, 1.0, 1e6)?,
            retry_after: whole("retry_after", self.retry_after, 0.0, 3600.0)? as u32,
            timeout: within("timeout", self.timeout, 0.01, 60.0, " s")?,
            period,
            lease,
            dispatch: DispatchSettings {
                placement,
                age_limit: seconds("age_limit", self.age_limit)?,
                lease,
                spill: within("spill", self.spill, 0.0, 1.0, "")?,
                least_cost: within("cost.min", self.cost.min, 1e-6, MAX_COST, "")?,
                news: raw_news.resolve()?,
            },
            cluster: self.cluster,
            agents: self.agents,
            service: self.service,
            token: self.token,
            proxy: self.proxy,
            key: checked("key", self.key)?,
            class: checked("class", self.class)?,
            cost: checked("cost.from", self.cost.from)?,
            route: checked("cost.route", self.cost.route)?,
            items_header: self.cost.items_header,
            jobs_header: raw_news.jobs_header,
            load_header: raw_news.load_header,
            hosts_header: self.hosts_header,
        })
    }
}

impl RawNews {
    fn resolve(&self) -> Result<NewsSettings, String> {
        let tells = self.jobs_header.is_some() || self.load_header.is_some();
        if tells != (self.update == UpdateName::OnAccess) {
            let problem = "news: on_access, and no other update, needs jobs_header or load_header";
            return Err(problem.to_owned());
        }
        Ok(NewsSettings {
            update: match self.update {
                UpdateName::Periodic => UpdateAlgorithm::Periodic,
                UpdateName::Continuous => UpdateAlgorithm::Continuous,
                UpdateName::OnAccess => UpdateAlgorithm::OnAccess,
            },
            phase: within("news.phase", self.phase, 0.0, 3600.0, " s")?,
        })
    }
}

impl RawScheduler {
    fn placement(&self, policy: PolicyName) -> Result<Placement, String> {
        let arrivals = within("scheduler.arrivals", self.arrivals, 1.0, 1e9, "")?;
        let max_nodes = whole("scheduler.max_nodes", self.max_nodes, 1.0, 255.0)?;
        let interval = within("scheduler.interval", self.interval, 0.0, 1e9, "")?;
        let artificial = within("scheduler.artificial", self.artificial, 0.0, 1e9, "")?;
        Ok(match policy {
            PolicyName::FcHash => Placement::FcHash,
            PolicyName::FcProp => Placement::FcProp,
            PolicyName::RoundRobin => Placement::Scheduled(Policy::RoundRobin),
            PolicyName::WeightedRoundRobin => Placement::Scheduled(Policy::WeightedRoundRobin),
            PolicyName::WeightedRandom => Placement::Scheduled(Policy::WeightedRandom),
            PolicyName::BasicLi => Placement::Scheduled(Policy::BasicLi { arrivals }),
            PolicyName::JobInformed => Placement::Scheduled(Policy::JobInformed),
            PolicyName::LoadInformed => Placement::Scheduled(Policy::LoadInformed {
                max_nodes,
                interval,
                artificial,
            }),
        })
    }
}
