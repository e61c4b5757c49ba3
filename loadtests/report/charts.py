"""The charts, as inline SVG. Each is narrow, so that its text stays legible on a phone."""

import io
import itertools
import re
from collections.abc import Iterable
from typing import Any

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
from markupsafe import Markup, escape

from loadtests.report.placement import BEST
from loadtests.report.records import Policy
from loadtests.report.schema import Run, Summary

STYLE = {
    "font.size": 9,
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    # Names are names: a dollar sign does not start a formula.
    "text.parse_math": False,
}
plt.rcParams.update(STYLE)
SMALL_INCHES = (3.5, 1.9)
SECONDS = "seconds since the clients started"
COLOURS = plt.get_cmap("tab10").colors + plt.get_cmap("tab20b").colors + plt.get_cmap("tab20c").colors


def svg(figure: Any, label: str) -> Markup:
    # Ids are hashed with a salt of the chart's own, so that charts on one page do not share them.
    with plt.rc_context({"svg.hashsalt": label}):
        out = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(out, format="svg", metadata=nothing)
    plt.close(figure)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    # Numbered ids of groups come again in every chart, and nothing refers to them.
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    return Markup(text.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1))


def timely_bars(summary: Summary) -> Markup:
    runs = summary["runs"][::-1]
    figure, axes = plt.subplots(figsize=(4.2, 0.8 + 0.36 * len(runs)))
    names = [run["policy"] for run in runs]
    axes.barh(names, [r["ideal_items_per_s"] for r in runs], color="#dddddd", label="ideal")
    bars = axes.barh(
        names, [r["timely_items_per_s"] for r in runs], height=0.5, color="#1f6fb2", label="timely"
    )
    axes.bar_label(bars, [f"{r['timely_items_per_s']:,.0f}" for r in runs], padding=3)
    axes.margins(x=0.15)
    axes.set_axisbelow(True)
    axes.grid(False, axis="y")
    axes.xaxis.set_major_locator(plt.MaxNLocator(4))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("mean requests/s" if runs[0]["app"] else "items/s")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return svg(figure, "Timely throughput per policy against ideal")


def over_time(summary: Summary, key: str, unit: str, label: str) -> list[Markup]:
    """A chart per policy, all on the same scale."""
    runs = summary["runs"]
    reference = {key: [summary["sla_seconds"]] for key in ("mean_delay_s", "p95_delay_s")}
    highest = max(
        value
        for run in runs
        for value in [*run["series"][key], *reference.get(key, run["series"]["ideal_items_per_s"])]
        if value is not None
    )
    longest = max(len(run["series"][key]) for run in runs)
    charts = []
    for run in runs:
        series = run["series"]
        figure, axes = plt.subplots(figsize=SMALL_INCHES)
        # A value belongs to the second that it was counted in.
        times = [second + 0.5 for second in range(len(series[key]))]
        axes.plot(times, [float("nan") if v is None else v for v in series[key]], color="#1f6fb2", lw=1.3)
        if key in reference:
            axes.axhline(summary["sla_seconds"], color="#c0392b", lw=1, ls="--")
        else:
            axes.plot(times, series["ideal_items_per_s"], color="#777777", lw=1, ls="--")
            axes.yaxis.set_major_formatter("{x:,.0f}")
        mark_event(axes, run["event_s"])
        for phase in (run["phases"] or [])[1:]:
            mark_event(axes, phase["from_s"])
        axes.set_xlim(0, longest)
        axes.set_ylim(0, 1.08 * highest or 1)
        axes.set_title(run["policy"], fontsize=10, loc="left")
        axes.set_xlabel(SECONDS)
        axes.set_ylabel(unit)
        charts.append(svg(figure, f"{label}, {run['policy']}"))
    return charts


def relaxed(summary: Summary) -> list[Markup]:
    """Share of the items whose updates give way, a chart per policy whose periods adapt."""
    charts = []
    for run in (run for run in summary["runs"] if run["updates"] is not None):
        shares = run["updates"]["relaxed_share_by_second"]
        if all(share is None for share in shares):
            continue
        figure, axes = plt.subplots(figsize=SMALL_INCHES)
        values = [float("nan") if share is None else 100 * share for share in shares]
        axes.plot([second + 0.5 for second in range(len(values))], values, color="#1f6fb2", lw=1.3)
        mark_event(axes, run["event_s"])
        mark_event(axes, run["updates"]["calm_s"])
        axes.set_xlim(0, len(values))
        axes.set_ylim(0, 100)
        axes.set_title(run["policy"], fontsize=10, loc="left")
        axes.set_xlabel(SECONDS)
        axes.set_ylabel("% of items")
        charts.append(svg(figure, f"Items with longer update periods over time, {run['policy']}"))
    return charts


def transactions_bars(summary: Summary) -> Markup:
    """Over the whole measured time, and since the sets were to be where they should be."""
    runs = [run for run in summary["runs"] if run["placement"]][::-1]
    figure, axes = plt.subplots(figsize=(4.2, 0.8 + 0.36 * len(runs)))
    names = [run["policy"] for run in runs]
    settled = [run["placement"]["settled_transactions_per_s"] or 0 for run in runs]
    axes.barh(names, settled, color="#dddddd", label="settled")
    bars = axes.barh(
        names,
        [run["placement"]["transactions_per_s"] for run in runs],
        height=0.5,
        color="#1f6fb2",
        label="whole time",
    )
    axes.bar_label(bars, [f"{run['placement']['transactions_per_s']:,.0f}" for run in runs], padding=3)
    axes.margins(x=0.15)
    axes.set_axisbelow(True)
    axes.grid(False, axis="y")
    axes.set_xlabel("transactions/s")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return svg(figure, "Transactions per second, per policy")


