"""Every query of every panel, put to a real Prometheus that scraped a real lab run."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dashboards.preview.recording import Prometheus, Span, every, record
from dashboards.tests.built import BUILT
from dashboards.tests.recorded import Recorded, assert_chosen, assert_shown, numbers
from tests.harness import ROOT
from tests.harness.programs import needs_lab

POLICIES = ("lua-fc-hash", "wasm-fc-hash", "fc-prop-updates")
# More than two nodes can do: their bounds move, and some is refused.
RUN = ["--nodes", "2", "--clients", "700", "--duration", "17", "--policies", " ".join(POLICIES)]
# Seconds before the end of a policy's clients: rates need a few samples of what has happened.
LAST_SECONDS = (4, 3, 2, 1)
# All object sets begin at one node of two.
PLACEMENT = ["--nodes", "2", "--duration", "25", "--scenario", "placement", "--policies", "placement"]
# All but those of what the recorded runs do not have: test_gathers.py has them.
OF_THE_LAB = [name for name in BUILT if name != "gathers"]


@contextmanager
def record_of(run: list[str], directory: Path) -> Iterator[Recorded]:
    command = [sys.executable, "-m", "compose.lab", "run", "--quick", "--observe", *run]
    done = subprocess.run(
        [*command, "--results", str(directory)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    url, stopper = re.search(r"has the run: (\S+) \(to stop it: kill (\d+)\)", done.stdout).groups()
    try:
        prometheus = Prometheus(url)
        scraped = prometheus.get("query", query="lab_sla_seconds[10m]")["result"]
        assert {one["metric"]["policy"] for one in scraped} == set(run[-1].split())
        times = [float(at) for one in scraped for at, _ in one["values"]]
        started = prometheus.get(
            "query", query='last_over_time(lab_event_timestamp_seconds{event="start"}[10m])'
        )
        duration = float(run[run.index("--duration") + 1])
        ends = sorted(float(one["value"][1]) + duration for one in started["result"])
        last = [end - seconds for end in ends for seconds in LAST_SECONDS]
        # The first look at a sample comes up to a second after it.
        yield Recorded(prometheus, Span(min(times) - 1, max(times)), last)
    finally:
        os.kill(int(stopper), signal.SIGTERM)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with record_of(RUN, tmp_path_factory.mktemp("run")) as made:
        yield made


@pytest.fixture(scope="module")
def recorded_placement(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with record_of(PLACEMENT, tmp_path_factory.mktemp("placement")) as made:
        yield made


@pytest.fixture
def recorded_for(name: str, request: pytest.FixtureRequest) -> Recorded:
    """The run that has what a dashboard asks for."""
    return request.getfixturevalue("recorded_placement" if name == "placement" else "recorded")


@needs_lab
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", OF_THE_LAB)
def test_no_panel_is_empty_or_slow(recorded_for: Recorded, name: str) -> None:
    assert_shown(recorded_for, name)


@needs_lab
@pytest.mark.parametrize("name", OF_THE_LAB)
def test_every_variable_has_values(recorded_for: Recorded, name: str) -> None:
    assert_chosen(recorded_for, name)


@needs_lab
def test_events_are_annotated(recorded: Recorded) -> None:
    marks = {}
    for name, dashboard in BUILT.items():
        for annotation in dashboard.get("annotations", {}).get("list", []):
            expr = recorded.span.filled(annotation["expr"], every(dashboard))
            marks[name, annotation["name"]] = recorded.ask(expr, instant=False)
    # Nobody reloads a configuration in the lab, and it is too short for most alerts.
    for (_, kind), mark in marks.items():
        if kind in ("Reloads", "Alerts"):
            continue
        assert {one["metric"]["policy"] for one in mark} == set(POLICIES)
        for one in mark:
            for value in numbers(one):
                assert recorded.span.start <= value / 1000 <= recorded.span.end


@needs_lab
def test_preview_has_panels_and_annotations(recorded: Recorded) -> None:
    # As the first policy ends, while its nodes are still there.
    span = Span(recorded.span.start, recorded.last[len(LAST_SECONDS) - 1])
    made = record(recorded.prometheus, list(BUILT.values()), span, {"instance": "node1"})
    late = next(panel for panel in BUILT["sla"]["panels"] if panel["type"] == "table")
    answers = made.answers["plimsoll-sla"][str(late["id"])]
    assert set(answers) == {target["refId"] for target in late["targets"]}
    assert {one["metric"]["instance"] for one in answers["A"]} == {"node1"}
    assert all(one["value"][0] == span.end for one in answers["A"])
    graph = next(panel for panel in BUILT["lab"]["panels"] if panel["type"] == "timeseries")
    (series,) = made.answers["plimsoll-lab"][str(graph["id"])]["A"]
    assert span.start <= series["values"][0][0] <= series["values"][-1][0] <= span.end
    marks = {mark["name"]: mark for mark in made.marks["plimsoll-lab"]}
    assert set(marks) == {f"{POLICIES[0]} starts", f"{POLICIES[0]}: burst"}
    assert all(span.start <= mark["from"] == mark["to"] <= span.end for mark in marks.values())
