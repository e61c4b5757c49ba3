"""The charts, as inline SVG."""

import io
import re
from typing import Any

import matplotlib

matplotlib.use("svg")
import itertools

import matplotlib.pyplot as plt

from loadtests.report.records import Policy

plt.rcParams.update(
    {
        "font.size": 9,
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "legend.frameon": False,
    }
)


def svg(figure: Any, label: str) -> str:
    # Ids are hashed with a salt of the chart's own, so that charts on one page do not share them.
    with plt.rc_context({"svg.hashsalt": label}):
        out = io.StringIO()
        figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def timely_bars(summary: dict[str, Any]) -> str:
    runs = summary["runs"][::-1]
    figure, axes = plt.subplots(figsize=(6.4, 0.8 + 0.42 * len(runs)))
    names = [run["policy"] for run in runs]
    axes.barh(names, [r["ideal_items_per_s"] for r in runs], color="#dddddd", label="ideal")
    bars = axes.barh(
        names, [r["timely_items_per_s"] for r in runs], height=0.5, color="#1f6fb2", label="timely"
    )
    axes.bar_label(bars, [f"{r['timely_items_per_s']:,.0f}" for r in runs], padding=3)
    axes.set_xlabel("items/s")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return svg(figure, "Timely throughput per policy against ideal")


def small_multiples(summary: dict[str, Any], key: str, unit: str, label: str) -> str:
    runs, columns = summary["runs"], 2
    lines = -(-len(runs) // columns)
    figure, grid = plt.subplots(
        lines, columns, figsize=(6.8, 1.7 * lines + 0.4), sharex=True, sharey=True, squeeze=False
    )
    for axes, run in zip(grid.flat, runs, strict=False):
        series = run["series"]
        # A value belongs to the second that it was counted in.
        times = [second + 0.5 for second in range(len(series[key]))]
        axes.plot(times, [float("nan") if v is None else v for v in series[key]], color="#1f6fb2", lw=1.3)
        if key == "mean_delay_s":
            axes.axhline(summary["sla_seconds"], color="#c0392b", lw=1, ls="--")
            axes.set_ylim(bottom=0)
        else:
            axes.plot(times, series["ideal_items_per_s"], color="#888888", lw=1, ls="--")
        if run["event_s"] is not None:
            axes.axvline(run["event_s"], color="black", lw=0.7, ls=":")
        axes.set_title(run["policy"], fontsize=9)
    for axes in list(grid.flat)[len(runs) :]:
        axes.set_visible(False)
    figure.supxlabel("seconds since the clients started", fontsize=9)
    figure.supylabel(unit, fontsize=9)
    figure.tight_layout()
    return svg(figure, label)


def control(policy: Policy) -> str | None:
    """Bound and weight of each node, and the reasons the bound changed; None without agents."""
    rows = [row for row in policy.nodes if row["bound"] is not None]
    if not rows:
        return None
    reasons = sorted({row["reason"] for row in rows if row["reason"]})
    figure, (bound, weight, why) = plt.subplots(
        3,
        1,
        figsize=(6.8, 4.4 + 0.16 * len(reasons)),
        sharex=True,
        height_ratios=[2, 2, 0.4 + 0.25 * len(reasons)],
    )
    for i, node in enumerate(sorted({row["node"] for row in rows})):
        mine = [row for row in rows if row["node"] == node]
        times = [row["t_s"] for row in mine]
        bound.plot(times, [row["bound"] for row in mine], label=node, color=f"C{i}", lw=1.2)
        weights = [float("nan") if r["weight_percent"] is None else r["weight_percent"] for r in mine]
        weight.plot(times, weights, color=f"C{i}", lw=1.2)
        changes = [
            new for old, new in itertools.pairwise(mine) if old["bound"] != new["bound"] and new["reason"]
        ]
        marks = [reasons.index(row["reason"]) + i * 0.12 - 0.24 for row in changes]
        why.scatter([row["t_s"] for row in changes], marks, s=5, color=f"C{i}")
    bound.set_ylabel("bound, items")
    weight.set_ylabel("weight, %")
    why.set_yticks(range(len(reasons)), reasons)
    why.set_ylim(-0.6, max(0.6, len(reasons) - 0.4))
    why.set_xlabel("seconds since the clients started")
    for axes in (bound, weight, why):
        if policy.meta["event_s"] is not None:
            axes.axvline(policy.meta["event_s"], color="black", lw=0.7, ls=":")
    bound.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=5, fontsize=8)
    figure.tight_layout()
    return svg(figure, f"Bound and weight per node, {policy.meta['policy']}")
