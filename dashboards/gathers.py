"""Gathers: how one query to all partitions ends, which of them it misses, and what the agents do for it."""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from dashboards.parts import (
    AGENT,
    BLUE,
    GREEN,
    NONE_STEPS,
    ORANGE,
    RED,
    Query,
    agent_variables,
    agents,
    alerts,
    by,
    chosen,
    graph,
    instances,
    number,
    rate,
    start,
    variable,
    with_panels,
)

OUTCOMES = {"whole": GREEN, "partial": BLUE, "late": ORANGE, "down": RED}
MISSING = 'state=~"late|refused|down"'
GATHER = 'cluster=~"$cluster",instance=~"$gather"'
PARTITION = 'partition=~"$partition"'


def of_gather(metric: str, *matchers: str) -> str:
    """A metric of the gathers chosen."""
    return chosen(metric, GATHER, *matchers)


def of_partition(metric: str, *matchers: str) -> str:
    """A metric of the agents' partitions."""
    return agents(metric, PARTITION, *matchers)


def quantile(share: float, labels: str, series: str) -> str:
    return f"histogram_quantile({share}, {by(labels, rate(series))})"


def dashboard() -> Dashboard:
    made = start(
        "plimsoll-gathers",
        "Plimsoll / Gathers",
        "How gathers end, how long they take, which partitions they miss, and what the agents do for them.",
        [
            *agent_variables(with_service=False),
            instances("gather", "plimsoll_gather_running", "Instances of `plimsoll gather`."),
            variable(
                "partition",
                f"label_values(plimsoll_partition_queries_running{{{AGENT}}}, partition)",
                "Partition",
                "Partitions of the agents chosen.",
            ),
        ],
    )
    made = made.annotation(alerts())
    gathers = rate(of_gather("plimsoll_gathers_total"))
    whole = rate(of_gather("plimsoll_gathers_total", 'outcome="whole"'))
    taken = rate(of_gather("plimsoll_gathers_total", 'outcome!~"refused|left"'))
    missing = by("partition, state", rate(of_gather("plimsoll_gather_partitions_total", PARTITION, MISSING)))
    delay = of_gather("plimsoll_gather_delay_seconds_bucket")
    query_delay = of_partition("plimsoll_partition_query_delay_seconds_bucket")
    waiting = of_partition("plimsoll_partition_queries_waiting")
    made = with_panels(
        made,
        number(
            "Gathers",
            "Those that ended, a second.",
            "reqps",
            Query(f"sum({gathers})"),
            steps=[(None, BLUE)],
            absent="no gathers",
        ),
        number(
            "Whole",
            "Share of the gathers with the answers of all partitions, of those that were neither refused nor "
            "left by their callers.",
            "percentunit",
            Query(f"sum({whole}) / sum({taken})"),
            steps=[(None, RED), (0.95, ORANGE), (0.99, GREEN)],
            absent="no gathers",
        ),
        number(
            "Delay",
            "From the question to the end of the answer, p95.",
            "s",
            Query(quantile(0.95, "le", delay)),
            steps=[(None, BLUE)],
            absent="no gathers",
        ),
        number(
            "Gathers under way",
            "More than `gather.at_once` at one instance are refused.",
            "none",
            Query(f"sum({of_gather('plimsoll_gather_running')})"),
            steps=[(None, BLUE)],
            absent="no gathers",
        ),
        number(
            "Partitions missed",
            "Partitions that some gather had no answer of just now: late, refused or down.",
            "none",
            Query(f"count({by('partition', missing)} > 0) or vector(0)"),
            steps=NONE_STEPS,
        ),
        number(
            "Queries waiting",
            "Of all agents chosen: each runs as many at once as it has cores.",
            "none",
            Query(f"sum({waiting})"),
            steps=[(None, GREEN), (1, ORANGE)],
            absent="no partitions",
        ),
        graph(
            "Gathers by outcome",
            "Whole, or with some partitions where that will do; late, refused, or without a partition that "
            "is down; left by their callers.",
            "reqps",
            Query(by("outcome", gathers), "{{outcome}}"),
            stacked=True,
            colors=OUTCOMES,
        ),
        graph(
            "Delay of gathers",
            "From the question to the end of the answer, however it ended. Dashed: p95 of the queries in the "
            "slowest partition, as its agent has it. What is above it is the way, the merge, and the caller "
            "who takes the rows.",
            "s",
            Query(quantile(0.5, "le", delay), "p50"),
            Query(quantile(0.95, "le", delay), "p95"),
            Query(f"max({quantile(0.95, 'partition, le', query_delay)})", "slowest partition"),
            lines="^slowest partition$",
        ),
        graph(
            "Partitions without an answer",
            "Answers that gathers did not have, a second. One that is late or down in all of them makes all "
            "fail that do not take a part.",
            "cps",
            Query(missing, "{{partition}} {{state}}"),
            colors={"late": ORANGE, "down": RED},
        ),
        graph(
            "Rows",
            "A second: read by the agents, and sent to callers. Fewer are sent where there is a limit or a "
            "reduction, and where gathers fail.",
            "cps",
            Query(f"sum({rate(of_gather('plimsoll_gather_rows_total'))})", "sent"),
            Query(f"sum({rate(of_partition('plimsoll_partition_rows_total'))})", "read"),
        ),
        graph(
            "Bytes of answers",
            "A second: sent by the agents, and sent to callers.",
            "Bps",
            Query(f"sum({rate(of_gather('plimsoll_gather_bytes_total'))})", "to callers"),
            Query(f"sum({rate(of_partition('plimsoll_partition_bytes_total'))})", "by agents"),
        ),
        graph(
            "Gathers under way over time",
            "By instance.",
            "none",
            Query(by("instance", of_gather("plimsoll_gather_running")), "{{instance}}"),
            stacked=True,
        ),
    )
    made = made.with_row(Row("Queries at the agents"))
    running = of_partition("plimsoll_partition_queries_running")
    queries = "plimsoll_partition_queries_total"
    logins = rate(of_partition("plimsoll_partition_logins_total"))
    return with_panels(
        made,
        graph(
            "Queries by state",
            "Those that ended, a second. Queries that are late or left are cancelled.",
            "reqps",
            Query(by("state", rate(of_partition(queries))), "{{state}}"),
            stacked=True,
            colors={"answered": GREEN, "late": ORANGE, "down": RED},
        ),
        graph(
            "Delay of queries",
            "From the question to the last row, with the wait for a core; p95 of those that were answered.",
            "s",
            Query(quantile(0.95, "partition, le", query_delay), "{{partition}}"),
        ),
        graph(
            "Queries running and waiting",
            "A node runs as many at once as it has cores; of those that wait, 64 with those that run.",
            "none",
            Query(by("instance", running), "{{instance}} running"),
            Query(by("instance", waiting), "{{instance}} waiting"),
        ),
        graph(
            "Queries cancelled",
            "By partition, a second: the deadline passed, or who asked had left.",
            "cps",
            Query(
                by("partition, state", rate(of_partition(queries, 'state=~"late|left"'))),
                "{{partition}} {{state}}",
            ),
        ),
        graph(
            "Connections opened",
            "To the partitions' databases, a second. They are kept from query to query, and closed after one "
            "that was cancelled.",
            "cps",
            Query(by("instance, result", logins), "{{instance}} {{result}}"),
            colors={"failed": RED},
        ),
        graph(
            "Queries that found no database",
            "By node, a second. Another node of the partition, where there is one, is asked then.",
            "cps",
            Query(
                by("instance, partition", rate(of_partition(queries, 'state="down"'))),
                "{{instance}} {{partition}}",
            ),
        ),
    )
