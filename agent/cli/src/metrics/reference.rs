//! docs/metrics.md.

use plimsoll_exposition::{Catalogue, Label, Values};
use plimsoll_outputs::agent_check::AgentCheckMetrics;
use plimsoll_scatter::gather::GatherMetrics;
use prometheus::{Registry, Result};

use super::Metrics;

const INTRODUCTION: &str = "# Metrics

Written by `plimsoll metrics-reference`; change it there.

An agent serves them at `/metrics` of `http.listen`, in Prometheus' text format. Scrape the agents as job `plimsoll`: the rules in [`dashboards/rules/plimsoll.yaml`](../dashboards/rules/plimsoll.yaml) ask for that name to notice an agent that is gone. [runbook.md](runbook.md) tells what to do about each alert. `plimsoll gather` serves what is under [Gathers](#gathers), and of the agent's `plimsoll_build_info`, `plimsoll_config_…` and `plimsoll_http_…`.

Costs, bounds and backlogs are in *cost units*: items where the source tells the cost, else requests. A counter is there with 0 before the first event, but for those whose labels are not known beforehand; a gauge is absent until its value is known. `service` is the `name` of a `[[service]]`. All series of a service go when it is removed from the configuration. One service has under 210 series.
";

const PROXIES: &str = "
## What the proxies export themselves

