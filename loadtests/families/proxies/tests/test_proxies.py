"""Each library's reverse proxy, before real nodes are compared behind it."""

import http.client
import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from compose.applab.policies import POLICIES, Policy, load
from compose.applab.render import Addresses, proxy
from compose.lab import render
from compose.lab.sampler import fetch
from tests.harness import programs
from tests.harness.eventually import eventually
from tests.harness.http_server import Answering
from tests.harness.ports import free_ports
from tests.harness.process import Program

PROXIES = render.ROOT / "loadtests" / "families" / "proxies"
# Settings at which each admits a few requests at first.
FEW = {
    "failsafe-go/adaptive-limiter.json": {"initial_limit": 3},
    "concurrency-limits/gradient2.json": {"initial_limit": 3},
    "concurrency-limits/vegas.json": {"initial_limit": 3},
    "concurrency-limits/aimd.json": {"initial_limit": 3},
    "tower/p2c-peak-ewma.json": {"limit": 3},
}
ALL = [*FEW, "failsafe-go/adaptive-throttler.json"]


class Node:
    """Answers at once, or when it may."""

    def __init__(self, stack: ExitStack) -> None:
        self.may = threading.Event()
        self.waiting = 0
        self._lock = threading.Lock()
        stack.callback(self.may.set)
        self.server = Answering(self.say)
        stack.callback(self.server.stop)

    def say(self, method: str, path: str) -> tuple[int, bytes]:
        if path == "/held":
            with self._lock:
                self.waiting += 1
            self.may.wait()
        return 200, path.encode()


class Site:
    def __init__(self, stack: ExitStack, directory: Path, example: str, settings: dict) -> None:
        self.nodes = [Node(stack) for _ in range(2)]
        self.port, self.admin = free_ports(2)
        addresses = {f"node{n}": f"127.0.0.1:{node.server.port}" for n, node in enumerate(self.nodes, 1)}
        self.program = start(stack, directory, example, settings, self.port, self.admin, addresses)
        self.program.eventually("its nodes", lambda: len(self.state()) == len(self.nodes))

    def state(self) -> dict:
        answer = fetch(f"http://127.0.0.1:{self.admin}/nodes")
        return json.loads(answer) if answer else {}

    def get(self, path: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, answer.headers, body


def start(stack, directory, example, settings, port, admin, nodes) -> Program:
    config = json.loads((PROXIES / example).read_text())
    config |= {"listen": f"127.0.0.1:{port}", "admin": f"127.0.0.1:{admin}", "nodes": nodes}
    config["settings"] |= settings
    path = directory / "config.json"
    path.write_text(json.dumps(config))
    command = [programs.library(Path(example).parent.name), "--config", str(path)]
    return Program(stack, command, directory / "log").start()


@pytest.fixture
def stack():
    with ExitStack() as found:
        yield found


@pytest.mark.parametrize("example", ALL)
def test_a_request_is_forwarded_whole_and_its_node_named(stack, tmp_path, example):
    site = Site(stack, tmp_path, example, {})
    status, headers, body = site.get("/work?cpu_ms=5.000")
    assert (status, body) == (200, b"/work?cpu_ms=5.000")
    assert headers["x-plimsoll-node"] in ("node1", "node2")


@pytest.mark.parametrize("example", FEW)
def test_what_no_node_admits_is_refused_as_the_lab_counts_it(stack, tmp_path, example):
    site = Site(stack, tmp_path, example, FEW[example])
    assert {row["limit"] for row in site.state().values()} == {3}
    with ThreadPoolExecutor(6) as clients:
        held = [clients.submit(site.get, "/held") for _ in range(6)]
        eventually("both nodes full", lambda: [node.waiting for node in site.nodes] == [3, 3])
        status, headers, _ = site.get("/work")
        assert (status, headers["plimsoll-reason"], headers["retry-after"]) == (503, "full", "1")
        for node in site.nodes:
            node.may.set()
        assert [one.result()[0] for one in held] == [200] * 6
    assert site.get("/work")[0] == 200


def test_the_throttler_counts_late_requests_as_failures(stack, tmp_path):
    # Nothing is in time, so after the first twenty most requests are refused.
    settings = {"sla_seconds": 1e-6, "failure_rate": 0.1, "executions": 20, "period_seconds": 60}
    site = Site(stack, tmp_path, "failsafe-go/adaptive-throttler.json", settings)
    statuses = [site.get("/work")[0] for _ in range(300)]
    assert statuses.count(503) > 100
    assert set(statuses) == {200, 503}


@pytest.mark.parametrize("example", ALL)
def test_a_node_that_is_away_fails_its_requests(stack, tmp_path, example):
    port, admin, closed = free_ports(3)
    program = start(stack, tmp_path, example, {}, port, admin, {"node1": f"127.0.0.1:{closed}"})
    program.eventually("its node", lambda: fetch(f"http://127.0.0.1:{admin}/nodes"))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/work")
    assert connection.getresponse().status == 502
    connection.close()


@pytest.mark.parametrize("example", ALL)
def test_an_unknown_setting_ends_it_with_the_settings_name(tmp_path, example):
    with ExitStack() as stack:
        program = start(stack, tmp_path, example, {"colour": 1}, *free_ports(2), {"node1": "127.0.0.1:1"})
        assert program.process.wait(20) not in (0, None)
        assert "colour" in program.said()


@pytest.mark.parametrize("example", ALL)
def test_it_ends_by_sigterm(stack, tmp_path, example):
    site = Site(stack, tmp_path, example, {})
    site.program.process.terminate()
    assert site.program.process.wait(20) in (0, 143)


def library_policies() -> list[Policy]:
    """Those of the lab, with all values of their sweeps."""
    names = [
        name for name, entry in render.table(POLICIES).items() if entry.get("example", "")[-5:] == ".json"
    ]
    return load(names)


@pytest.mark.parametrize("policy", library_policies(), ids=lambda policy: policy.name)
def test_the_labs_policies_are_taken(stack, tmp_path, policy):
    addresses = Addresses.free()
    front = proxy(policy, addresses, tmp_path)
    program = Program(stack, front.command, tmp_path / "log").start()
    program.eventually("its nodes", front.servers)
    assert set(front.servers()) == {"node1", "node2", "node3"}


@pytest.mark.parametrize("name", ["failsafe-go", "concurrency-limits", "tower"])
def test_its_version_is_the_librarys(name):
    said = subprocess.run([programs.library(name), "--version"], capture_output=True, text=True, check=True)
    library, version = said.stdout.split()
    assert library == name
    assert version[0].isdigit()
