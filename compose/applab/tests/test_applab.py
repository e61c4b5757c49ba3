"""The lab on a real application as a user runs it, and what is left of it."""

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from compose.apps import catalog
from compose.lab.topology import ROOT
from tests.harness import programs
from tests.harness.eventually import eventually
from tests.harness.process import MARK, marked

COMMAND = [sys.executable, "-m", "compose.applab", "--app", "go", "--quick"]


needs_programs = programs.needs(
    programs.agent, programs.k6, programs.haproxy, lambda: catalog.installed(catalog.TOOLS / "bin" / "go")
)


@pytest.fixture
def applab(tmp_path):
    """Starts the lab; ends it by force whatever the test did."""
    mark = f"{os.getpid()}-{tmp_path.name}"
    started = []

    def start(*arguments: str) -> tuple[subprocess.Popen, str]:
        process = subprocess.Popen(
            [*COMMAND, "--results", str(tmp_path / "results"), *arguments],
            cwd=ROOT,
            env=os.environ | {MARK: mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process, mark

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def cgroups(process: subprocess.Popen) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"**/plimsoll-{process.pid}-node*"))


def records(directory: Path, policy: str) -> list[dict[str, str]]:
    with gzip.open(directory / policy / "requests.csv.gz", "rt") as file:
        return list(csv.DictReader(file))


@needs_programs
def test_a_short_run_leaves_complete_records(applab, tmp_path):
    process, mark = applab(
        *(
            "--scenario",
            "pause",
            "--load",
            "0.6:2,0.6:1.5,0.6:1",
            "--policies",
            "static-4 fc-prop",
            "--seed",
            "3",
        )
    )
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert not marked(mark)
    assert not cgroups(process)
    latest = tmp_path / "results" / "latest"
    facts = json.loads((latest / "run.json").read_text())
    assert (facts["app"], facts["scenario"], facts["seed"]) == ("go", "pause", 3)
    start = facts["capacity"]["start_per_s"]
    # A quarter of a core does 21 times 11.8 ms of work in a second; two seconds tell it to a tenth. Without a
    # quota a node has two thirds of a core.
    assert all(5 < found < 0.3 / 0.0118 for found in start.values())
    assert facts["capacity"]["end_per_s"].keys() == start.keys() == {"node1", "node2", "node3"}
    summary = json.loads((latest / "summary.json").read_text())
    assert [run["policy"] for run in summary["runs"]] == ["static-4", "fc-prop"]
    planned = 0.6 * sum(start.values()) * 4.5
    for run in summary["runs"]:
        rows = records(latest, run["policy"])
        sent = json.loads((latest / run["policy"] / "k6-summary.json").read_text())
        assert len(rows) == sent["metrics"]["iterations"]["values"]["count"]
        # On a busy machine k6 starts late, and what was due at the end is not sent.
        assert 0.9 * planned < len(rows) < planned + 3
        assert {row["node"] for row in rows if row["outcome"] == "ok"} == {"node1", "node2", "node3"}
        assert [(phase["from_s"], phase["to_s"]) for phase in run["phases"]] == [(0, 2), (2, 3.5), (3.5, 4.5)]
        assert run["phases"][0]["timely_per_s"] > 0.5 * run["phases"][0]["offered_per_s"]
        assert run["app"] == "go"
        assert run["event"] == "node3 stops for 1.5 s"
    # All policies get requests at the same times.
    sent = [[float(row["t_s"]) for row in records(latest, run["policy"])] for run in summary["runs"]]
    gaps = [abs(a - b) for a, b in zip(*sent, strict=False)]
    assert sorted(gaps)[len(gaps) // 2] < 0.1
    with (latest / "fc-prop" / "nodes.csv").open() as file:
        samples = list(csv.DictReader(file))
    assert all(row["bound_jobs"] and row["reason"] for row in samples[3:])
    with gzip.open(latest / "fc-prop" / "agents.jsonl.gz", "rt") as file:
        said = [json.loads(line) for line in file]
    assert len(said) == len(samples)
    assert max(service["finished"] for service in said) > 3
    # A stopped node does no work.
    still = [row for row in samples if 2.2 < float(row["t_s"]) < 3.4]
    assert {row["node"] for row in still if float(row["capacity_items_per_s"]) == 0} == {"node3"}
    assert "best static: 0.6x static-4" in out


@needs_programs
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_however_it_ends_nothing_is_left(applab, how):
    process, mark = applab("--scenario", "kill", "--load", "0.5:1,0.5:60,0.5:1", "--policies", "fc-prop")
    eventually("k6 runs", lambda: any("apps.js" in line for _, line in marked(mark)), 40)
    assert len({path.name for path in cgroups(process)}) == 3
    # The third node and its agent are dead by now; the rest is there.
    dead = lambda: sum("apps/bin/go" in line for _, line in marked(mark)) == 2  # noqa: E731
    eventually("node3 is killed", dead)
    process.send_signal(how)
    process.wait(20)
    eventually("nothing is left behind", lambda: not marked(mark) and not cgroups(process))
    if how == signal.SIGINT:
        assert process.returncode == 128 + how
        assert "interrupted; everything is stopped" in process.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--policies", "static-3 fc-prop"],
            "2 runs of 30 s, about 4 s each to start and stop, and 14 s for all: about 2 min",
        ),
        # Seven values.
        (
            ["--policies", "static fc-prop", "--load", "0.5:100,2:100"],
            "8 runs of 200 s, about 4 s each to start and stop, and 14 s for all: about 28 min",
        ),
    ],
)
def test_how_long_it_will_take_is_said_first(applab, tmp_path, arguments, words):
    # Nothing can start.
    process, _ = applab(*arguments, "--bin-dir", str(tmp_path))
    _, said = process.communicate(timeout=20)
    assert process.returncode == 1
    assert said.splitlines()[0] == words


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--app", "java"], "APP=java: must be one of go, flask, express, php, postgres"),
        (["--load", "3"], "--load '3': step 1, '3': must be load:seconds, as in 1.5:25"),
        (["--policies", "fc-hash"], "app-policies.toml has no such policy"),
    ],
)
def test_a_bad_value_is_said(applab, arguments, error):
    process, _ = applab(*arguments)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 1
    assert error in said
    assert "Traceback" not in said
