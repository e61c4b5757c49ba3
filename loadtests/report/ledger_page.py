"""report.html of scenario master-failover: what was answered each second, and how far behind reads were."""

from collections import Counter

import matplotlib.pyplot as plt
from markupsafe import Markup

from loadtests.report import html
from loadtests.report.charts import SECONDS, svg
from loadtests.report.criteria import Criterion
from loadtests.report.ledger import Events, Request, behind

INCHES = (7.0, 2.2)
WRITES = "writes acknowledged"


def chart(lines: dict[str, dict[int, float]], events: Events, label: str) -> Markup:
    figure, axes = plt.subplots(figsize=INCHES)
    seconds = range(int(events.ended - events.began))
    for name, values in lines.items():
        axes.plot(seconds, [values.get(second, 0.0) for second in seconds], label=name, linewidth=1.2)
    happened = {
        f"{events.standby} held up": events.paused,
        "goes on": events.resumed,
        f"{events.primary} killed": events.killed,
        "started again": events.back,
    }
    for words, at in happened.items():
        axes.axvline(at - events.began, color="#57606a", linestyle=":")
        place = axes.get_xaxis_transform()
        axes.text(at - events.began + 0.5, 0.97, words, transform=place, fontsize=7, va="top")
    axes.set(xlabel=SECONDS, ylabel=label, ylim=(0, None))
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    return svg(figure, label)


def render(requests: list[Request], events: Events, checks: list[Criterion]) -> str:
    answered: dict[str, Counter[int]] = {WRITES: Counter()}
    for request in (r for r in requests if r.is_well):
        name = f"reads, {request.node}" if request.kind == "read" else WRITES
        answered.setdefault(name, Counter())[int(request.done - events.began)] += 1
    late: dict[str, dict[int, float]] = {}
    for read, seconds in behind(requests):
        most = late.setdefault(f"reads, {read.node}", {})
        second = int(read.done - events.began)
        most[second] = max(seconds, most.get(second, 0.0))
    charts = [
        chart(dict(sorted(answered.items())), events, "a second"),
        chart(dict(sorted(late.items())), events, "s behind, at most"),
    ]
    lines = [check.line() for check in checks]
    return html.template(html.SHARED / "ledger.html").render(checks=lines, charts=charts)
