"""A plain configuration, the snippets applied to it as docs/haproxy.md says, and the real programs."""

import csv
import http.client
import json
import re
import signal
import subprocess
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from compose.lab import proxy, render, stack
from compose.lab.topology import Node
from tests.harness import ROOT, programs
from tests.harness.eventually import eventually
from tests.harness.haproxy import HAProxy
from tests.harness.http_server import Answering
from tests.harness.ports import answers, free_ports
from tests.harness.process import Program, run

SNIPPETS = ROOT / "haproxy" / "snippets"
GUIDE = ROOT / "docs" / "haproxy.md"
PLAIN = """\
global
    stats socket SOCKET mode 660 level admin

defaults
    mode http
    timeout connect 1s
    timeout client 10s
    timeout server 10s

frontend web
    bind 127.0.0.1:FRONTEND
    default_backend queries

backend queries
    balance roundrobin
"""
# Small enough to be built in a moment.
FLAGS = {
    "workers": 2,
    "process-latency": "10us",
    "read-latency": "10us",
    "symbols": 100,
    "history": 5,
    "accounts": 5,
}
SERVICE = {
    "sla": {"delay": "500ms"},
    "bound": {"nominal": 40},
    "controller": {"kind": "fixed"},
}
# What an agent can change in HAProxy's view of a server.
CONTROLLED = ["status", "weight", "slim", "agent_status", "last_agt"]


def directives(snippet: str) -> list[str]:
    lines = (SNIPPETS / f"{snippet}.cfg").read_text().splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def apply(config: str, *snippets: str) -> str:
    """Puts the lines of each snippet at the top of its section, in place of those they replace."""
    for snippet in snippets:
        new = directives(snippet)
        section = "frontend web" if snippet == "log-format" else "backend queries"
        head, rest = re.split(rf"^{section}\n", config, maxsplit=1, flags=re.MULTILINE)
        body, *others = re.split(r"^(?=\S)", rest, maxsplit=1, flags=re.MULTILINE)
        replaced = {line.split()[0] for line in new} & {"balance", "hash-type", "log-format"}
        kept = [line for line in body.splitlines() if not replaced.intersection(line.split()[:1])]
        if snippet == "controlled-backend":
            kept = [
                re.sub(r"^(\s+server (\S+) .*)$", r'\1 agent-send "queries/\2\\n"', line) for line in kept
            ]
        config = "\n".join([head + section, *new, *kept, *others]) + ("" if others else "\n")
    return config


def get(port: int, path: str) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response.status, {name.lower(): value for name, value in response.getheaders()}
    finally:
        connection.close()


