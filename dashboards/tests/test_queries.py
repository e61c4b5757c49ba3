"""Every query of every panel, put to a real Prometheus that scraped a real lab run."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from compose.lab.tests.test_lab import needs_programs
from compose.lab.topology import ROOT
from dashboards.tests.built import BUILT, panels, variables

POLICIES = ("lua-fc-hash", "wasm-fc-hash")
# More than two nodes can do: their bounds move, and some is refused.
RUN = ["--quick", "--nodes", "2", "--clients", "700", "--duration", "17", "--observe"]
# At one sample a second, as Grafana chooses it.
RATE_INTERVAL = "5s"
Answer = list[dict[str, Any]]


@dataclass(frozen=True)
class Recorded:
    """A run, and the last moments at which each policy was scraped."""

    url: str
    start: float
    end: float
    last: list[float]

    def get(self, what: str, **words: Any) -> Any:
        query = urllib.parse.urlencode(words, doseq=True)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{what}?{query}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            pytest.fail(f"{words}: {error.read().decode()}")

    def ask(self, expr: str, instant: bool) -> Answer:
        """What a panel gets; as of now is as of the end of a policy."""
        if not instant:
            return self.get("query_range", query=expr, start=self.start, end=self.end, step=1)["result"]
        found: Answer = []
        for at in self.last:
            found += self.get("query", query=expr, time=at)["result"]
        return found

    def filled(self, expr: str, every: dict[str, str]) -> str:
        seconds = f"{math.ceil(self.end - self.start)}s"
        values = {**every, "__rate_interval": RATE_INTERVAL, "__range": seconds}
        return re.sub(r"\$(\w+)", lambda at: values[at[1]], expr)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    directory = tmp_path_factory.mktemp("run")
    command = [sys.executable, "-m", "compose.lab", "run", *RUN, "--policies", " ".join(POLICIES)]
    done = subprocess.run(
        [*command, "--results", str(directory)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    url, stopper = re.search(r"has the run: (\S+) \(to stop it: kill (\d+)\)", done.stdout).groups()
    try:
        empty = Recorded(url, 0, 0, [])
        now = time.time()
        scraped = empty.get("query_range", query="lab_sla_seconds", start=now - 600, end=now, step=1)[
            "result"
        ]
        assert {one["metric"]["policy"] for one in scraped} == set(POLICIES)
        times = [[float(at) for at, _ in one["values"]] for one in scraped]
        # Rates need a few samples, and what is torn down is no longer there.
        last = [moment for series in times for moment in series[-6:-2]]
        # The first look at a sample comes up to a second after it.
        yield Recorded(url, min(map(min, times)) - 1, max(map(max, times)), last)
    finally:
        os.kill(int(stopper), signal.SIGTERM)


def numbers(series: dict[str, Any]) -> Iterator[float]:
    for _, value in series.get("values") or [series["value"]]:
        if not math.isnan(float(value)):
            yield float(value)


@needs_programs
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BUILT)
def test_no_panel_is_empty_or_slow(recorded: Recorded, name: str) -> None:
    every = {one: variable["allValue"] for one, variable in variables(BUILT[name]).items()}
    empty, slow, nameless = [], [], []
    for panel in panels(BUILT[name]):
        for target in panel["targets"]:
            expr = recorded.filled(target["expr"], every)
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


@needs_programs
@pytest.mark.parametrize("name", BUILT)
def test_every_variable_has_values(recorded: Recorded, name: str) -> None:
    every = {one: variable["allValue"] for one, variable in variables(BUILT[name]).items()}
    for one, variable in variables(BUILT[name]).items():
        selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]).groups()
        asked = {"match[]": recorded.filled(selector, every), "start": recorded.start, "end": recorded.end}
        assert recorded.get(f"label/{label}/values", **asked), one


@needs_programs
def test_what_happened_is_marked(recorded: Recorded) -> None:
    marks = {}
    for name, dashboard in BUILT.items():
        for annotation in dashboard.get("annotations", {}).get("list", []):
            every = {one: variable["allValue"] for one, variable in variables(dashboard).items()}
            expr = recorded.filled(annotation["expr"], every)
            marks[name, annotation["name"]] = recorded.ask(expr, instant=False)
    # Nobody reloads a configuration in the lab, and it is too short for most alerts.
    for (_, kind), mark in marks.items():
        if kind in ("Reloads", "Alerts"):
            continue
        assert {one["metric"]["policy"] for one in mark} == set(POLICIES)
        for one in mark:
            for value in numbers(one):
                assert recorded.start <= value / 1000 <= recorded.end
