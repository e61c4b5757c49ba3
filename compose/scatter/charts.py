"""The charts, after the paper's figures 4 to 8."""

from typing import Any

import matplotlib.pyplot as plt
from markupsafe import Markup

from compose.scatter.figures import AT, OVERALL, PIECES, SINGLE
from loadtests.report.charts import SMALL_INCHES, svg


def _names(mode: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(found["partitioning"] for found in mode["lines"]))


def _of(mode: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [found for found in mode["lines"] if found["partitioning"] == name]


def speedups(mode: dict[str, Any]) -> Markup:
    """Figure 4."""
    figure, axes = plt.subplots(figsize=SMALL_INCHES)
    for name in _names(mode):
        if name == SINGLE:
            continue
        found = _of(mode, name)
        middle = [one["speedup"]["median"] for one in found]
        below = [max(0.0, one["speedup"]["median"] - one["speedup"]["low"]) for one in found]
        above = [max(0.0, one["speedup"]["high"] - one["speedup"]["median"]) for one in found]
        axes.errorbar(
            [one["distance"] for one in found], middle, (below, above), marker="o", ms=3, label=name
        )
    axes.plot([AT], [OVERALL], "kx", label="paper, horizontal")
    axes.axhline(1, color="#777777", lw=1, ls="--")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("R")
    axes.set_title("speed-up (1)", fontsize=10, loc="left")
    axes.legend(fontsize=7)
    return svg(figure, f"Speed-up by R, {mode['name']}")


def pieces(mode: dict[str, Any]) -> list[Markup]:
    """Figures 3, and 6 to 8: what the time goes for."""
    charts = []
    for name in _names(mode):
        found = _of(mode, name)
        figure, axes = plt.subplots(figsize=SMALL_INCHES)
        labels, bottom = [f"{one['distance']:g}" for one in found], [0.0] * len(found)
        for piece in PIECES:
            heights = [1000 * one[f"{piece}_s"]["median"] for one in found]
            axes.bar(labels, heights, bottom=bottom, label=piece)
            bottom = [low + high for low, high in zip(bottom, heights, strict=True)]
        axes.set_title(name, fontsize=10, loc="left")
        axes.set_xlabel("R")
        axes.set_ylabel("ms")
        axes.legend(fontsize=7)
        charts.append(svg(figure, f"Time by R, {name}, {mode['name']}"))
    return charts


def by_database(mode: dict[str, Any]) -> Markup:
    """Figure 5."""
    figure, axes = plt.subplots(figsize=SMALL_INCHES)
    names = [name for name in _names(mode) if name != SINGLE]
    for place, name in enumerate(names):
        found = next(one for one in _of(mode, name) if one["distance"] == AT)
        times = [1000 * seconds for seconds in found["query_s_by_database"].values()]
        at = [number + (place - 1) * 0.27 for number in range(1, len(times) + 1)]
        axes.bar(at, times, width=0.25, label=name)
    axes.set_title(f"each database's own time at R {AT}", fontsize=10, loc="left")
    axes.set_xlabel("node")
    axes.set_ylabel("ms")
    axes.legend(fontsize=7)
    return svg(figure, f"Each database's own time, {mode['name']}")
