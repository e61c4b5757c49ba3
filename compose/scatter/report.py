"""The table, the targets, and report.html."""

from pathlib import Path
from typing import Any

from compose.scatter.data import HITS, SIZES
from compose.scatter.figures import AT, PIECES

HEADINGS = (
    "R",
    "partitioning",
    "rows",
    "MB",
    "total, ms",
    "speed-up",
    "speed-up (2)",
    "slowest query, ms",
    "client",
    "dissemination",
    "databases",
    "aggregation",
    "pages",
)


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.1f}" if seconds < 0.1 else f"{1000 * seconds:,.0f}"


def spread(figures: dict[str, float]) -> str:
    return (
        f"{milliseconds(figures['median'])} [{milliseconds(figures['low'])}, {milliseconds(figures['high'])}]"
    )


def cells(found: dict[str, Any], pages: dict[str, dict[str, int]]) -> list[str]:
    faster = found["speedup"]
    return [
        f"{found['distance']:g}",
        found["partitioning"],
        f"{found['rows']:,}",
        f"{found['bytes'] / 1e6:.2f}",
        spread(found["total_s"]),
        f"{faster['median']:.2f} [{faster['low']:.2f}, {faster['high']:.2f}]",
        f"{found['speedup_2']:.2f}",
        milliseconds(found["query_s"]["median"]),
        *(milliseconds(found[f"{piece}_s"]["median"]) for piece in PIECES),
        f"{pages[found['partitioning']][str(found['distance'])]:,}",
    ]


def terminal(summary: dict[str, Any]) -> str:
    """The tables of all modes as Markdown, which a terminal shows well enough."""
    out = []
    for mode in summary["modes"]:
        table = [list(HEADINGS), *(cells(found, mode["pages"]) for found in mode["lines"])]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        rows = [
            "| " + " | ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) + " |" for row in table
        ]
        rows.insert(1, "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
        out += [f"{mode['name']}: {mode['what']}", "", *rows, ""]
    return "\n".join(out + summary["targets"])


def loaded(summary: dict[str, Any]) -> list[list[str]]:
    """Distribution of each partitioning over the nodes."""
    return [
        [
            name,
            str(one["parts"]),
            ", ".join(f"{rows:,}" for rows in one["rows_by_node"].values()),
            one["loaded"],
        ]
        for name, one in summary["loaded"].items()
    ]


def page(summary: dict[str, Any]) -> str:
    # Matplotlib takes a second to load.
    from compose.scatter import charts
    from loadtests.report import html

    modes = [
        {
            "name": mode["name"],
            "what": mode["what"],
            "lines": [cells(found, mode["pages"]) for found in mode["lines"]],
            "charts": [charts.speedups(mode), *charts.pieces(mode), charts.by_database(mode)],
        }
        for mode in summary["modes"]
    ]
    return html.template(Path(__file__).with_name("report.html")).render(
        summary=summary,
        paper={"rows": sum(SIZES), "hits": HITS[AT], "distance": AT},
        modes=modes,
        headings=HEADINGS,
        loaded=loaded(summary),
    )
