"""A real agent and a real price feed: cold prices give way while the node is full, and come back."""

import contextlib
import csv
import gzip
import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from compose.lab.processes import free_ports, start_tied
from compose.lab.sampler import fetch, node_counters
from tests.harness import programs
from tests.harness.eventually import eventually

SYMBOLS = 50
NODE = [
    *("--symbols", str(SYMBOLS), "--history", "10", "--accounts", "10", "--workers", "1"),
    *("--process-latency", "2ms", "--read-latency", "0us", "--update-latency", "500us"),
    *("--price-update-min", "100ms", "--price-update-max", "100ms"),
]
# Requests of 10 ms on one worker are late as soon as two come at a time.
AGENT = """
[agent]
period = "100ms"
[http]
listen = "127.0.0.1:{agent}"
[agent_check]
listen = "127.0.0.1:{check}"
[[service]]
name = "stocks"
[service.sla]
delay = "12ms"
[service.bound]
nominal = 40
min = 5
[service.source]
kind = "prometheus"
url = "http://127.0.0.1:{node}/metrics"
histogram = "stocks_request_duration_seconds"
cost = "stocks_items_total"
[service.jobs]
kind = "prometheus"
gauge = "stocks_jobs"
[service.updates]
url = "http://127.0.0.1:{node}/accesses"
update_cost = 0.25
longest = "2s"
"""


pytestmark = programs.needs(programs.stocks, programs.agent, programs.k6, programs.haproxy)


@contextlib.contextmanager
def running(directory: Path, obeys: bool) -> Iterator[tuple[int, int, subprocess.Popen]]:
    """Ports of a node and its agent, and the agent."""
    node, agent, check = free_ports(3)
    config = directory / "agent.toml"
    config.write_text(AGENT.format(node=node, agent=agent, check=check))
    asking = ["--feed-periods", f"http://127.0.0.1:{agent}/v1/updates"] if obeys else []
    data = ["--listen", f"127.0.0.1:{node}", "--data-dir", str(directory / "data")]
    commands = {
        "node": [programs.stocks(), "serve", *NODE, *data, *asking],
        "agent": [programs.agent(), "agent", "--config", str(config)],
    }
    started = []
    try:
        for name, command in commands.items():
            started.append(start_tied(command, {}, directory / f"{name}.log"))
        eventually(
            "both are ready", lambda: all(fetch(f"http://127.0.0.1:{p}/readyz") for p in (node, agent))
        )
        yield node, agent, started[-1]
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextlib.contextmanager
def full(node: int) -> Iterator[None]:
    """More requests for one stock than the node can answer in time."""
    over = threading.Event()

    def client() -> None:
        while not over.is_set():
            with urllib.request.urlopen(f"http://127.0.0.1:{node}/stock/S0001?items=5", timeout=10) as answer:
                answer.read()

    clients = [threading.Thread(target=client) for _ in range(6)]
    for thread in clients:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in clients:
            thread.join()


def gauge(port: int, series: str) -> float:
    lines = (fetch(f"http://127.0.0.1:{port}/metrics") or "").splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(series)), 0.0)


def made(node: int) -> float:
    counters = node_counters(fetch(f"http://127.0.0.1:{node}/metrics") or "")
    return counters.get("stocks_price_updates_total", 0.0)


def updates_in(node: int, seconds: float) -> float:
    before = made(node)
    time.sleep(seconds)
    return (made(node) - before) / seconds


def test_cold_prices_give_way_while_the_node_is_full_and_come_back(tmp_path):
    with running(tmp_path, obeys=True) as (node, agent, _):
        with full(node):
            # All but the one that is read.
            eventually("the cold are relaxed", lambda: gauge(node, "stocks_feed_relaxed") == SYMBOLS - 1)
            assert '"S0001"' not in (fetch(f"http://127.0.0.1:{agent}/v1/updates") or "")
            # Of 500 updates/s, ten remain for the item that is read, and one in 2 s for each other.
            eventually("few updates are made", lambda: updates_in(node, 1) < 100)
            assert gauge(agent, "plimsoll_update_longest_period_seconds") <= 2
        eventually("all are back", lambda: gauge(node, "stocks_feed_relaxed") == 0)
        assert gauge(agent, "plimsoll_update_items_relaxed") == 0


def test_a_feed_that_does_not_obey_is_seen_and_harms_nothing(tmp_path):
    with running(tmp_path, obeys=False) as (node, agent, _), full(node):
        relaxed = "plimsoll_update_items_relaxed"
        eventually("longer periods are requested", lambda: gauge(agent, relaxed) == SYMBOLS - 1)
        wanted = 'plimsoll_update_rate{periods="wanted"'
        total = "plimsoll_update_made_total"
        before = gauge(agent, total)
        # As many as in twenty seconds that it obeys.
        eventually("it is seen", lambda: gauge(agent, total) - before > 20 * gauge(agent, wanted) > 0)
        assert fetch(f"http://127.0.0.1:{agent}/healthz") == "ok\n"


def test_feed_returns_to_own_periods_when_its_agent_dies(tmp_path):
    with contextlib.ExitStack() as leaving:
        node, _, agent = leaving.enter_context(running(tmp_path, obeys=True))
        leaving.enter_context(full(node))
        eventually("the cold are relaxed", lambda: gauge(node, "stocks_feed_relaxed") == SYMBOLS - 1)
        agent.kill()
        eventually("all are back", lambda: gauge(node, "stocks_feed_relaxed") == 0)
        assert gauge(node, 'stocks_feed_asked_total{result="failed"}') > 0


def test_ages_and_update_periods_are_recorded(lab, tmp_path):
    process, _ = lab("--scenario", "updates", "--policies", "fc-prop-updates", "--duration", "36")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr.decode()
    assert b"in the overload:" in stdout
    folder = tmp_path / "results" / "latest" / "fc-prop-updates"
    assert json.loads((folder / "meta.json").read_text())["calm_s"] == 34
    with gzip.open(folder / "requests.csv.gz", "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["class"] == "query"]
    assert {row["outcome"] for row in rows} == {"ok"}
    # A portfolio of few items may have no quote.
    assert sum(row["age_s"] != "" for row in rows) > 0.9 * len(rows)
    with (folder / "nodes.csv").open() as file:
        samples = list(csv.DictReader(file))[4:]
    assert {row["update_items"] for row in samples} == {"1000"}
    # Twenty clients are no overload, and all have their own periods.
    assert {row["update_relaxed"] for row in samples} == {"0"}
    assert {row["update_longest_s"] for row in samples} == {"0.5"}
    assert all(float(row["updates"]) > 0 for row in samples)
    found = json.loads((folder.parent / "summary.json").read_text())["runs"][0]["updates"]
    assert (found["relaxed_share"], found["back_s"], found["hot_relaxed"]) == (0, 0, 0)
    assert 0 < found["mean_age_s"] < found["longest_period_s"] == 0.5
