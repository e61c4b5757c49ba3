"""report.html: one file, nothing fetched."""

from html import escape
from typing import Any

from loadtests.report import charts, table
from loadtests.report.criteria import Criterion
from loadtests.report.records import Policy

STYLE = """
body{font:16px/1.45 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem;color:#222;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}svg{width:100%;height:auto;display:block}
figure{margin:0 0 1.5rem}.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem}
th,td{padding:.25rem .5rem;border-bottom:1px solid #ddd;text-align:right;vertical-align:bottom}
td{white-space:nowrap}th:first-child,td:first-child{text-align:left}.FAIL{color:#b00020;font-weight:600}
@media print{@page{size:A4;margin:12mm}body{font-size:10pt;max-width:none;padding:0}
.wide{overflow:visible}table{font-size:6.6pt}th,td{padding:1pt 2pt}
figure,tr{break-inside:avoid}h2{break-after:avoid}}
"""
HOW = """<p>Closed-loop clients send, wait for the answer and wait again; all times are taken at the client.
A query is timely if it was answered within the SLA. Refused queries are counted apart and have no delay.
Ideal is, second by second, the smaller of the items offered (refused ones included) and the summed capacity
of the nodes that live. Throughput goes by the second in which the answer came, delays by the time of sending.
Overshoot is the highest mean delay of any second after the event; settling ends with the last second whose
mean is above the SLA. Policies ran one after the other on the same seed.</p>"""


def render(summary: dict[str, Any], policies: list[Policy], checks: list[Criterion]) -> str:
    title = f"Plimsoll lab: {summary['scenario']}"
    head = "".join(f"<th>{escape(h)}</th>" for h in table.HEADINGS)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(c)}</td>" for c in line) + "</tr>" for line in table.cells(summary)
    )
    parts = [
        f"<h1>{escape(title)}</h1><p>SLA {summary['sla_seconds']:g} s, seed {escape(str(summary['seed']))}, "
        f"{escape(str(summary['clients']))} clients, {escape(str(summary['nodes']))} nodes"
        f"{', quick run' if summary['quick'] else ''}.</p>",
        f"<figure>{charts.timely_bars(summary)}</figure>",
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>',
    ]
    if checks:
        lines = "".join(
            f'<li class="{"pass" if c.passed else "FAIL"}">{escape(c.line())}</li>' for c in checks
        )
        parts.append(f"<h2>Targets</h2><ul>{lines}</ul>")
    parts.append("<h2>Timely items/s over time (dashed: ideal; dotted: the event)</h2><figure>")
    parts.append(charts.small_multiples(summary, "timely_items_per_s", "items/s", "Timely items over time"))
    parts.append("</figure><h2>Mean delay of answered queries (dashed: the SLA)</h2><figure>")
    parts.append(charts.small_multiples(summary, "mean_delay_s", "seconds", "Delay over time"))
    parts.append("</figure>")
    for policy in policies:
        if chart := charts.control(policy):
            name = escape(policy.meta["policy"])
            parts.append(f"<h2>{name}: bound, weight and why the bound changed</h2><figure>{chart}</figure>")
    machine = "".join(f"<li>{escape(k)}: {escape(str(v))}</li>" for k, v in summary["machine"].items())
    used = "; ".join(
        f"{escape(r['policy'])} {table.show(r['generator_cpu_share'], '.2f')} core, "
        f"{table.show(r['generator_lag_s'], '.3f')} s"
        for r in summary["runs"]
    )
    parts.append(f"<h2>How measured</h2>{HOW}<p>The generator's CPU and 99th percentile of lag: {used}. ")
    parts.append(f"A run is marked as limited by the generator at {escape(summary['generator_rule'])}.</p>")
    parts.append(f"<h2>Machine</h2><ul>{machine}</ul>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )
