"""The table, for the terminal, for the page and as Markdown."""

from loadtests.report import phases, placement
from loadtests.report.numbers import show
from loadtests.report.schema import Summary

HEADINGS = [
    *("policy", "proxy", "timely items/s", "of ideal", "from 5 s", "vs rr", "vs prop", "total items/s"),
    *(
        "mean s",
        "p95 s",
        "p99 s",
        "overshoot s",
        "settling s",
        "refused",
        "errors",
        "cache hits",
        "proxy cores",
    ),
]


def cells(summary: Summary) -> list[list[str]]:
    timely = {run["policy"]: run["timely_items_per_s"] for run in summary["runs"]}
    lines = []
    for run in summary["runs"]:
        mine = run["timely_items_per_s"]
        versus = [mine / timely[n] if timely.get(n) else None for n in ("rr", "prop")]
        lines.append(
            [
                run["policy"] + (" (generator limited)" if run["generator_limited"] else ""),
                run["proxy"].split()[0] if run["proxy"] else "-",
                show(mine, ",.0f"),
                show(run["timely_of_ideal"], ".1%"),
                show(run["timely_of_ideal_after_event"], ".1%"),
                *(show(v, ".2f") for v in versus),
                show(run["total_items_per_s"], ",.0f"),
                *(show(run[f"{n}_delay_s"], ".2f") for n in ("mean", "p95", "p99")),
                show(run["overshoot_s"], ".2f"),
                (">" if run["settled"] is False else "") + show(run["settling_s"], ".0f"),
                show(run["refused_fraction"], ".1%"),
                show(run["error_fraction"], ".2%"),
                show(run["cache_hit_ratio"], ".1%"),
                show(run["proxy_cpu_share"], ".2f"),
            ]
        )
    return lines


def chosen(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of what the scenario is about."""
    if any(run["phases"] for run in summary["runs"]):
        return phases.headings(summary), phases.cells(summary)
    if any(run["placement"] for run in summary["runs"]):
        return placement.HEADINGS, placement.cells(summary)
    return HEADINGS, cells(summary)


UPDATES = [
    *("in the overload:", "timely items/s", "mean s", "p95 s", "refused", "updates/s a node"),
    *("mean age s", "p95 age s", "relaxed", "longest period s", "back after s"),
]


def updates(summary: Summary) -> list[list[str]]:
    """Results of the overload of temporal data; no lines for other scenarios."""
    lines = []
    for run in summary["runs"]:
        if found := run["updates"]:
            adaptive = found["relaxed_share"] is not None
            lines.append(
                [
                    run["policy"],
                    show(found["overload_timely_items_per_s"], ",.0f"),
                    *(show(found[f"overload_{n}_delay_s"], ".2f") for n in ("mean", "p95")),
                    show(found["overload_refused_fraction"], ".1%"),
                    show(found["overload_updates_per_s"], ",.0f"),
                    *(show(found[f"overload_{n}_age_s"], ".2f") for n in ("mean", "p95")),
                    show(found["relaxed_share"], ".1%"),
                    show(found["longest_period_s"], ".1f"),
                    "not" if adaptive and found["back_s"] is None else show(found["back_s"], ".0f"),
                ]
            )
    return lines


def aligned(lines: list[list[str]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = []
    for line in lines:
        rest = (c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))
        text.append("  ".join([line[0].ljust(widths[0]), *rest]))
    return "\n".join(text)


def tables(summary: Summary) -> list[tuple[list[str], list[list[str]]]]:
    """Headings and cells of what the scenario is about, and of what else there is to show."""
    if any(run["phases"] for run in summary["runs"]):
        beside = [
            (phases.possible_headings(summary), phases.possible(summary)),
            (phases.lost_headings(summary), phases.lost(summary)),
        ]
        if phases.has_classes(summary):
            beside.append((phases.important_headings(summary), phases.of_important(summary)))
    else:
        lines = updates(summary)
        beside = [(UPDATES, lines)] if lines else []
    return [chosen(summary), *beside]


def terminal(summary: Summary) -> str:
    parts = [aligned([headings, *lines]) for headings, lines in tables(summary)]
    return "\n\n".join([*parts, *phases.best_of_groups(summary)])


def piped(headings: list[str], lines: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(headings) - 1)]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in [headings, rule, *lines]]
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def markdown(summary: Summary) -> str:
    parts = [piped(*table) for table in tables(summary)]
    return "\n\n".join([*parts, *phases.best_of_groups(summary)])
