"""Updates: how old temporal data may be, what the feed saves, and what waits in HAProxy."""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from dashboards.parts import (
    BLUE,
    GREEN,
    NONE_STEPS,
    ORANGE,
    RED,
    Query,
    agent_variables,
    alerts,
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
from dashboards.sla import KEYS

EACH = "{{instance}} {{service}}"
ITEMS = by(KEYS, of("plimsoll_update_items"), "max")


def rates(periods: str) -> str:
    return by(KEYS, of("plimsoll_update_rate", f'periods="{periods}"'), "max")


def dashboard() -> Dashboard:
    made = start(
        "plimsoll-updates",
        "Plimsoll / Updates",
        "How old temporal data may be, what the feed saves, and what waits in HAProxy.",
        [
            *agent_variables(),
            proxies("plimsoll_pushed_updates_held", "HAProxys that updates are pushed through."),
        ],
    )
    made = made.annotation(alerts())
    relaxed = by(KEYS, of("plimsoll_update_items_relaxed"), "max")
    failures = rate(of("plimsoll_update_list_failures_total"))
    forgotten = rate(of("plimsoll_update_forgotten_total"))
    made = with_panels(
        made,
        number(
            "Items relaxed",
            "Share of the items whose period is longer than their own, at the node where it is largest.",
            "percentunit",
            Query(f"max({relaxed} / {ITEMS})"),
            steps=[(None, GREEN), (0.01, BLUE)],
            absent="no items",
        ),
        number(
            "Longest period",
            "Of any item: as old as what is read may be, where the feed keeps its periods.",
            "s",
            Query(f"max({of('plimsoll_update_longest_period_seconds')})"),
            steps=[(None, BLUE)],
            absent="no items",
        ),
        number(
            "Updates saved",
            "Of the updates that all items would have at their own periods, the share that is left out.",
            "percentunit",
            Query(f"1 - sum({rates('wanted')}) / sum({rates('own')})"),
            steps=[(None, BLUE)],
            absent="no items",
        ),
        number(
            "Feeds that do not obey",
            "Nodes that made a tenth more updates than their agent wants: their bound is lowered instead, so "
            "that requests are refused.",
            "none",
            Query(
                f"count({by(KEYS, rate(of('plimsoll_update_made_total')))} > 1.1 * {rates('wanted')}) "
                "or vector(0)"
            ),
            steps=NONE_STEPS,
        ),
        number(
            "Lists that fail",
            "Services whose list of items cannot be had just now.",
            "none",
            Query(f"count({by(KEYS, failures)} > 0) or vector(0)"),
            steps=NONE_STEPS,
        ),
        number(
            "Items watched",
            "Of all nodes chosen. A node has room for 100,000.",
            "none",
            Query(f"sum({ITEMS})"),
            steps=[(None, BLUE)],
            absent="no items",
        ),
        graph(
            "Items with longer periods",
            "Share of each node's items whose period is longer than their own.",
            "percentunit",
            Query(f"{relaxed} / {ITEMS}", EACH),
        ),
        graph(
            "Periods and ages",
            "The longest period of any item, which is as old as what is read may be, and the mean period by "
            "updates; what is read is about half of its period old in the mean. Dashed: the mean of the "
            "items' own periods.",
            "s",
            Query(by(KEYS, of("plimsoll_update_longest_period_seconds"), "max"), f"{EACH} longest"),
            Query(f"{ITEMS} / {rates('wanted')}", f"{EACH} mean"),
            Query(f"max({ITEMS} / {rates('own')})", "own"),
            lines="^own$",
        ),
        graph(
            "Updates",
            "A second: those that the items are to have now, and those that were made, where the service "
            "tells. Dashed: at the items' own periods.",
            "cps",
            Query(rates("wanted"), f"{EACH} wanted"),
            Query(by(KEYS, rate(of("plimsoll_update_made_total"))), f"{EACH} made"),
            Query(f"max({rates('own')})", "own"),
            lines="^own$",
        ),
        graph(
            "Lists and items left out",
            "Lists of items that could not be had, by kind, and items forgotten for lack of room, a second.",
            "cps",
            Query(by("instance, kind", failures), "{{instance}} {{kind}}"),
            Query(by("instance", forgotten), "{{instance}} forgotten"),
        ),
    )
    made = made.with_row(Row("Pushed through HAProxy"))
    return with_panels(
        made,
        graph(
            "Pushed updates",
            "What became of them, a second: passed on, held, put in place of one that waited, dropped as "
            "older, refused; flushed and failed are attempts to send on what waited.",
            "cps",
            Query(by("outcome", rate(of_proxy("plimsoll_pushed_updates_total"))), "{{outcome}}"),
            stacked=True,
            colors={"failed": RED, "refused": ORANGE},
        ),
        graph(
            "Pushed updates held",
            "Updates that wait for their period to be over. With the HAProxy that holds them they are lost.",
            "none",
            Query(by("instance", of_proxy("plimsoll_pushed_updates_held"), "max"), "{{instance}}"),
        ),
        graph(
            "Bytes held",
            "Of updates that wait. Without room for one more it is refused.",
            "bytes",
            Query(by("instance", of_proxy("plimsoll_pushed_update_bytes"), "max"), "{{instance}}"),
        ),
        graph(
            "Pushed items",
            "Items that HAProxy watches, since an agent wants them updated less often.",
            "none",
            Query(by("instance", of_proxy("plimsoll_pushed_update_items"), "max"), "{{instance}}"),
        ),
    )