def placed_over_time(summary: Summary, key: str, unit: str, label: str) -> list[Markup]:
    """A chart per policy, all on the same scale; dotted: the first decision, dashed: a reference."""
    runs = [run for run in summary["runs"] if run["placement"]]
    best = {run["policy"]: run["placement"]["transactions_per_s"] for run in runs}.get(BEST)
    reference = {"transactions_per_s": best, "mean_delay_s": summary["sla_seconds"]}.get(key)
    series = {run["policy"]: run["placement"]["series"][key] for run in runs}
    highest = max([v for values in series.values() for v in values if v is not None] + [reference or 0])
    charts = []
    for run in runs:
        values = series[run["policy"]]
        figure, axes = plt.subplots(figsize=SMALL_INCHES)
        times = [second + 0.5 for second in range(len(values))]
        axes.plot(times, [float("nan") if v is None else v for v in values], color="#1f6fb2", lw=1.3)
        if reference is not None:
            axes.axhline(reference, color="#777777", lw=1, ls="--")
        finish(axes, run, len(values), highest, unit)
        charts.append(svg(figure, f"{label}, {run['policy']}"))
    return charts


def sets_over_time(summary: Summary) -> list[Markup]:
    """Number of object sets per primary over time, a chart per policy."""
    charts = []
    for run in (run for run in summary["runs"] if run["placement"]):
        series = run["placement"]["series"]["sets"]
        figure, axes = plt.subplots(figsize=SMALL_INCHES)
        for values, colour in zip(series.values(), itertools.cycle(COLOURS), strict=False):
            axes.plot([s + 0.5 for s in range(len(values))], values, color=colour, lw=1.2)
        seconds, highest = len(next(iter(series.values()))), max(map(max, series.values()))
        finish(axes, run, seconds, highest, "object sets")
        charts.append(svg(figure, f"Object sets per node over time, {run['policy']}"))
    return charts


def finish(axes: Any, run: Run, seconds: int, highest: float, unit: str) -> None:
    mark_event(axes, run["placement"]["first_decision_s"])
    axes.set_xlim(0, seconds)
    axes.set_ylim(0, 1.08 * highest or 1)
    axes.set_title(run["policy"], fontsize=10, loc="left")
    axes.set_xlabel(SECONDS)
    axes.set_ylabel(unit)


def mark_event(axes: Any, event: float | None) -> None:
    if event is not None:
        axes.axvline(event, color="black", lw=0.8, ls=":")


def node_colours(policy: Policy) -> dict[str, str]:
    """Node names in order, with the colour of each in the charts of bound and weight."""
    return coloured(policy.meta["node_capacity_items_per_s"])


def node_names(summary: Summary) -> dict[str, str]:
    """The same for the charts of object sets, whose policies have the same nodes."""
    return coloured(next(run["placement"]["series"]["sets"] for run in summary["runs"] if run["placement"]))


def coloured(names: Iterable[str]) -> dict[str, str]:
    colours = itertools.cycle(COLOURS)
    return {name: matplotlib.colors.to_hex(next(colours)) for name in names}


def control(policy: Policy) -> list[Markup]:
    """Bound, weight, and the reasons the bound changed, per node; none without agents."""
    rows = [row for row in policy.nodes if row["bound"] is not None]
    if not rows:
        return []
    name, event, colours = policy.meta["policy"], policy.meta["event_s"], node_colours(policy)
    mine = {node: [row for row in rows if row["node"] == node] for node in colours}
    charts = []
    for key, unit in (("bound", "bound, items"), ("weight_percent", "weight, %")):
        figure, axes = plt.subplots(figsize=SMALL_INCHES)
        for node, colour in colours.items():
            values = [float("nan") if row[key] is None else row[key] for row in mine[node]]
            axes.plot([row["t_s"] for row in mine[node]], values, color=colour, lw=1.2)
        mark_event(axes, event)
        axes.set_xlim(0, policy.meta["measured_to_s"])
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_title(unit.split(",")[0], fontsize=10, loc="left")
        axes.set_ylabel(unit)
        axes.set_xlabel(SECONDS)
        charts.append(svg(figure, f"{unit.split(',')[0].capitalize()} per node over time, {name}"))
    return [*charts, reasons(mine, colours, policy)]


def reasons(mine: dict[str, list[dict[str, Any]]], colours: dict[str, str], policy: Policy) -> Markup:
    changes = [
        (new["reason"], new["t_s"], node)
        for node, rows in mine.items()
        for old, new in itertools.pairwise(rows)
        if old["bound"] != new["bound"] and new["reason"] and new["t_s"] <= policy.meta["measured_to_s"]
    ]
    names = sorted({reason for reason, _, _ in changes})
    figure, axes = plt.subplots(figsize=(SMALL_INCHES[0], max(SMALL_INCHES[1], 0.6 + 0.22 * len(names))))
    lanes = {node: (i + 0.5) / len(colours) - 0.5 for i, node in enumerate(colours)}
    for node, colour in colours.items():
        dots = [(t, names.index(reason) + 0.7 * lanes[node]) for reason, t, where in changes if where == node]
        axes.scatter(*zip(*dots, strict=True) if dots else ([], []), s=6, color=colour)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, max(0.6, len(names) - 0.4))
    mark_event(axes, policy.meta["event_s"])
    axes.set_xlim(0, policy.meta["measured_to_s"])
    axes.set_xlabel(SECONDS)
    axes.set_title("why the bound changed", fontsize=10, loc="left")
    return svg(figure, f"Why the bound changed, {policy.meta['policy']}")
