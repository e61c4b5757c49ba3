"""Ring: fractions wanted and realised, what moved, and whether everybody has the same version."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.parts import (
    BLUE,
    GREEN,
    NONE_STEPS,
    ORANGE,
    RED,
    Query,
    agent_variables,
    by,
    graph,
    number,
    of,
    of_proxy,
    proxies,
    rate,
    start,
    with_panels,
)

AGE = f"time() - {by('instance', of('plimsoll_redis_last_report_timestamp_seconds'), 'max')}"


def dashboard() -> Dashboard:
    made = start(
        "plimsoll-ring",
        "Plimsoll / Ring",
        "Fractions wanted and realised, what moved, and whether everybody has the same version.",
        [
            *agent_variables(),
            proxies(
                "plimsoll_admitted_total",
                "HAProxys with Plimsoll's Lua policies, and Envoys with its filter.",
            ),
        ],
    )
    version = of("plimsoll_ring_version")
    made = with_panels(
        made,
        number(
            "Versions apart",
            "Between the newest and the oldest version of the ring that agents and proxies have. More than "
            "a few, for longer than a period, means that somebody does not hear of changes.",
            "none",
            Query(f"max({version}) - min({version})"),
            steps=[(None, GREEN), (3, ORANGE), (10, RED)],
            absent="no ring",
        ),
        number(
            "Nodes in the ring",
            "Live nodes in Redis.",
            "none",
            Query(f"min({of('plimsoll_ring_nodes')})"),
            steps=[(None, RED), (1, BLUE)],
            absent="no ring",
        ),
        number(
            "Off the wanted fraction",
            "The largest distance between a node's fraction wanted and realised, of the one wanted. Within "
            "the dead band, 5% by default, nothing moves.",
            "percentunit",
            Query(f"max(abs({of('plimsoll_ring_realised_ratio')} / {of('plimsoll_ring_wanted_ratio')} - 1))"),
            steps=[(None, GREEN), (0.05, ORANGE)],
            absent="no ring",
        ),
        number(
            "Oldest report",
            "The longest time since an agent's last report to Redis. After its lease a node leaves the ring.",
            "s",
            Query(f"max({AGE})"),
            steps=[(None, GREEN), (3, ORANGE), (10, RED)],
            absent="no ring",
        ),
        number(
            "Failing reports",
            "Agents that have just failed to report to Redis.",
            "none",
            Query(f"count({rate(of('plimsoll_redis_failures_total'))} > 0) or vector(0)"),
            steps=NONE_STEPS,
        ),
        number(
            "Bound of the cluster",
            "Sum of the live nodes' bounds, in cost units.",
            "short",
            Query(f"max({of('plimsoll_cluster_bound')})"),
            steps=[(None, BLUE)],
            absent="no ring",
        ),
    )
    for name, what, text in (
        ("plimsoll_ring_wanted_ratio", "wanted", "Each node's bound over the sum of the bounds."),
        ("plimsoll_ring_realised_ratio", "realised", "Each node's slots over all slots: the keys it gets."),
    ):
        made = made.with_panel(
            graph(
                f"Fractions {what}",
                text,
                "percentunit",
                Query(by("instance", of(name), "max"), "{{instance}}"),
                stacked=True,
            )
        )
    return with_panels(
        made,
        graph(
            "Versions",
            "The version of the ring that each agent and each proxy has. Lines that part are members that "
            "do not hear of changes.",
            "none",
            Query(by("instance", version, "max"), "{{instance}}"),
            Query(
                by("instance", of_proxy("plimsoll_proxy_ring_version"), "max"),
                "{{instance}} (proxy)",
            ),
        ),
        graph(
            "Slots moved",
            "Slots that changed owner, by the agent that saw most of it: the keys of a moved slot are cold "
            "in their new node.",
            "cps",
            Query(f"max({rate(of('plimsoll_ring_moved_slots_total'))})", "slots"),
        ),
        graph(
            "Age of the last report",
            "Time since Redis last took a report of the agent. Dashed: the lease, after which the node "
            "leaves the ring.",
            "s",
            Query(AGE, "{{instance}}"),
            Query(f"min({of('plimsoll_ring_lease_seconds')})", "lease"),
            lines="^lease$",
        ),
        graph(
            "Reports",
            "Reports that Redis took, and times it could not be reached or refused one.",
            "cps",
            Query(by("instance", rate(of("plimsoll_redis_reports_total"))), "{{instance}} taken"),
            Query(by("instance", rate(of("plimsoll_redis_failures_total"))), "{{instance}} failed"),
        ),
    )
