"""The README's picture of a run, from its summary: timely items/s per policy, delay over time for a few.

Written by hand rather than plotted: the same summary gives the same bytes whatever is installed.
"""

from collections.abc import Iterator
from html import escape
from typing import Any

from loadtests.report.schema import Run, Summary

SHOWN = {"rr": "#d9822b", "leastconn": "#3d444d", "fc-prop": "#1f6fb2"}
# A line that may coincide with another one is dashed.
DASHES = {"#3d444d": "5 7"}
# Without any of those, the first few that there are.
OTHERS = ("#1f6fb2", "#d9822b", "#3d444d")
WIDTH, MARGIN, NAMES, BAR = 560, 18, 138, 26
# Bars end here, so that the longest leaves room for what it says.
BARS_END = WIDTH - 150
PLOT_LEFT, PLOT_HEIGHT = 66, 190
INK, FAINT, GRID, SLA = "#24292f", "#57606a", "#d8dee4", "#c0392b"


def text(x: float, y: float, words: str, size: int = 14, anchor: str = "start", fill: str = INK) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} fill="{fill}">{escape(words)}</text>'


def dashed(dashes: str | None) -> str:
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def line(x1: float, y1: float, x2: float, y2: float, colour: str, dashes: str = "", width: float = 1) -> str:
    pen = f'stroke="{colour}" stroke-width="{width:g}"{dashed(dashes)}'
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" {pen}/>'


def rectangle(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}" fill="{fill}"/>'


def step(highest: float, parts: int) -> float:
    """A round step of which about `parts` reach `highest`."""
    power = 1e-3
    while power * 10 * parts <= highest:
        power *= 10
    return next(round(power * f, 6) for f in (1, 2, 5, 10) if power * f * parts >= highest)


def bars(runs: list[Run], top: float) -> Iterator[str]:
    longest = max(*(run["ideal_items_per_s"] for run in runs), *(r["timely_items_per_s"] for r in runs), 1.0)
    scale = (BARS_END - NAMES) / longest
    for number, run in enumerate(runs):
        y = top + number * BAR
        timely, ideal = run["timely_items_per_s"], run["ideal_items_per_s"]
        yield text(NAMES - 8, y + 16, run["policy"], anchor="end")
        yield rectangle(NAMES, y + 3, ideal * scale, BAR - 8, "#dfe3e8")
        yield rectangle(NAMES, y + 6, timely * scale, BAR - 14, "#1f6fb2")
        share = "" if run["timely_of_ideal"] is None else f" · {run['timely_of_ideal']:.1%}"
        yield text(max(ideal, timely) * scale + NAMES + 6, y + 16, f"{timely:,.0f}{share}")


def chosen(runs: list[Run]) -> dict[str, Run]:
    """Runs to show the delay of, by colour."""
    found = {SHOWN[run["policy"]]: run for run in runs if run["policy"] in SHOWN}
    return found or dict(zip(OTHERS, runs, strict=False))


def curve(series: list[float | None], x: Any, y: Any, colour: str) -> str:
    """A gap where no query was answered."""
    path, pen = "", "M"
    for second, value in enumerate(series):
        if value is None:
            pen = "M"
            continue
        # A value is that of a whole second; round caps show one that stands alone.
        path += f"{pen}{x(second + 0.5):.1f} {y(value):.1f}{'h0' if pen == 'M' else ''}"
        pen = "L"
    return (
        f'<path d="{path}" stroke="{colour}" stroke-width="2.4"{dashed(DASHES.get(colour))}/>' if path else ""
    )


def delays(summary: Summary, top: float) -> Iterator[str]:
    runs, sla = chosen(summary["runs"]), summary["sla_seconds"]
    values = [v for run in runs.values() for v in run["series"]["mean_delay_s"] if v is not None]
    seconds = max(len(run["series"]["mean_delay_s"]) for run in runs.values())
    highest, bottom, right = max([*values, sla]) * 1.1, top + PLOT_HEIGHT, WIDTH - MARGIN

    def x(second: float) -> float:
        return PLOT_LEFT + second / seconds * (right - PLOT_LEFT)

    def y(delay: float) -> float:
        return bottom - delay / highest * PLOT_HEIGHT

    yield '<g fill="none" stroke-linecap="round" stroke-linejoin="round">'
    labels = []
    across, up = step(seconds, 8), step(highest, 4)
    for number in range(int(highest / up) + 1):
        yield line(PLOT_LEFT, y(number * up), right, y(number * up), GRID)
        labels.append(text(PLOT_LEFT - 8, y(number * up) + 4.5, f"{number * up:g} s", 14, "end", FAINT))
    for number in range(int(seconds / across) + 1):
        at = x(number * across)
        labels.append(text(at, bottom + 18, f"{number * across:g}", 14, "middle", FAINT))
    events = {run["event_s"]: run["event"] for run in runs.values() if run["event_s"] is not None}
    for event in events:
        yield line(x(event), top, x(event), bottom, FAINT, "2 4")
    yield line(PLOT_LEFT, y(sla), right, y(sla), SLA, "7 5", 1.6)
    for colour, run in runs.items():
        yield curve(run["series"]["mean_delay_s"], x, y, colour)
    yield "</g>"
    yield from labels
    caption = "seconds since the clients started" + ("; dotted: the event" if events else "")
    yield text(WIDTH / 2, bottom + 38, caption, 14, "middle", FAINT)
    at = float(PLOT_LEFT)
    for name, colour in [*((run["policy"], c) for c, run in runs.items()), (f"SLA {sla:g} s", SLA)]:
        dashes = "7 5" if colour == SLA else DASHES.get(colour, "")
        yield line(at, top - 19, at + 24, top - 19, colour, dashes, 2.4)
        yield text(at + 30, top - 14, name)
        at += 30 + 8 * len(name) + 16


def render(summary: Summary) -> str:
    runs = summary["runs"]
    bars_top = 90
    delay_title = bars_top + BAR * len(runs) + 34
    height = delay_title + 44 + PLOT_HEIGHT + 50
    title = f"Timely items/s, {summary['scenario']} scenario"
    nodes = f"{summary['nodes']} nodes on {summary['database']}"
    facts = f"{summary['clients']:,} clients, {nodes}, SLA {summary['sla_seconds']:g} s"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif" '
        'role="img">',
        f"<title>{escape(title)}, and the mean delay over time</title>",
        # A ground of its own: dark text is legible on dark pages too.
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        text(MARGIN, 34, title, 18),
        text(MARGIN, 56, facts, fill=FAINT),
        rectangle(MARGIN, 68, 12, 10, "#1f6fb2"),
        text(MARGIN + 18, 78, "timely, and its share of the ideal", fill=FAINT),
        rectangle(MARGIN + 258, 68, 12, 10, "#dfe3e8"),
        text(MARGIN + 276, 78, "ideal", fill=FAINT),
        *bars(runs, bars_top),
        text(MARGIN, delay_title, "Mean delay of answered queries", 18),
        *delays(summary, delay_title + 44),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"
