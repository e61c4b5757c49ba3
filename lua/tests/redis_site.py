"""Redis as it can be, and a HAProxy that asks it."""

import re
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
import redis

from compose.lab import machine
from compose.lab.processes import TIED, free_ports
from compose.lab.topology import ROOT
from lua.tests.conftest import LIBRARY, Cluster
from lua.tests.haproxy import CONFIG, POLICY, Proxy, eventually

SETTINGS = """\
require("plimsoll").start({{
  cluster = "test", backend = "queries", {proxy}period = {period}, lease = {lease}, age_limit = {age},
  redis = {{ {redis}, timeout = {timeout} }},
}})
"""
TOLD = "    http-response set-header x-policy %[var(txn.plimsoll)]\n"


class Server:
    """A redis-server, or what else that program can be."""

    def __init__(self, stack: ExitStack, directory: Path, *words: str, port: int = 0, **client) -> None:
        self.port = port or free_ports(1)[0]
        self.client = redis.Redis(port=self.port, **client)
        self._directory = directory / f"redis{self.port}"
        self._directory.mkdir(exist_ok=True)
        stack.callback(self.kill)
        command = [machine.redis(), *words, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self._command = [*TIED, *command, "--dir", str(self._directory)]
        self.start()

    def start(self) -> None:
        with (self._directory / "log").open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)
        eventually("redis", self._answers)

    def _answers(self) -> bool:
        try:
            return self.client.ping()
        except redis.AuthenticationError:
            return True
        except redis.ConnectionError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def load(self) -> None:
        self.client.function_load(LIBRARY.read_text(), replace=True)

    def report(self, **bounds: float) -> None:
        for node in ("node1", "node2"):
            Cluster(self.client).report(node, bounds.get(node, 1000), lease=3_600_000)

    def subscribers(self) -> int:
        return self.client.pubsub_numsub("plimsoll:{test}:ring")[0][1]


class Balancer(Proxy):
    """HAProxy, with two servers that it is itself."""

    def __init__(
        self,
        stack: ExitStack,
        directory: Path,
        redis: str,
        *,
        period=0.1,
        lease=1,
        age=1,
        timeout=0.5,
        more="",
        proxy="lb",
        lua="",
        program="",
    ) -> None:
        directory.mkdir(exist_ok=True)
        name = f'proxy = "{proxy}", ' if proxy else ""
        settings = SETTINGS.format(
            proxy=name, redis=redis, period=period, lease=lease, age=age, timeout=timeout
        )
        (directory / "plimsoll.lua").write_text(settings + lua)
        port, *nodes = free_ports(3)
        config = CONFIG.format(threads=1, directory=directory, root=ROOT, port=port, policy=POLICY + TOLD)
        for number, node in enumerate(nodes, 1):
            config += f"    server node{number} 127.0.0.1:{node}\n"
        for node in nodes:
            config += f"listen of{node}\n    bind 127.0.0.1:{node}\n    http-request return status 200\n"
        super().__init__(directory, config + more, program)
        stack.callback(self.kill)

    def policy_rules(self) -> bool:
        """Whether it is the policy that places a request; it is served in any case."""
        status, headers = self.get("/stock/S0001")
        assert status == 200
        return headers["x-policy"] != ""

    def wait_policy(self) -> None:
        eventually("the policy rules", self.policy_rules)

    def wait_balance(self) -> None:
        eventually("the balance rules", lambda: not self.policy_rules())

    def assert_prompt(self, requests: int = 40) -> None:
        took = []
        for _ in range(requests):
            began = time.monotonic()
            self.policy_rules()
            took.append(time.monotonic() - began)
        assert statistics.median(took) < 0.05

    def memory(self) -> float:
        """Resident, MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s*(\d+)", status, re.MULTILINE)[1]) / 1024

    def wait_logged(self, text: str) -> None:
        eventually(f"{text} in the log", lambda: text in self.log.read_text())


def at(*ports: int) -> str:
    return "addresses = { " + ", ".join(f'"127.0.0.1:{port}"' for port in ports) + " }"


class Listener:
    """Takes connections on a port; each has a thread of its own."""

    def __init__(self, stack: ExitStack, serve: Callable[[socket.socket], None]) -> None:
        self.server = socket.create_server(("127.0.0.1", free_ports(1)[0]))
        self.port = self.server.getsockname()[1]
        self.connections = 0
        self._serve, self._open = serve, []
        threading.Thread(target=self._accept, daemon=True).start()
        stack.callback(self.close)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                stream, _ = self.server.accept()
                self._open.append(stream)
                self.connections += 1
                threading.Thread(target=self._one, args=(stream,), daemon=True).start()

    def _one(self, stream: socket.socket) -> None:
        with closing(stream), suppress(OSError):
            self._serve(stream)

    def close(self) -> None:
        for one in (self.server, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def one(stack, tmp_path) -> Server:
    """A Redis with the library and two nodes."""
    server = Server(stack, tmp_path)
    server.load()
    server.report()
    return server


def follows_a_change(asked: Balancer, *servers: Server) -> None:
    """Within a period; the last of the servers has the data."""
    eventually("a subscription", lambda: any(server.subscribers() for server in servers))
    before = asked.get("/stock/S0001")[1]["x-policy"]
    servers[-1].report(**{before: 0})
    eventually("the key is moved", lambda: asked.get("/stock/S0001")[1]["x-policy"] not in ("", before))