The filter in Envoy ([envoy-filter.md](envoy-filter.md)) has these in Envoy's own statistics, as `wasmcustom.plimsoll_….cluster.<cluster>`; with the `stats_tags` of the example, Envoy's `/stats/prometheus` has them under these names. The [module](envoy-module.md) has them as `dynamicmodulescustom.plimsoll_….plimsoll_cluster.<cluster>`, and there under these names with the runtime flag of its example. The Lua policies in HAProxy ([haproxy-lua.md](haproxy-lua.md#metrics)) have a service of their own for them, `lua.plimsoll_metrics`; under `limits` it lacks what only the request path sees. `plimsoll_cluster` is the `cluster` of the filter's or the policies' settings.

| name | type | unit | labels | meaning | in |
|---|---|---|---|---|---|
| `plimsoll_admitted_total` | counter | requests | `plimsoll_cluster` | Requests placed. | HAProxy, Envoy |
| `plimsoll_refused_total` | counter | requests | `plimsoll_cluster` | Requests refused, as every node was full. | HAProxy, Envoy |
| `plimsoll_undecided_total` | counter | requests | `plimsoll_cluster` | Requests left to the fallback policy or the backend's `balance`, as there was no fresh news. | HAProxy, Envoy |
| `plimsoll_in_flight_cost` | gauge | cost units | `plimsoll_cluster` | Cost in flight, over all threads or workers. | HAProxy, Envoy |
| `plimsoll_in_flight_requests` | gauge | requests | `plimsoll_cluster` | Requests in flight, over all threads or workers. | HAProxy, Envoy |
| `plimsoll_proxy_ring_version` | gauge | version | `plimsoll_cluster` | The ring in force; in HAProxy, of the thread that is furthest behind, 0 where it has none. | HAProxy, Envoy |
| `plimsoll_ring_applied_microseconds` | gauge | microseconds | `plimsoll_cluster` | How long the last ring kept a worker. | Envoy |
| `plimsoll_ejections_total` | counter | nodes | `plimsoll_cluster` | Nodes taken out for a while, as they did not answer. | Envoy |
| `plimsoll_panics_total` | counter | panics | `plimsoll_cluster` | Panics that the module caught; each request went on without it. | Envoy's module |
| `plimsoll_abandoned_total` | counter | requests | `plimsoll_cluster` | Requests that ended without an answer of a node's. | HAProxy |
| `plimsoll_news_age_seconds` | gauge | seconds | `plimsoll_cluster` | Since the last exchange with Redis, of the thread that waits longest; absent before the first. | HAProxy |
| `plimsoll_node_share_cost` | gauge | cost units | `plimsoll_cluster`, `node` | What of the node's bound this proxy may use; 0 where the node gets nothing. | HAProxy |
| `plimsoll_node_in_flight_cost` | gauge | cost units | `plimsoll_cluster`, `node` | Cost in flight. | HAProxy |
| `plimsoll_node_in_flight_requests` | gauge | requests | `plimsoll_cluster`, `node` | Requests in flight. | HAProxy |
| `plimsoll_node_answered_total` | counter | requests | `plimsoll_cluster`, `node` | Requests that the node answered, but for its failures. | HAProxy |
| `plimsoll_node_failed_total` | counter | requests | `plimsoll_cluster`, `node` | Requests that the node failed, or gave no answer; not those whose clients left. | HAProxy |
| `plimsoll_node_cost_total` | counter | cost units | `plimsoll_cluster`, `node` | Cost of the requests answered, as the node told it where it did. | HAProxy |
| `plimsoll_task_failures_total` | counter | errors | `plimsoll_cluster` | Errors of the tasks that talk to Redis and look after requests, as where memory is short (`tune.lua.maxmem`); each begins again after 0.1 s. | HAProxy |

Placement in HAProxy ([haproxy-lua.md](haproxy-lua.md#writes-at-primaries)) adds these to the same service; `plimsoll_cluster` is `placement.cluster`. [Envoy's filter](envoy-filter.md#writes-at-primaries) has the four counters, `plimsoll_placement_refused_total` without the reason.

| name | type | unit | labels | meaning |
|---|---|---|---|---|
| `plimsoll_placement_placed_total` | counter | requests | `plimsoll_cluster` | Requests sent to the primary of their object set. |
| `plimsoll_placement_waited_total` | counter | requests | `plimsoll_cluster` | Requests that waited for a hand-over, or for the table, before they were placed or refused. |
| `plimsoll_placement_refused_total` | counter | requests | `plimsoll_cluster`; `reason`: `moving`, `suspended`, `unknown`, `name` | Requests refused, by why. |
| `plimsoll_placement_doubted_total` | counter | requests | `plimsoll_cluster` | Requests that ended without an answer, so that their primary may still be at work on them. |
| `plimsoll_placement_in_flight_requests` | gauge | requests | `plimsoll_cluster` | Requests at primaries. |
| `plimsoll_placement_in_doubt_sets` | gauge | object sets, a thread | `plimsoll_cluster` | Object sets of which a request that ended without an answer may still be at work. |
| `plimsoll_placement_version` | gauge | version | `plimsoll_cluster` | The table in force, of the thread that is furthest behind; 0: none. |
| `plimsoll_placement_suspended_threads` | gauge | threads | `plimsoll_cluster` | Threads that let no request in, as they have no table that they may act on. |

Pushed updates in HAProxy ([freshness.md](freshness.md#a-feed-that-cannot-be-told)) have a service of their own, `lua.plimsoll_update_metrics`.

| name | type | unit | labels | meaning |
|---|---|---|---|---|
| `plimsoll_pushed_updates_total` | counter | updates | `outcome`: `passed`, `held`, `replaced`, `stale`, `malformed`, `refused`; `flushed`, `failed` | What became of pushed updates: what they were answered, and attempts to send on what waited. |
| `plimsoll_pushed_updates_held` | gauge | updates | | Updates that wait. |
| `plimsoll_pushed_update_bytes` | gauge | bytes | | What waits. |
| `plimsoll_pushed_update_items` | gauge | items | | Items that are watched. |
| `plimsoll_pushed_update_task_failures_total` | counter | errors | | Errors of the tasks that ask the agents and send on what waits; each begins again after 0.1 s. |

Without Lua, what HAProxy refuses is in its own `haproxy_backend_http_responses_total{code=\"5xx\"}`, together with the nodes' errors, and in the agents' `plimsoll_source_lines_total{result=\"refused\"}` where the source is HAProxy's log. Weight and `maxconn` as HAProxy obeys them are `haproxy_server_weight` and `haproxy_server_limit_sessions` of its exporter.
";

/// The whole reference.
pub fn markdown() -> Result<String> {
    let registry = Registry::new();
    let mut catalogue = Catalogue::new(&registry);
    Metrics::new(&mut catalogue)?;
    AgentCheckMetrics::new(&mut catalogue)?;
    GatherMetrics::new(&mut catalogue)?;
    let mut text = String::from(INTRODUCTION);
    for (title, families) in catalogue.sections() {
        text.push_str(&format!(
            "\n## {title}\n\n| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n"
        ));
        for family in families {
            let labels: Vec<String> = family.labels.iter().map(label).collect();
            text.push_str(&format!(
                "| `{}` | {} | {} | {} | {} |\n",
                family.name,
                family.kind,
                family.unit,
                labels.join("; "),
                family.help
            ));
        }
    }
    text.push_str(PROXIES);
    Ok(text)
}

fn label(label: &Label) -> String {
    let values = match &label.values {
        // In every other line.
        _ if label.name == "service" => return "`service`".to_owned(),
        Values::OneOf(values) => {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            values.join(", ")
        }
        Values::Are(what) => (*what).to_owned(),
    };
    format!("`{}`: {values}", label.name)
}
