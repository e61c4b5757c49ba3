"""eds-role.yaml on stock Envoy: routing of reads and writes, with stand-ins for agents.

Real agents, with databases that fail, are in compose/lab/tests/test_master_failover.py."""

import http.client
import json
from collections import Counter
from contextlib import ExitStack

import pytest

from compose.lab.envoy import relocated
from tests.end_to_end.envoy.native_site import NativeSite
from tests.harness.envoy import Envoy, endpoints, example
from tests.harness.eventually import eventually

NODES = ("node1", "node2", "node3")
KIND = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"


class Site:
    """Three nodes, stand-ins for their agents, and Envoy."""

    def __init__(self, native: NativeSite) -> None:
        self.primary = "node1"
        self.stale: set[str] = set()
        self.ailing: set[str] = set()
        self.seen: Counter[tuple[str, str]] = Counter()
        self._nodes = [native.answering(self._node(name)) for name in NODES]
        agents = [native.answering(self._agent(name)) for name in NODES]
        moved = {8101 + n: ("127.0.0.1", node.port) for n, node in enumerate(self._nodes)}
        moved |= {9601 + n: ("127.0.0.1", agent.port) for n, agent in enumerate(agents)}
        self.envoy: Envoy = native.envoy(relocated(example("eds-role.yaml"), moved))

    def _node(self, name: str):
        def say(method: str, path: str) -> tuple[int, bytes]:
            if path == "/readyz":
                return 200, b""
            self.seen[name, method] += 1
            return 503 if name in self.ailing else 200, name.encode()

        return say

    def _agent(self, name: str):
        def say(_method: str, path: str) -> tuple[int, bytes]:
            if path == "/v1/role?takes=writes":
                return 200 if name == self.primary else 503, b""
            return 200, b"" if path == "/readyz" else self._discovered()

        return say

    def _discovered(self) -> bytes:
        group = endpoints([node.port for node in self._nodes])
        for name, endpoint in zip(NODES, group["lb_endpoints"], strict=True):
            endpoint["health_status"] = "UNHEALTHY" if name in self.stale else "HEALTHY"
        assignment = {"@type": KIND, "cluster_name": "ledger", "endpoints": [group]}
        version = " ".join(sorted(self.stale)) or "all"
        return json.dumps({"version_info": version, "type_url": KIND, "resources": [assignment]}).encode()

    def ask(self, method: str) -> tuple[int, str]:
        """Status, and the name of the node that answered or the reason for a refusal."""
        connection = http.client.HTTPConnection("127.0.0.1", self.envoy.port, timeout=10)
        try:
            connection.request(method, "/entry")
            answer = connection.getresponse()
            body = answer.read().decode()
            return answer.status, answer.getheader("plimsoll-reason", body)
        finally:
            connection.close()

    def reads(self) -> set[tuple[int, str]]:
        return {self.ask("GET") for _ in range(20)}


@pytest.fixture
def site(tmp_path):
    with ExitStack() as stack:
        yield Site(NativeSite(tmp_path, stack))


def test_writes_go_to_the_primary_only_and_are_refused_without_one(site):
    for primary in ("node1", "node3"):
        site.primary = primary
        eventually(primary, lambda primary=primary: site.ask("POST") == (200, primary))
        site.seen.clear()
        assert {site.ask(method) for method in ("POST", "PUT", "DELETE")} == {(200, primary)}
        assert {name for name, _ in site.seen} == {primary}
        site.primary = "nobody"
        eventually("no primary", lambda: site.ask("POST") == (503, "down"))
        site.seen.clear()
        assert {site.ask("POST") for _ in range(30)} == {(503, "down")}
        assert not site.seen


def test_reads_go_to_fresh_nodes_only_even_if_few_or_none_are(site):
    all_nodes = {(200, name) for name in NODES}
    eventually("all", lambda: site.reads() == all_nodes)
    site.stale = {"node1", "node3"}
    eventually("one of three", lambda: site.reads() == {(200, "node2")})
    site.stale = {*NODES}
    eventually("none", lambda: site.reads() == {(503, "down")})
    site.stale = set()
    eventually("all again", lambda: site.reads() == all_nodes)


def test_a_failed_read_is_retried_elsewhere_and_a_write_is_sent_once(site):
    eventually("all", lambda: len(site.reads()) == len(NODES))
    eventually("a primary", lambda: site.ask("POST") == (200, "node1"))
    site.ailing = {"node1", "node2"}
    site.seen.clear()
    assert site.reads() == {(200, "node3")}
    assert site.seen["node1", "GET"] > 0
    assert site.ask("POST") == (503, "node1")
    assert site.seen["node1", "POST"] == 1 and site.seen["node2", "POST"] == 0
