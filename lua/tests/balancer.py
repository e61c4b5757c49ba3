"""A HAProxy that asks Redis as it can be."""

import socket
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from tests.harness.eventually import eventually
from tests.harness.functions import Cluster
from tests.harness.haproxy import POLICY, HAProxy, configuration
from tests.harness.ports import free_ports
from tests.harness.redis import Redis

SETTINGS = """\
require("plimsoll").start({{
  cluster = "test", backend = "queries", {proxy}period = {period}, lease = {lease}, age_limit = {age},
  redis = {{ {redis}, timeout = {timeout} }},
}})
"""
TOLD = "    http-response set-header x-policy %[var(txn.plimsoll)]\n"


def report(server: Redis, **bounds: float) -> None:
    for node in ("node1", "node2"):
        Cluster(server.client).report(node, bounds.get(node, 1000), lease=3_600_000)


class Balancer(HAProxy):
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
        nodes = free_ports(2)
        servers = {f"node{number}": port for number, port in enumerate(nodes, 1)}
        config = configuration(directory, servers, rules=POLICY + TOLD)
        for node in nodes:
            config += f"listen of{node}\n    bind 127.0.0.1:{node}\n    http-request return status 200\n"
        super().__init__(stack, directory, config + more, program=program)
        self.start()

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


def follows_a_change(asked: Balancer, *servers: Redis) -> None:
    """Within a period; the last of the servers has the data."""
    eventually("a subscription", lambda: any(server.subscribers() for server in servers))
    before = asked.get("/stock/S0001")[1]["x-policy"]
    report(servers[-1], **{before: 0})
    eventually("the key is moved", lambda: asked.get("/stock/S0001")[1]["x-policy"] not in ("", before))
