"""Proxy: HAProxy and Envoy side by side, what they refuse, and what the policy costs them."""

from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from dashboards.parts import Query, by, cluster_of, graph, of_proxy, rate, start, variable, with_panels

# Not the pages of statistics, and not the questions that the filter itself asks.
OWN_FRONTENDS = 'proxy!="stats"'
OWN_LISTENERS = 'envoy_http_conn_manager_prefix!="admin"'
OWN_CLUSTERS = 'envoy_cluster_name!="plimsoll_agents"'
# Plimsoll's own series, which both kinds of proxy have under one name.
LUA, FILTER = 'job="haproxy-lua"', 'job!="haproxy-lua"'


def each(series: str) -> str:
    return by("instance", rate(series))


def own_refusals(answered: str, by_nodes: str) -> str:
    """5xx answers that no node gave; a proxy may have none of either yet."""
    return f"{each(answered)} - ({each(by_nodes)} or 0 * {each(answered)})"


def answers(made: Dashboard) -> Dashboard:
    return with_panels(
        made,
        graph(
            "HAProxy: answers",
            "Answers to clients by status.",
            "reqps",
            Query(
                by("instance, code", rate(of_proxy("haproxy_frontend_http_responses_total", OWN_FRONTENDS))),
                "{{instance}} {{code}}",
            ),
            stacked=True,
        ),
        graph(
            "Envoy: answers",
            "Answers to clients by status.",
            "reqps",
            Query(
                by(
                    "instance, envoy_response_code_class",
                    rate(of_proxy("envoy_http_downstream_rq_xx", OWN_LISTENERS)),
                ),
                "{{instance}} {{envoy_response_code_class}}xx",
            ),
            stacked=True,
        ),
        graph(
            "HAProxy: refused",
            "5xx answers that no node gave: refusals by the policy or by the queue's time-out, and nodes "
            "that could not be reached; and those of them that the Lua policy decided.",
            "reqps",
            Query(
                own_refusals(
                    of_proxy("haproxy_backend_http_responses_total", 'code="5xx"'),
                    of_proxy("haproxy_server_http_responses_total", 'code="5xx"'),
                ),
                "{{instance}}",
            ),
            Query(each(of_proxy("plimsoll_refused_total", LUA)), "{{instance}} Lua"),
        ),
        graph(
            "Envoy: refused",
            "5xx answers that no node gave, and those of them that Plimsoll's filter decided.",
            "reqps",
            Query(
                own_refusals(
                    of_proxy("envoy_http_downstream_rq_xx", OWN_LISTENERS, 'envoy_response_code_class="5"'),
                    of_proxy("envoy_cluster_upstream_rq_xx", OWN_CLUSTERS, 'envoy_response_code_class="5"'),
                ),
                "{{instance}}",
            ),
            Query(each(of_proxy("plimsoll_refused_total", FILTER)), "{{instance}} filter"),
        ),
        graph(
            "Refused by class",
            "Requests that Plimsoll refused, over all proxies chosen, by class; 0 where there are none.",
            "reqps",
            Query(
                f"{by('class', rate(of_proxy('plimsoll_class_refused_total')))} or "
                f"label_replace(sum({rate(of_proxy('plimsoll_refused_total'))}), "
                '"class", "0", "", "")',
                "{{class}}",
            ),
            width=24,
            stacked=True,
        ),
    )


