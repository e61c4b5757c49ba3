"""The panels about gathers, put to a real Prometheus that scrapes a real gather and its agent."""

import json
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from compose.lab.processes import Processes, answers, free_ports, wait_until
from compose.scatter.databases import Databases
from dashboards.preview.recording import Prometheus, Span, every
from dashboards.tests.built import BUILT, panels
from dashboards.tests.recorded import Recorded, assert_chosen, assert_shown, numbers
from tests.harness import programs
from tests.harness.programs import needs_partitions

READY_SECONDS = 20
AGENT = """\
[http]
listen = "127.0.0.1:{agent}"
[agent_check]
listen = "127.0.0.1:{check}"
[[service]]
name = "scatter"
[service.sla]
delay = "1s"
[service.bound]
nominal = 10000
[service.controller]
kind = "pi"
[service.source]
kind = "partitions"
[[partition]]
service = "scatter"
name = "here"
address = "unix://{socket}"
user = "postgres"
database = "postgres"
[partition.queries]
rows = "SELECT generate_series(1, 100) AS i"
sleep = "SELECT pg_sleep(600)::text AS slept"
[[partition]]
service = "scatter"
name = "away"
address = "unix://{socket}.away"
user = "postgres"
database = "postgres"
[partition.queries]
rows = "SELECT generate_series(1, 100) AS i"
"""
GATHER = """\
[http]
listen = "127.0.0.1:{gather}"
[nodes]
node1 = "127.0.0.1:{agent}"
[[partition]]
name = "here"
nodes = ["node1"]
[[partition]]
name = "away"
nodes = ["node1"]
"""
# Query, status of the response, and outcome of the gather.
ASKED: list[tuple[dict[str, Any], int, str]] = [
    ({"query": "rows", "partitions": ["here"]}, 200, "whole"),
    ({"query": "rows", "partial": True}, 200, "partial"),
    ({"query": "sleep", "partitions": ["here"], "deadline_seconds": 0.1}, 504, "late"),
    ({"query": "rows", "partitions": ["away"]}, 502, "down"),
]


def scraping(ports: dict[str, int]) -> str:
    targets = {"plimsoll": ("node1", ports["agent"]), "plimsoll-gather": ("gather1", ports["gather"])}
    jobs = []
    for job, (instance, port) in targets.items():
        labels = {"cluster": "stocks", "instance": instance}
        jobs.append(
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": labels}]}
        )
    return yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs})


def status(port: int, question: dict[str, Any]) -> int:
    url = f"http://127.0.0.1:{port}/v1/gather"
    request = urllib.request.Request(url, json.dumps(question).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=READY_SECONDS) as answer:
            answer.read()
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture(scope="module")
def gathered() -> Iterator[Recorded]:
    """A few seconds with gathers that end in every way."""
    # Accessible to PostgreSQL's user, with a path short enough for sockets.
    with tempfile.TemporaryDirectory(prefix="plimsoll-", dir="/tmp") as directory:
        run, sql = Path(directory), Path(directory) / "sql"
        run.chmod(0o711)
        sql.mkdir(mode=0o700)
        databases = Databases(sql, run)
        named = ("agent", "check", "gather", "prometheus")
        ports = dict(zip(named, free_ports(len(named)), strict=True))
        (run / "agent.toml").write_text(AGENT.format(socket=databases.socket, **ports))
        (run / "gather.toml").write_text(GATHER.format(**ports))
        (run / "prometheus.yml").write_text(scraping(ports))
        url = f"http://127.0.0.1:{ports['prometheus']}"
        commands = {
            "postgres": databases.program(("shared_buffers=8MB",)),
            "prometheus": [
                programs.prometheus(),
                f"--config.file={run / 'prometheus.yml'}",
                f"--storage.tsdb.path={run / 'data'}",
                f"--web.listen-address={url.removeprefix('http://')}",
            ],
        }
        for program in ("agent", "gather"):
            commands[program] = [
                programs.agent(),
                program,
                "--config",
                str(run / f"{program}.toml"),
            ]
        began = time.time()
        with Processes(commands, run, run) as processes:
            databases.wait(processes)
            at = {"prometheus": "-/ready", "agent": "readyz", "gather": "readyz"}
            for name, path in at.items():
                ready = f"http://127.0.0.1:{ports[name]}/{path}"
                wait_until(name, lambda ready=ready: answers(ready), READY_SECONDS, processes.check)
            source = Prometheus(url)

            def grows(counter: str, label: str) -> set[str]:
                found = source.get("query", query=f"rate({counter}[4s]) > 0")["result"]
                return {one["metric"][label] for one in found}

            def all_seen() -> bool:
                for question, wanted, _ in ASKED:
                    assert status(ports["gather"], question) == wanted, question
                # The gather and the agent are not scraped at the same moment.
                outcomes = grows("plimsoll_gathers_total", "outcome")
                states = grows("plimsoll_partition_queries_total", "state")
                return outcomes == {outcome for *_, outcome in ASKED} and states >= {"answered", "down"}

            wait_until("gathers that end in every way", all_seen, READY_SECONDS, processes.check)
            moment = time.time()
            # The last look at a span comes up to a second before its end.
            yield Recorded(source, Span(began, moment + 1), [moment])


@needs_partitions
@pytest.mark.timeout(120)
def test_no_panel_is_empty_or_slow(gathered: Recorded) -> None:
    assert_shown(gathered, "gathers")


@needs_partitions
def test_every_variable_has_values(gathered: Recorded) -> None:
    assert_chosen(gathered, "gathers")


@needs_partitions
def test_the_partition_that_is_missed_is_named(gathered: Recorded) -> None:
    found = {}
    for panel in panels(BUILT["gathers"]):
        (expr, *_) = [target["expr"] for target in panel["targets"]]
        filled = gathered.span.filled(expr, every(BUILT["gathers"]))
        found[panel["title"]] = gathered.ask(filled, instant=True)
    missed = found["Partitions without an answer"]
    growing = {(one["metric"]["partition"], one["metric"]["state"]) for one in missed if any(numbers(one))}
    assert growing == {("away", "down"), ("here", "late")}
    assert list(numbers(found["Partitions missed"][0])) == [2.0]
    (share,) = numbers(found["Whole"][0])
    assert 0 < share < 0.5
    without = found["Queries that found no database"]
    assert {one["metric"]["partition"] for one in without if any(numbers(one))} == {"away"}