class Site:
    """Nodes, an agent each, and HAProxy: node n has the address 127.0.0.n, so all have the same ports."""

    def __init__(self, run: Path, nodes: int = 1, flags: dict[str, Any] | None = None) -> None:
        self._run = run
        self._stack = ExitStack()
        self._alive: dict[str, Program] = {}
        self.names = [f"node{n}" for n in range(1, nodes + 1)]
        self.frontend, self._service, self._replication, self._check, self._http, self._log = free_ports(6)
        self.socket = run / "haproxy.sock"
        self._flags = FLAGS | (flags or {})

    def __enter__(self) -> "Site":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _address(self, name: str) -> str:
        return f"127.0.0.{self.names.index(name) + 1}"

    def _start(self, name: str, command: list[str]) -> None:
        self._alive[name] = run(self._stack, command, self._run / f"{name}.log")

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        eventually(what, condition, check=self._check_alive)

    def _check_alive(self) -> None:
        for program in self._alive.values():
            program.check()

    def start_nodes(self) -> None:
        for name in self.names:
            node = Node(name, "master", self._flags)
            data = stack.sqlite(node, self._run, self._replication)
            command = stack.serve(node, f"127.0.0.1:{self._service}", 1, data)
            self._start(name, [word.replace("127.0.0.1", self._address(name)) for word in command])
        for name in self.names:
            url = f"http://{self._address(name)}:{self._service}/readyz"
            self.wait(name, lambda url=url: answers(url))

    def start_agents(self, text: str | None = None) -> None:
        for index, name in enumerate(self.names):
            path = self._run / f"{name}.toml"
            path.write_text(text or self._agent(index))
            self._start(f"{name}-agent", [programs.agent(), "agent", "--config", str(path)])
        for name in self.names:
            url = f"http://{self._address(name)}:{self._http}/readyz"
            self.wait(f"{name}-agent", lambda url=url: answers(url))

    def _agent(self, index: int) -> str:
        count = len(self.names)
        ports = render.Ports(
            self.frontend,
            0,
            self._service,
            self._replication,
            [self._service] * count,
            [self._check] * count,
            [self._http] * count,
            0,
        )
        name = self.names[index]
        policy = render.Policy("snippets", SNIPPETS, SERVICE)
        text = render.agent(policy, Node(name, "slave", {}), index, ports, self._run)
        return text.replace("127.0.0.1", self._address(name)).replace('period = "1s"', 'period = "250ms"')

    def log_agent(self) -> str:
        config = {
            "agent": {"period": "250ms"},
            "http": {"listen": f"127.0.0.1:{self._http}"},
            "agent_check": {"listen": f"127.0.0.1:{self._check}"},
        }
        source = {"kind": "haproxy-log", "listen": f"udp://127.0.0.1:{self._log}", "node": "queries/node1"}
        service = {"name": "stocks", "identities": ["queries/node1"], **SERVICE, "source": source}
        return render.toml(config) + "\n[[service]]\n" + render.toml(service, "service")

    def config(self, *snippets: str) -> str:
        """The plain configuration with these snippets, at this site's addresses."""
        servers = [f"    server {name} {self._address(name)}:{self._service} check" for name in self.names]
        moved = {
            "SOCKET": str(self.socket),
            "FRONTEND": str(self.frontend),
            "agent-port 9101": f"agent-port {self._check}",
            "192.0.2.11:5514": f"127.0.0.1:{self._log}",
        }
        text = apply(PLAIN + "\n".join(servers) + "\n", *snippets)
        for old, new in moved.items():
            text = text.replace(old, new)
        return text

    def haproxy(self, text: str) -> None:
        """Starts HAProxy, or reloads it: the new process takes over and the old one ends."""
        path = self._run / "haproxy.cfg"
        path.write_text(text)
        accepted(path)
        old = self._alive.pop("haproxy", None)
        command = [programs.haproxy(), "-db", "-f", str(path)]
        self._start("haproxy", [*command, "-sf", str(old.process.pid)] if old else command)
        if old:
            self.wait("the old process's end", lambda: old.process.poll() is not None)
        self.wait("haproxy", lambda: len(self.servers()) == len(self.names))

    def servers(self) -> dict[str, dict[str, str]]:
        return proxy.servers(self.socket)

    def wait_server(self, name: str, **expected: str) -> dict[str, str]:
        self.wait(
            f"{name} as {expected}",
            lambda: expected.items() <= self.servers().get(name, {}).items(),
        )
        return self.servers()[name]

    def cli(self, command: str) -> str:
        return proxy.ask(self.socket, command).strip()

    def node(self, name: str, *words: str) -> None:
        control = str(self._run / f"{name}.control")
        command = [programs.agent(), "node", "--socket", control, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        assert done.returncode == 0, done.stderr

    def view(self, name: str = "node1") -> dict[str, Any]:
        url = f"http://{self._address(name)}:{self._http}/v1/node"
        with urllib.request.urlopen(url, timeout=5) as response:
            return json.load(response)["services"]["stocks"]

    def signal_agent(self, name: str, number: signal.Signals) -> None:
        process = self._alive[f"{name}-agent"].process
        process.send_signal(number)
        if number == signal.SIGKILL:
            process.wait()
            del self._alive[f"{name}-agent"]

    def get(self, path: str) -> tuple[int, dict[str, str]]:
        return get(self.frontend, path)

    def get_at_once(self, count: int, path: str) -> list[tuple[int, dict[str, str]]]:
        with ThreadPoolExecutor(count) as clients:
            return list(clients.map(self.get, [path] * count))


def accepted(path: Path) -> None:
    command = [programs.haproxy(), "-c", "-f", str(path)]
    check = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    output = check.stdout + check.stderr
    assert check.returncode == 0, output
    assert not re.search("warning|alert", output, re.IGNORECASE), output


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as one:
        yield one


@pytest.mark.parametrize(
    "snippets",
    [
        ["controlled-backend"],
        ["controlled-backend", "refusal"],
        ["controlled-backend", "refusal", "consistent-hash", "log-format"],
    ],
    ids="+".join,
)
def test_haproxy_accepts_the_snippets_without_a_warning(site, tmp_path, snippets):
    path = tmp_path / "haproxy.cfg"
    path.write_text(site.config(*snippets))
    accepted(path)


def test_every_snippet_has_a_place_in_a_guide():
    guide = "".join(page.read_text() for page in GUIDE.parent.glob("haproxy*.md"))
    snippets = sorted(SNIPPETS.glob("*.cfg"))
    assert snippets
    for snippet in snippets:
        assert f"haproxy/snippets/{snippet.name}" in guide
        for line in directives(snippet.stem):
            assert line.strip() in guide, f"{snippet.name}: the guide shows another line"


def test_the_guide_shows_what_the_snippets_make_of_a_plain_backend():
    before, after = re.findall(r"^```haproxy\n(backend queries\n.*?)^```$", GUIDE.read_text(), re.M | re.S)[
        :2
    ]
    assert apply(before, "controlled-backend", "refusal") == after


def test_weight_and_maxconn_follow_the_agent_and_drain_reaches_haproxy(tmp_path):
    with Site(tmp_path, nodes=2) as site:
        site.start_nodes()
        site.start_agents()
        site.haproxy(site.config("controlled-backend", "refusal"))
        for name in site.names:
            site.wait_server(name, status="UP", weight="50", slim="40", agent_status="L7OK")
        # From its second question on.
        site.wait("the proxy", lambda: site.view("node2")["proxies"])
        assert [view["identity"] for view in site.view("node2")["proxies"]] == ["queries/node2"]

        site.node("node1", "force", "bound", "20")
        site.wait_server("node1", weight="25", slim="20")
        site.node("node1", "force", "weight", "30")
        site.wait_server("node1", weight="30", slim="20")
        site.node("node1", "force", "auto")
        site.node("node1", "force", "bound", "40")
        site.wait_server("node1", weight="50", slim="40")
        assert site.servers()["node2"]["weight"] == "50"

        site.node("node1", "drain")
        site.wait("the drain", lambda: site.servers()["node1"]["status"].startswith("DRAIN"))
        assert {site.get("/stock/S0001?items=1")[1]["x-node"] for _ in range(6)} == {"node2"}
        site.node("node1", "ready")
        site.wait_server("node1", status="UP", weight="50")
        assert {site.get("/stock/S0001?items=1")[1]["x-node"] for _ in range(6)} == {"node1", "node2"}


def test_the_lowest_class_gets_the_next_place_of_a_full_node(tmp_path):
    served, done = [], threading.Semaphore(0)

    def say(_: str, path: str) -> tuple[int, bytes]:
        served.append(path)
        done.acquire(timeout=10)
        return 200, b""

    node = Answering(say)
    (frontend,) = free_ports(1)
    config = apply(PLAIN.replace("FRONTEND", str(frontend)), "priority")
    config = config.replace("SOCKET", str(tmp_path / "haproxy.sock"))
    config += f"    timeout queue 10s\n    server node1 127.0.0.1:{node.port} maxconn 1\n"
    with ExitStack() as stack, ThreadPoolExecutor(4) as clients:
        stack.callback(node.stop)
        haproxy = HAProxy(stack, tmp_path, config).start()
        # The first has the only place; the others wait.
        for count, path in enumerate(["/a", "/reports/1", "/b", "/checkout"]):
            clients.submit(haproxy.get, path)
            eventually(path, lambda count=count: served and waiting(haproxy) == count)
        for count in range(2, 5):
            done.release()
            eventually("the next request", lambda count=count: len(served) == count)
        done.release()
    assert served == ["/a", "/checkout", "/b", "/reports/1"]


def waiting(haproxy: HAProxy) -> int:
    """Requests in HAProxy's queues."""
    rows = csv.DictReader(haproxy.ask("show stat").removeprefix("# ").splitlines())
    return next(int(row["qcur"]) for row in rows if row["svname"] == "BACKEND")


def test_a_wrong_name_changes_nothing_and_shows(site):
    site.start_nodes()
    site.start_agents(site.log_agent().replace("queries/node1", "queries/other"))
    site.haproxy(site.config("controlled-backend", "refusal"))
    site.wait_server("node1", status="UP", agent_status="CHECKED", weight="100", slim="", last_agt="")


def test_refusals_are_marked_and_a_503_of_the_node_is_not(tmp_path):
    # A request of 100 items takes 0.4 s; a second one may wait in the node.
    flags = {"workers": 1, "queue-limit": 1, "process-latency": "4ms"}
    with Site(tmp_path, flags=flags) as site:
        site.start_nodes()
        site.start_agents()
        site.haproxy(site.config("controlled-backend", "refusal"))
        site.node("node1", "force", "bound", "1")
        site.wait_server("node1", slim="1")
        replies = site.get_at_once(4, "/stock/S0001?items=100")
        assert sorted(status for status, _ in replies) == [200, 503, 503, 503]
        for status, headers in replies:
            marks = (headers.get("plimsoll-reason"), headers.get("retry-after"))
            assert marks == (("full", "1") if status == 503 else (None, None))

        site.node("node1", "force", "bound", "10000")
        site.wait("room for all", lambda: int(site.servers()["node1"]["slim"]) > 10)
        replies = site.get_at_once(5, "/stock/S0001?items=100")
        assert Counter(status for status, _ in replies)[503] >= 2
        assert not any("plimsoll-reason" in headers for _, headers in replies)


def test_a_dead_agents_last_word_stays_and_its_age_shows(site):
    site.start_nodes()
    site.start_agents()
    site.haproxy(site.config("controlled-backend", "refusal"))
    site.node("node1", "force", "bound", "20")
    site.wait_server("node1", weight="25", slim="20", agent_status="L7OK")

    site.signal_agent("node1", signal.SIGSTOP)
    site.wait_server("node1", agent_status="L7TOUT")
    site.signal_agent("node1", signal.SIGCONT)
    site.wait_server("node1", agent_status="L7OK")

    site.signal_agent("node1", signal.SIGKILL)
    row = site.wait_server("node1", agent_status="L4CON")
    assert (row["status"], row["weight"], row["slim"]) == ("UP", "25", "20")
    assert site.get("/stock/S0001?items=1")[0] == 200


def test_after_the_rollback_the_backend_is_as_before(site):
    site.start_nodes()
    site.start_agents()
    site.haproxy(site.config())

    def seen() -> dict[str, str]:
        return {field: site.servers()["node1"][field] for field in CONTROLLED}

    site.wait_server("node1", status="UP")
    before = seen()
    site.haproxy(site.config("controlled-backend", "refusal"))
    site.wait_server("node1", status="UP", weight="50", slim="40")
    site.node("node1", "drain")
    site.wait("the drain", lambda: site.servers()["node1"]["status"].startswith("DRAIN"))
    site.haproxy(site.config())
    site.wait_server("node1", **before)


def test_a_key_stays_on_its_node_and_only_a_drained_nodes_share_moves(tmp_path):
    with Site(tmp_path, nodes=3) as site:
        site.start_nodes()
        site.start_agents()
        site.haproxy(site.config("controlled-backend", "refusal", "consistent-hash"))
        for name in site.names:
            site.wait_server(name, status="UP", weight="50")

        def owners() -> dict[str, str]:
            symbols = [f"S{n:04}" for n in range(60)]
            return {symbol: site.get(f"/stock/{symbol}?items=1")[1]["x-node"] for symbol in symbols}

        before = owners()
        assert set(before.values()) == set(site.names)
        assert owners() == before
        site.node("node2", "drain")
        site.wait("the drain", lambda: site.servers()["node2"]["status"].startswith("DRAIN"))
        after = owners()
        assert "node2" not in after.values()
        assert {s: n for s, n in after.items() if before[s] != "node2"} == {
            s: n for s, n in before.items() if n != "node2"
        }
        site.node("node2", "ready")
        site.wait_server("node2", status="UP", weight="50")
        assert owners() == before


def test_the_agent_reads_haproxys_log_lines_before_another_format(site):
    site.start_nodes()
    site.start_agents(site.log_agent())
    text = site.config("controlled-backend", "refusal", "log-format")
    items = "%[var(txn.plimsoll_items)]"
    sources = (ROOT / "docs" / "sources.md").read_text()
    cost = re.search(r"    http-response set-var\(txn.plimsoll_items\) res.hdr.*\n", sources)[0]
    text = text.replace(items, items + " %ci:%cp [%tr] %{+Q}r")
    site.haproxy(text.replace("    log-format ", cost + "    log-format "))
    site.wait_server("node1", status="UP", agent_status="L7OK")

    def finished() -> bool:
        assert site.get("/stock/S0001?items=5")[0] == 200
        return site.view()["finished"] > 0

    site.wait("a finished request", finished)
    decision = site.view()["decision"]
    assert decision["mean_cost"] == pytest.approx(5)
    assert decision["measured_delay"] is None or decision["measured_delay"] < 0.5