def load(made: Dashboard) -> Dashboard:
    return with_panels(
        made,
        graph(
            "HAProxy: under way",
            "Requests in nodes and in the queue.",
            "short",
            Query(
                by("instance, proxy", of_proxy("haproxy_backend_current_sessions")), "{{instance}} {{proxy}}"
            ),
            Query(
                by("instance, proxy", of_proxy("haproxy_backend_current_queue")),
                "{{instance}} {{proxy}} queued",
            ),
        ),
        graph(
            "Envoy: under way",
            "Requests in nodes, those that wait for a connection, and those that the filter counts.",
            "short",
            Query(
                by(
                    "instance, envoy_cluster_name", of_proxy("envoy_cluster_upstream_rq_active", OWN_CLUSTERS)
                ),
                "{{instance}} {{envoy_cluster_name}}",
            ),
            Query(
                by("instance", of_proxy("envoy_cluster_upstream_rq_pending_active", OWN_CLUSTERS)),
                "{{instance}} queued",
            ),
            Query(by("instance", of_proxy("plimsoll_in_flight_requests", FILTER)), "{{instance}} filter"),
        ),
        graph(
            "HAProxy: load and limit of each node",
            "Requests in each server, over all proxies chosen. Dashed: the limit (maxconn) that the agents "
            "set.",
            "short",
            Query(by("server", of_proxy("haproxy_server_current_sessions")), "{{server}}"),
            Query(f"{by('server', of_proxy('haproxy_server_limit_sessions'))} > 0", "limit {{server}}"),
            lines="^limit .*",
        ),
        graph(
            "Envoy: backlog",
            "Cost of the requests that the filter has admitted and that have not ended, in cost units.",
            "short",
            Query(by("instance", of_proxy("plimsoll_in_flight_cost", FILTER)), "{{instance}}"),
        ),
        graph(
            "HAProxy: backlog",
            "Cost of the requests that the Lua policy has admitted to each node and that have not ended, "
            "over all proxies chosen, in cost units. Dashed: what they may have together.",
            "short",
            Query(by("node", of_proxy("plimsoll_node_in_flight_cost")), "{{node}}"),
            Query(by("node", of_proxy("plimsoll_node_share_cost")), "share {{node}}"),
            lines="^share .*",
        ),
        graph(
            "HAProxy: weights",
            "Weight of each server, in percent of its configured weight, as the first proxy has it.",
            "percent",
            Query(by("server", of_proxy("haproxy_server_weight"), "max"), "{{server}}"),
        ),
        graph(
            "Envoy: nodes",
            "Members of each cluster that Envoy takes to be healthy. Dashed: all members.",
            "short",
            Query(
                by("envoy_cluster_name", of_proxy("envoy_cluster_membership_healthy", OWN_CLUSTERS), "min"),
                "{{envoy_cluster_name}}",
            ),
            Query(
                by("envoy_cluster_name", of_proxy("envoy_cluster_membership_total", OWN_CLUSTERS), "max"),
                "all of {{envoy_cluster_name}}",
            ),
            lines="^all of .*",
        ),
        graph(
            "HAProxy: trouble with nodes",
            "Retries, redispatches and connections that failed.",
            "cps",
            Query(each(of_proxy("haproxy_backend_retry_warnings_total")), "{{instance}} retries"),
            Query(each(of_proxy("haproxy_backend_redispatch_warnings_total")), "{{instance}} redispatches"),
            Query(
                each(of_proxy("haproxy_backend_connection_errors_total")), "{{instance}} connections failed"
            ),
        ),
        graph(
            "Envoy: trouble with nodes",
            "Retries, connections that failed, and nodes that the filter took out since they did not answer.",
            "cps",
            Query(each(of_proxy("envoy_cluster_upstream_rq_retry", OWN_CLUSTERS)), "{{instance}} retries"),
            Query(
                each(of_proxy("envoy_cluster_upstream_cx_connect_fail", OWN_CLUSTERS)),
                "{{instance}} connections failed",
            ),
            Query(each(of_proxy("plimsoll_ejections_total")), "{{instance}} taken out"),
        ),
    )


def decisions(title: str, fallback: str, whose: str) -> timeseries.Panel:
    return graph(
        title,
        f"Requests placed, refused, and left to {fallback} for want of fresh news.",
        "reqps",
        Query(each(of_proxy("plimsoll_admitted_total", whose)), "{{instance}} placed"),
        Query(each(of_proxy("plimsoll_refused_total", whose)), "{{instance}} refused"),
        Query(each(of_proxy("plimsoll_undecided_total", whose)), "{{instance}} undecided"),
        stacked=True,
    )


def cost(made: Dashboard) -> Dashboard:
    made = made.with_row(Row("Cost of the policy"))
    made = with_panels(
        made,
        graph(
            "HAProxy: busy",
            "Share of the time in which HAProxy was not waiting for something to do.",
            "percent",
            Query(
                by("instance", f"100 - {of_proxy('haproxy_process_idle_time_percent')}", "max"),
                "{{instance}}",
            ),
        ),
    )
    listeners, clusters = of_proxy("envoy_http_downstream_rq_time_sum", OWN_LISTENERS), OWN_CLUSTERS
    return with_panels(
        made,
        graph(
            "Envoy: time of its own",
            "Mean time that a request spends in Envoy and not in a node.",
            "ms",
            Query(
                f"({each(listeners)} - {each(of_proxy('envoy_cluster_upstream_rq_time_sum', clusters))}) / "
                f"({each(of_proxy('envoy_http_downstream_rq_time_count', OWN_LISTENERS))} > 0)",
                "{{instance}}",
            ),
        ),
        graph(
            "HAProxy: memory",
            "Memory of HAProxy's pools that is in use; Lua's is not in it.",
            "bytes",
            Query(by("instance", of_proxy("haproxy_process_pool_used_bytes")), "{{instance}}"),
        ),
        graph(
            "Envoy: memory",
            "Memory that Envoy has allocated, the filter's included.",
            "bytes",
            Query(by("instance", of_proxy("envoy_server_memory_allocated")), "{{instance}}"),
        ),
        decisions("HAProxy: the Lua policy's decisions", "the backend's balance", LUA),
        decisions("Envoy: the filter's decisions", "the fallback policy", FILTER),
        graph(
            "Envoy: taking a new ring",
            "How long a worker's requests waited for the last version of the ring.",
            "µs",
            Query(by("instance", of_proxy("plimsoll_ring_applied_microseconds"), "max"), "{{instance}}"),
        ),
    )


def dashboard() -> Dashboard:
    known = '{__name__=~"haproxy_process_nbthread|envoy_server_concurrency",cluster=~"$cluster"}'
    made = start(
        "plimsoll-proxy",
        "Plimsoll / Proxy",
        "HAProxy and Envoy side by side, what they refuse, and what the policy costs them.",
        [
            cluster_of('{__name__=~"haproxy_process_nbthread|envoy_server_concurrency"}'),
            variable(
                "proxy", f"label_values({known}, instance)", "Proxy", "HAProxys and Envoys, by instance."
            ),
        ],
    )
    return cost(load(answers(made)))
