"""Lab run: what the clients of `make lab OBSERVE=1` saw, policy by policy."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.parts import (
    BLUE,
    GREEN,
    ORANGE,
    RED,
    Annotation,
    Column,
    Query,
    bars,
    by,
    graph,
    rate,
    rows,
    start,
    variable,
    with_panels,
)

POLICY = 'policy=~"$policy"'
KEY = "policy"
PROXY = 'role="proxy"'


def seen(metric: str, *matchers: str) -> str:
    return f"{metric}{{{','.join([POLICY, *matchers])}}}"


def in_all(metric: str, *matchers: str) -> str:
    return by(KEY, f"increase({seen(metric, *matchers)}[$__range])")


def worst(metric: str) -> str:
    return by(KEY, f"max_over_time({seen(metric)}[$__range])", "max")


def dashboard() -> Dashboard:
    policies = variable(
        "policy", "label_values(lab_sla_seconds, policy)", "Policy", "Policies of the run, in turn."
    )
    made = start(
        "plimsoll-lab",
        "Plimsoll / Lab run",
        "What the clients of a lab run saw, policy by policy. The policies ran one after the other.",
        [policies],
    )
    events = seen("lab_event_timestamp_seconds", 'event!="start"')
    began = seen("lab_event_timestamp_seconds", 'event="start"')
    made = made.annotation(Annotation("Events", f"1000 * {events}", ORANGE, "{{policy}}: {{event}}", True))
    made = made.annotation(Annotation("Starts", f"1000 * {began}", BLUE, "{{policy}} starts", True))
    made = with_panels(
        made,
        bars(
            "Timely work",
            "Items of queries that were answered within the SLA, in the time shown: what a policy is judged "
            "by.",
            "short",
            Query(in_all("k6_timely_items_total"), "{{policy}}"),
            steps=[(None, GREEN)],
        ),
        bars(
            "Timely share",
            "Items of queries answered within the SLA, of all items answered, in the time shown.",
            "percentunit",
            Query(f"{in_all('k6_timely_items_total')} / {in_all('k6_total_items_total')}", "{{policy}}"),
            steps=[(None, RED), (0.95, ORANGE), (0.99, GREEN)],
        ),
    )
    queries = in_all("k6_http_reqs_total", 'name="query"')
    refused = in_all("k6_http_reqs_total", 'name="query",status="503"')
    return with_panels(
        made,
        rows(
            "Policies",
            "A row a policy, over the time shown. Delays are the worst of the clients' running figures.",
            {"policy": "Policy"},
            Column("Timely items", in_all("k6_timely_items_total")),
            Column("Items", in_all("k6_total_items_total")),
            Column("Queries", queries),
            Column("Refused", f"{refused} or 0 * {queries}"),
            Column("Worst mean delay", worst("k6_query_delay_avg"), "s"),
            Column("Worst p95", worst("k6_query_delay_p95"), "s"),
            Column("Worst p99", worst("k6_query_delay_p99"), "s"),
            Column("Proxy CPU a query", f"{in_all('lab_cpu_seconds_total', PROXY)} / {queries}", "s"),
        ),
        graph(
            "Timely work over time",
            "Items of queries answered within the SLA, a second. Marks: the burst, the removal of a node, "
            "Redis away.",
            "short",
            Query(by(KEY, rate(seen("k6_timely_items_total"))), "{{policy}}"),
        ),
        graph(
            "All work over time",
            "Items of all answered queries, a second, late ones too.",
            "short",
            Query(by(KEY, rate(seen("k6_total_items_total"))), "{{policy}}"),
        ),
        graph(
            "Delay that clients see",
            "95th percentile of the delay of queries that were answered, since the policy began. Dashed: "
            "the SLA.",
            "s",
            Query(by(KEY, seen("k6_query_delay_p95"), "max"), "{{policy}}"),
            Query(f"max({seen('lab_sla_seconds')})", "SLA"),
            lines="^SLA$",
        ),
        graph(
            "Answers by status",
            "What the clients got. 503 is a refusal; 409 is an answer of the service; 0 is no answer.",
            "reqps",
            Query(
                by(f"{KEY}, status", rate(seen("k6_http_reqs_total", 'name!="collector"'))),
                "{{policy}} {{status}}",
            ),
            stacked=True,
        ),
        graph(
            "Cores",
            "CPU time a second of the proxies and of the load generator. A generator close to a whole core "
            "measures itself.",
            "short",
            Query(by(f"{KEY}, role", rate(seen("lab_cpu_seconds_total"))), "{{policy}} {{role}}"),
        ),
        graph(
            "Lag of the generator",
            "How late the clients' timers fire, 99th percentile: what is late here is not the service's "
            "fault.",
            "s",
            Query(by(KEY, seen("k6_generator_lag_p99"), "max"), "{{policy}}"),
            steps=[(None, GREEN), (0.05, ORANGE)],
        ),
    )
