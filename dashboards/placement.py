"""Placement: primaries of object sets, balance of the load, and handovers in progress."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.parts import (
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
    graph,
    number,
    of_proxy,
    proxies,
    rate,
    start,
    with_panels,
)

KEEPS = f"{agents('plimsoll_placement_keeper')} == 1"
HAND_OVERS = by("outcome", rate(agents("plimsoll_placement_hand_overs_total")))


def kept(metric: str) -> str:
    """The metric of the current keeper only, since former ones have stale values."""
    return f"max({agents(metric)} and {KEEPS})"


def dashboard() -> Dashboard:
    made = start(
        "plimsoll-placement",
        "Plimsoll / Placement",
        "Where object sets are, how even the load of primaries is, and what hand-overs are on their way.",
        [
            *agent_variables(with_service=False),
            proxies("plimsoll_placement_placed_total", "HAProxys and Envoys that send writes to primaries."),
        ],
    )
    made = made.annotation(alerts())
    variation, even = kept("plimsoll_placement_variation_ratio"), kept("plimsoll_placement_even_ratio")
    moving = f"max({agents('plimsoll_placement_moving_sets')})"
    made = with_panels(
        made,
        number(
            "Keepers",
            "Agents that keep the table. One a cluster; none for longer than a lease means that nothing "
            "moves.",
            "none",
            Query(f"sum({agents('plimsoll_placement_keeper')})"),
            steps=[(None, RED), (1, GREEN)],
            absent="no placement",
        ),
        number(
            "Load over even",
            "Standard deviation over mean of the primaries' loads at the last plan, of what counts as even. "
            "Above 1 sets move, where moving them gains enough.",
            "percentunit",
            Query(f"{variation} / {even}"),
            steps=[(None, GREEN), (1, ORANGE)],
            absent="no plan",
        ),
        number(
            "Moves waiting",
            "Object sets that are being handed over now: their requests wait at the proxies.",
            "none",
            Query(moving),
            steps=[(None, GREEN), (1, BLUE)],
            absent="no placement",
        ),
        number(
            "Silent dispatchers",
            "Those that were not heard for a lease. While there is one nothing moves.",
            "none",
            Query(kept("plimsoll_placement_silent_dispatchers")),
            steps=NONE_STEPS,
            absent="no keeper",
        ),
        number(
            "Dispatchers",
            "Threads of HAProxy and workers of Envoy that act on the table.",
            "none",
            Query(f"max({agents('plimsoll_placement_dispatchers')})"),
            steps=[(None, RED), (1, BLUE)],
            absent="no placement",
        ),
        number(
            "Named sets",
            "Object sets with an entry of their own; the others share 64. There is room for 16,384.",
            "none",
            Query(f"max({agents('plimsoll_placement_named_sets')})"),
            steps=[(None, BLUE), (15_000, ORANGE)],
            absent="no placement",
        ),
        graph(
            "Object sets per primary",
            "Entries of the table that each node has, those included that leave it.",
            "none",
            Query(by("plimsoll_node", agents("plimsoll_placement_sets"), "max"), "{{plimsoll_node}}"),
            stacked=True,
        ),
        graph(
            "Load of the primaries",
            "Standard deviation over mean of what the primaries are asked for over what they can hold, at "
            "the last plan. Dashed: up to there it counts as even, as the threshold has it and as chance "
            "may make of few requests.",
            "percentunit",
            Query(variation, "variation"),
            Query(even, "even"),
            lines="^even$",
        ),
        graph(
            "Hand-overs",
            "Those that ended: done, or back to where the set was.",
            "cps",
            Query(HAND_OVERS, "{{outcome}}"),
            stacked=True,
            colors={"done": GREEN, "back": ORANGE},
        ),
        graph(
            "Moves waiting over time",
            "Object sets that are being handed over. One that stays waits for a request that does not end.",
            "none",
            Query(moving, "moving"),
        ),
        graph(
            "Time of a hand-over",
            "From the moment that a set leaves until it has its new primary, mean.",
            "s",
            Query(
                f"{by('outcome', rate(agents('plimsoll_placement_hand_over_seconds_total')))} / {HAND_OVERS}",
                "{{outcome}}",
            ),
        ),
        graph(
            "Versions",
            "The version of the table that each agent and each proxy has; of a proxy, its thread that is "
            "furthest behind, 0 where it has none.",
            "none",
            Query(by("instance", agents("plimsoll_placement_version"), "max"), "{{instance}}"),
            Query(
                by("instance", of_proxy("plimsoll_placement_version", 'plimsoll_cluster!=""'), "max"),
                "{{instance}} (proxy)",
            ),
        ),
    )
    return with_panels(
        made,
        graph(
            "Writes at primaries",
            "Requests that the proxies sent to the primary of their object set, and those that waited before "
            "they were sent or refused.",
            "reqps",
            Query(by("instance", rate(of_proxy("plimsoll_placement_placed_total"))), "{{instance}} placed"),
            Query(by("instance", rate(of_proxy("plimsoll_placement_waited_total"))), "{{instance}} waited"),
        ),
        graph(
            "Writes refused",
            "By reason, where the proxy tells it: a hand-over that took too long, no table, no primary, or "
            "no name.",
            "reqps",
            Query(by("reason", rate(of_proxy("plimsoll_placement_refused_total"))), "{{reason}}"),
            stacked=True,
        ),
        graph(
            "Doubts",
            "Requests that ended without an answer, so that their primary may still be at work on them: "
            "their set cannot leave it meanwhile.",
            "reqps",
            Query(by("instance", rate(of_proxy("plimsoll_placement_doubted_total"))), "{{instance}}"),
        ),
        graph(
            "Redis",
            "Times an agent could not reach Redis, or was refused, and tables that were given back to a "
            "Redis that had lost its own.",
            "cps",
            Query(by("instance", rate(agents("plimsoll_placement_failures_total"))), "{{instance}} failed"),
            Query(by("instance", rate(agents("plimsoll_placement_restored_total"))), "{{instance}} restored"),
        ),
    )
