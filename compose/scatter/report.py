"""The table, the targets, and report.html."""

from html import escape
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
HOW = """<p>One client asks one query at a time through one <code>plimsoll gather</code>, which asks the
agents of eight nodes at once and merges their answers by similarity. Medians, in brackets the quartiles.
<i>Speed-up</i> is the paper's (1), the total of one database over this one's; (2) takes only the slowest
database's own time as faster. <i>Dissemination</i> lasts until the first database begins the query,
<i>databases</i> from then until the last one has sent its last row, <i>aggregation</i> from then until the
client has all; <i>client</i> is a request to the aggregator that asks nothing. <i>Pages</i>: 8 KiB pages
that a query reads into PostgreSQL's buffers.</p>"""


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


def page(summary: dict[str, Any]) -> str:
    # Matplotlib takes a second to load.
    from compose.scatter import charts
    from loadtests.report.page import STYLE, grid, wide

    title = "Plimsoll: one query to eight databases"
    machine = "".join(f"<li>{escape(k)}: {escape(str(v))}</li>" for k, v in summary["machine"].items())
    checks = "".join(f'<li class="{text.split()[0]}">{escape(text)}</li>' for text in summary["targets"])
    parts = [
        f"<h1>{title}</h1><p>{summary['rows']:,} synthetic molecules, seed {summary['seed']}, "
        f"{summary['repeats']} repeats{', quick run' if summary['quick'] else ''}; the paper has "
        f"{sum(SIZES):,} from PubChem, and {HITS[AT]:,} hits at R {AT}.</p><ul>{checks}</ul>",
    ]
    for mode in summary["modes"]:
        table = wide(list(HEADINGS), [cells(found, mode["pages"]) for found in mode["lines"]])
        drawn = [charts.speedups(mode), *charts.pieces(mode), charts.by_database(mode)]
        parts += [f"<h2>{escape(mode['name'])}: {escape(mode['what'])}</h2>", table, grid(drawn)]
    loaded = [
        [
            name,
            str(one["parts"]),
            ", ".join(f"{rows:,}" for rows in one["rows_by_node"].values()),
            one["loaded"],
        ]
        for name, one in summary["loaded"].items()
    ]
    parts.append("<h2>Loading</h2>" + wide(["partitioning", "parts", "rows of each node", "loaded"], loaded))
    parts.append(f"<h2>How measured</h2>{HOW}<p>Started {escape(summary['started'])}.</p>")
    parts.append(f"<h2>Machine</h2><ul>{machine}</ul>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )
