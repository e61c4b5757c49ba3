//! Generates docs/metrics.md.

use plimsoll_exposition::{Catalogue, Label, Values};
use plimsoll_outputs::agent_check::AgentCheckMetrics;
use plimsoll_scatter::gather::GatherMetrics;
use prometheus::{Registry, Result};

use super::Metrics;

const INTRODUCTION: &str = "# Metrics

Written by `plimsoll metrics-reference`; change it there.

An agent serves its metrics at `/metrics` of `http.listen`, in the Prometheus text format. Scrape the agents as job `plimsoll`: the rules in [`dashboards/rules/plimsoll.yaml`](../dashboards/rules/plimsoll.yaml) use that name to detect a missing agent. [runbook.md](runbook.md) explains what to do about each alert. `plimsoll gather` serves the metrics under [Gathers](#gathers), and the agent's `plimsoll_build_info`, `plimsoll_config_…` and `plimsoll_http_…`.

Costs, bounds and backlogs are in *cost units*: items if the source reports costs, otherwise requests. Counters start at 0 before the first event, except those whose labels are not known in advance; a gauge is absent until its value is known. `service` is the `name` of a `[[service]]`. All series of a service disappear when it is removed from the configuration. A service has fewer than 210 series.
";

const PROXIES: &str = "
## What the proxies export themselves

Envoy's filter ([envoy-filter.md](envoy-filter.md)) adds these to Envoy's own statistics, as `wasmcustom.plimsoll_….cluster.<cluster>`; with both `stats_tags` of the example, Envoy's `/stats/prometheus` shows them under these names. The [module](envoy-module.md) adds them as `dynamicmodulescustom.plimsoll_….plimsoll_cluster.<cluster>`, and `/stats/prometheus` shows them under these names with the runtime flag of its example. The Lua policies in HAProxy ([haproxy-lua.md](haproxy-lua.md#metrics)) export them through a service of their own, `lua.plimsoll_metrics`; under `limits`, metrics of the request path are missing. `plimsoll_cluster` is the `cluster` in the settings of the filter or the policies.

| name | type | unit | labels | meaning | in |
|---|---|---|---|---|---|
| `plimsoll_admitted_total` | counter | requests | `plimsoll_cluster` | Requests placed. | HAProxy, Envoy |
| `plimsoll_refused_total` | counter | requests | `plimsoll_cluster` | Requests refused because every node was full. | HAProxy, Envoy |
| `plimsoll_class_admitted_total` | counter | requests | `plimsoll_cluster`; `class`: `0` to `3` | Requests placed, by class; in Envoy where the settings have `class`, in HAProxy from the first request of a lower class than 0. | HAProxy, Envoy |
| `plimsoll_class_refused_total` | counter | requests | `plimsoll_cluster`; `class`: `0` to `3` | Requests refused because every node was full, by class; where and from when as above. | HAProxy, Envoy |
| `plimsoll_undecided_total` | counter | requests | `plimsoll_cluster` | Requests left to the fallback policy or the backend's `balance`, because shares and ring were out of date. | HAProxy, Envoy |
| `plimsoll_in_flight_cost` | gauge | cost units | `plimsoll_cluster` | Cost in flight, over all threads or workers. | HAProxy, Envoy |
| `plimsoll_in_flight_requests` | gauge | requests | `plimsoll_cluster` | Requests in flight, over all threads or workers. | HAProxy, Envoy |
| `plimsoll_proxy_ring_version` | gauge | version | `plimsoll_cluster` | Version of the current ring; in HAProxy, of the thread that is furthest behind, 0 if it has none. | HAProxy, Envoy |
| `plimsoll_ring_applied_microseconds` | gauge | microseconds | `plimsoll_cluster` | Time that a worker spent applying the last ring. | Envoy |
| `plimsoll_ejections_total` | counter | nodes | `plimsoll_cluster` | Nodes temporarily ejected because they did not answer. | Envoy |
| `plimsoll_panics_total` | counter | panics | `plimsoll_cluster` | Panics caught by the module; the request continued without it. | Envoy's module |
| `plimsoll_abandoned_total` | counter | requests | `plimsoll_cluster` | Requests that ended without an answer from a node. | HAProxy |
| `plimsoll_news_age_seconds` | gauge | seconds | `plimsoll_cluster` | Time since the last exchange with Redis, of the thread that has waited longest; absent before the first. | HAProxy |
| `plimsoll_node_share_cost` | gauge | cost units | `plimsoll_cluster`, `node` | This proxy's share of the node's bound; 0 if the node receives no requests. | HAProxy |
| `plimsoll_node_in_flight_cost` | gauge | cost units | `plimsoll_cluster`, `node` | Cost in flight. | HAProxy |
| `plimsoll_node_in_flight_requests` | gauge | requests | `plimsoll_cluster`, `node` | Requests in flight. | HAProxy |
| `plimsoll_node_answered_total` | counter | requests | `plimsoll_cluster`, `node` | Requests that the node answered, without its failures. | HAProxy |
| `plimsoll_node_failed_total` | counter | requests | `plimsoll_cluster`, `node` | Requests that failed at the node or got no answer, without those whose clients left. | HAProxy |
| `plimsoll_node_cost_total` | counter | cost units | `plimsoll_cluster`, `node` | Cost of the answered requests, as reported by the node if it does. | HAProxy |
| `plimsoll_task_failures_total` | counter | errors | `plimsoll_cluster` | Errors of the tasks that communicate with Redis and track requests, for example if memory is short (`tune.lua.maxmem`); each task restarts after 0.1 s. | HAProxy |

Placement in HAProxy ([haproxy-lua.md](haproxy-lua.md#writes-at-primaries)) adds these to the same service; `plimsoll_cluster` is `placement.cluster`. [Envoy's filter](envoy-filter.md#writes-at-primaries) exports only the four counters, with `plimsoll_placement_refused_total` lacking the reason.

| name | type | unit | labels | meaning |
|---|---|---|---|---|
| `plimsoll_placement_placed_total` | counter | requests | `plimsoll_cluster` | Requests sent to the primary of their object set. |
| `plimsoll_placement_waited_total` | counter | requests | `plimsoll_cluster` | Requests that waited for a hand-over, or for the table, before they were placed or refused. |
| `plimsoll_placement_refused_total` | counter | requests | `plimsoll_cluster`; `reason`: `moving`, `suspended`, `unknown`, `name` | Refused requests, by reason. |
| `plimsoll_placement_doubted_total` | counter | requests | `plimsoll_cluster` | Requests that ended without an answer, so that their primary may still be processing them. |
| `plimsoll_placement_in_flight_requests` | gauge | requests | `plimsoll_cluster` | Requests at primaries. |
| `plimsoll_placement_in_doubt_sets` | gauge | object sets, a thread | `plimsoll_cluster` | Object sets with a request that ended without an answer and may still be in progress. |
| `plimsoll_placement_version` | gauge | version | `plimsoll_cluster` | Version of the current table, of the thread that is furthest behind; 0 if there is none. |
| `plimsoll_placement_suspended_threads` | gauge | threads | `plimsoll_cluster` | Threads that admit no requests because they have no valid table. |

Pushed updates in HAProxy ([freshness.md](freshness.md#a-feed-that-cannot-be-told)) are exported by a service of their own, `lua.plimsoll_update_metrics`.

| name | type | unit | labels | meaning |
|---|---|---|---|---|
| `plimsoll_pushed_updates_total` | counter | updates | `outcome`: `passed`, `held`, `replaced`, `stale`, `malformed`, `refused`; `flushed`, `failed` | Pushed updates by the answer they got, and attempts to forward held updates. |
| `plimsoll_pushed_updates_held` | gauge | updates | | Held updates. |
| `plimsoll_pushed_update_bytes` | gauge | bytes | | Size of the held updates. |
| `plimsoll_pushed_update_items` | gauge | items | | Watched items. |
| `plimsoll_pushed_update_task_failures_total` | counter | errors | | Errors of the tasks that query the agents and forward held updates; each task restarts after 0.1 s. |

Without Lua, requests refused by HAProxy are in its own `haproxy_backend_http_responses_total{code=\"5xx\"}`, together with the nodes' errors, and in the agents' `plimsoll_source_lines_total{result=\"refused\"}` if the source is HAProxy's log. The weight and `maxconn` in force are `haproxy_server_weight` and `haproxy_server_limit_sessions` of HAProxy's exporter.
";

/// The complete reference.
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
        // Repeated on most lines, so without an explanation.
        _ if label.name == "service" => return "`service`".to_owned(),
        Values::OneOf(values) => {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            values.join(", ")
        }
        Values::Are(what) => (*what).to_owned(),
    };
    format!("`{}`: {values}", label.name)
}
