"""A Prometheus that recorded a run, and what a dashboard shows of it."""

import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dashboards.preview.recording import Answer, Prometheus, Span, every
from dashboards.tests.built import BUILT, panels, variables

# Metric of HAProxies with pushed updates, which the lab lacks and test_pushed_updates.py has.
PUSHED = "plimsoll_pushed_update"


@dataclass(frozen=True)
class Recorded:
    """A run, and the last moments of each policy's clients."""

    prometheus: Prometheus
    span: Span
    last: list[float]

    def ask(self, expr: str, instant: bool) -> Answer:
        """Query result of a panel; instant queries are evaluated at the end of a policy."""
        if not instant:
            return self.prometheus.over(expr, self.span)
        return [series for at in self.last for series in self.prometheus.at(expr, at)]


def numbers(series: dict[str, Any]) -> Iterator[float]:
    for _, value in series.get("values") or [series["value"]]:
        if not math.isnan(float(value)):
            yield float(value)


def assert_shown(recorded: Recorded, name: str) -> None:
    """No panel of a dashboard is empty or slow, or has series without a name."""
    values = every(BUILT[name])
    empty, slow, nameless = [], [], []
    for panel in panels(BUILT[name]):
        for target in (one for one in panel["targets"] if PUSHED not in one["expr"]):
            expr = recorded.span.filled(target["expr"], values)
            began = time.monotonic()
            found = recorded.ask(expr, target.get("instant", False))
            took = time.monotonic() - began
            if not any(True for series in found for _ in numbers(series)):
                empty.append(f"{panel['title']}: {expr}")
            if took > 1:
                slow.append(f"{panel['title']}: {took:.2f} s: {expr}")
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                if any(label not in series["metric"] for series in found):
                    nameless.append(f"{panel['title']}: {label}: {expr}")
    assert empty == []
    assert slow == []
    assert nameless == []


def choices(prometheus: Prometheus, span: Span, name: str, variable: str) -> list[str]:
    """The values of a dashboard's variable."""
    query = variables(BUILT[name])[variable]["query"]
    selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", query).groups()
    query = {"match[]": span.filled(selector, every(BUILT[name])), "start": span.start, "end": span.end}
    return prometheus.get(f"label/{label}/values", **query)


def assert_chosen(recorded: Recorded, name: str) -> None:
    """Every variable of a dashboard has values."""
    for one, variable in variables(BUILT[name]).items():
        if PUSHED not in variable["query"]:
            assert choices(recorded.prometheus, recorded.span, name, one), one
