"""report.html: one file, nothing fetched."""

from html import escape
from typing import Any

from loadtests.report import charts, phases, table
from loadtests.report.criteria import Criterion
from loadtests.report.records import Policy

STYLE = """
body{font:16px/1.45 system-ui,sans-serif;max-width:64rem;margin:0 auto;padding:1rem;color:#222;background:#fff;
overflow-wrap:anywhere}h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2rem 0 .5rem}
svg{width:100%;height:auto;display:block}figure{margin:0 0 1.5rem}.bars{max-width:38rem}
.grid{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,19rem),1fr))}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;overflow-wrap:normal}
th,td{padding:.25rem .45rem;border-bottom:1px solid #ddd;text-align:right;vertical-align:bottom}
td{white-space:nowrap}th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:#fff}
ul{padding-left:1.2rem;font-size:.9rem}.FAIL{color:#b00020;font-weight:600}.key span{display:inline-block;margin-right:1rem}
.key i{display:inline-block;width:.8em;height:.8em;margin-right:.3em;print-color-adjust:exact;
-webkit-print-color-adjust:exact}
@media print{@page{size:A4;margin:12mm}body{font-size:10pt;max-width:none;padding:0}
.bars{max-width:24rem}.grid{grid-template-columns:1fr 1fr}.wide{overflow:visible}table{font-size:7pt;width:100%}
th,td{padding:1.5pt 2pt}th:first-child,td:first-child{position:static}
svg,figure.bars,tr,li{break-inside:avoid}h2{break-after:avoid}}
"""
HOW = """<p>Closed-loop clients send, wait for the answer and wait again; all times are taken at the client.
A query is timely if it was answered within the SLA. Refused queries are counted apart and have no delay.
Ideal is, second by second, the smaller of the items offered (refused ones included) and the summed capacity
of the nodes that live. Throughput and the curves go by the second in which the answer came, mean and
percentiles of the delay by the time of sending. Overshoot is the highest mean delay of any second after the
event; settling ends with the last second whose mean is above the SLA. Policies ran one after the other on the
same seed.</p>"""


def grid(drawn: list[str]) -> str:
    return f'<figure class="grid">{"".join(drawn)}</figure>'


def control(policy: Policy) -> str:
    """Nothing for a policy without agents."""
    drawn = charts.control(policy)
    if not drawn:
        return ""
    key = "".join(
        f'<span><i style="background:{colour}"></i>{escape(node)}</span>'
        for node, colour in charts.node_colours(policy).items()
    )
    heading = f"<h2>{escape(policy.meta['policy'])}: bound and weight per node over time</h2>"
    return f'{heading}<p class="key">{key}</p>{grid(drawn)}'


def wide(headings: list[str], lines: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(h).replace('5 s', '5&nbsp;s')}</th>" for h in headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in line) + "</tr>" for line in lines)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def bars(summary: dict[str, Any]) -> list[str]:
    if any(run["placement"] for run in summary["runs"]):
        heading, drawn = "Transactions per second", charts.transactions_bars(summary)
    else:
        heading, drawn = "Timely throughput against ideal", charts.timely_bars(summary)
    return [f'<h2>{heading}</h2><figure class="bars">{drawn}</figure>']


def curves(summary: dict[str, Any]) -> list[str]:
    if any(run["placement"] for run in summary["runs"]):
        done = charts.placed_over_time(
            summary, "transactions_per_s", "transactions/s", "Transactions over time"
        )
        delay = charts.placed_over_time(summary, "mean_delay_s", "seconds", "Mean delay over time")
        key = "".join(
            f'<span><i style="background:{colour}"></i>{escape(node)}</span>'
            for node, colour in charts.node_names(summary).items()
        )
        return [
            f"<h2>Transactions/s over time (dashed: the best fixed placement; dotted: the first decision)</h2>"
            f"{grid(done)}",
            f'<h2>Object sets per node over time</h2><p class="key">{key}</p>'
            f"{grid(charts.sets_over_time(summary))}",
            f"<h2>Mean delay of answered transactions (dashed: the SLA)</h2>{grid(delay)}",
        ]
    if any(run["phases"] for run in summary["runs"]):
        timely = charts.over_time(summary, "timely_items_per_s", "mean requests/s", "Timely work over time")
        delay = charts.over_time(summary, "p95_delay_s", "seconds", "95th percentile of delay over time")
        return [
            "<h2>Timely work over time, in mean requests/s (dashed: ideal; dotted: the load changes)</h2>"
            + grid(timely),
            "<h2>95th percentile of what was served in a second (dashed: the SLA)</h2>" + grid(delay),
        ]
    timely = charts.over_time(summary, "timely_items_per_s", "items/s", "Timely items over time")
    delay = charts.over_time(summary, "mean_delay_s", "seconds", "Mean delay over time")
    return [
        f"<h2>Timely items/s over time (dashed: ideal)</h2>{grid(timely)}",
        f"<h2>Mean delay of answered queries (dashed: the SLA)</h2>{grid(delay)}",
    ]


def subject(summary: dict[str, Any]) -> str:
    """What was asked for work, and by whom."""
    if app := summary["runs"][0]["app"]:
        return f"{summary['nodes']} nodes of application {escape(app)}; {phases.capacity(summary)}"
    return f"{summary['clients']} clients, {summary['nodes']} nodes on {escape(summary['database'])}"


def render(summary: dict[str, Any], policies: list[Policy], checks: list[Criterion]) -> str:
    title = f"Plimsoll lab: {summary['scenario']}"
    event = next((run["event"] for run in summary["runs"] if run["event"] is not None), None)
    happened = "" if event is None else f" The event (dotted in the charts): {escape(event)}."
    parts = [
        f"<h1>{escape(title)}</h1><p>SLA {summary['sla_seconds']:g} s, seed {summary['seed']}, "
        f"{subject(summary)}{', quick run' if summary['quick'] else ''}.{happened}</p>",
        *bars(summary),
        wide(*table.chosen(summary)),
    ]
    if more := table.beside(summary):
        parts.append(wide(*more))
    if bests := phases.best_of_groups(summary):
        parts.append(f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in bests)}</ul>")
    if checks:
        lines = "".join(
            f'<li class="{"pass" if c.passed else "FAIL"}">{escape(c.line())}</li>' for c in checks
        )
        parts.append(f"<h2>Targets</h2><ul>{lines}</ul>")
    parts += curves(summary)
    if relaxed := charts.relaxed(summary):
        parts.append(f"<h2>Items with longer update periods than their own</h2>{grid(relaxed)}")
    parts += map(control, policies)
    machine = "".join(f"<li>{escape(k)}: {escape(str(v))}</li>" for k, v in summary["machine"].items())
    used = "; ".join(
        f"{escape(r['policy'])} {r['generator_cpu_share']:.2f} core, {r['generator_lag_s']:.3f} s"
        for r in summary["runs"]
    )
    how = phases.HOW if summary["capacity"] else HOW
    parts.append(f"<h2>How measured</h2>{how}<p>The generator's CPU and 99th percentile of lag: {used}. ")
    parts.append(f"A run is marked as limited by the generator at {escape(summary['generator_rule'])}.</p>")
    parts.append(f"<p>Started {escape(summary['started'])}: <code>{escape(summary['command'])}</code></p>")
    parts.append(f"<h2>Machine</h2><ul>{machine}</ul>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )
