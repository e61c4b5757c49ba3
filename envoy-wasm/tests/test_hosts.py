"""Hosts that come and go while requests run, by endpoint discovery and by DNS."""

import struct
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from socketserver import BaseRequestHandler, UDPServer
from typing import Any

import pytest
import yaml
from envoy_site import Client, Load, Site

from tests.harness.envoy import endpoints
from tests.harness.eventually import eventually

TYPES = "type.googleapis.com/envoy"
NODES = ("node1", "node2")


class Discovery:
    """Endpoint discovery by a file that Envoy watches."""

    def __init__(self, stack: ExitStack, directory: Path, ports: dict[str, int]) -> None:
        self._file, self._ports = directory / "endpoints.yaml", ports
        self.put(NODES)

    def use(self, cluster: dict[str, Any]) -> None:
        del cluster["load_assignment"]
        source = {"path_config_source": {"path": str(self._file)}}
        cluster |= {"type": "EDS", "eds_cluster_config": {"eds_config": source}}

    def put(self, names: Iterable[str]) -> None:
        found = endpoints(self._ports[name] for name in names)
        kind = f"{TYPES}.config.endpoint.v3.ClusterLoadAssignment"
        assignment = {"@type": kind, "cluster_name": "queries", "endpoints": [found]}
        new = self._file.with_suffix(".new")
        new.write_text(yaml.safe_dump({"resources": [assignment]}))
        new.rename(self._file)


class Dns:
    """A DNS server with the names `<node>.test`, all of them at 127.0.0.1."""

    def __init__(self, stack: ExitStack, directory: Path, ports: dict[str, int]) -> None:
        self._names, self._ports = set(NODES), ports
        dns = self

        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                query, answers = self.request
                answers.sendto(dns.answer(query), self.client_address)

        self._server = stack.enter_context(UDPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        stack.callback(self._server.shutdown)

    def use(self, cluster: dict[str, Any]) -> None:
        hosts = [endpoints([port], f"{name}.test") for name, port in self._ports.items()]
        cluster["load_assignment"]["endpoints"] = hosts
        server = {"address": "127.0.0.1", "port_value": self._server.server_address[1]}
        resolver = {
            "@type": f"{TYPES}.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
            "resolvers": [{"socket_address": server}],
            "dns_resolver_options": {"no_default_search_domain": True},
        }
        cluster |= {
            "type": "STRICT_DNS",
            "dns_refresh_rate": "0.1s",
            "dns_lookup_family": "V4_ONLY",
            "typed_dns_resolver_config": {
                "name": "envoy.network.dns_resolver.cares",
                "typed_config": resolver,
            },
        }

    def put(self, names: Iterable[str]) -> None:
        self._names = set(names)

    def answer(self, query: bytes) -> bytes:
        """RFC 1035: a header, the question, and one address with a TTL of 0."""
        end = query.index(b"\0", 12) + 5
        name = query[13 : 13 + query[12]].decode()
        known = name in self._names
        header = query[:2] + struct.pack(">5H", 0x8180 if known else 0x8183, 1, known, 0, 0)
        address = struct.pack(">HHHIH4B", 0xC00C, 1, 1, 0, 4, 127, 0, 0, 1)
        return header + query[12:end] + (address if known else b"")


@pytest.mark.parametrize("source", [Discovery, Dns])
def test_no_request_is_lost_while_hosts_come_and_go(shared: Site, stack, tmp_path, source):
    # Room for all clients in any worker's share: a refusal for want of room is no lost request.
    for name in NODES:
        shared.node(name, "force", "bound", "10000")
        stack.callback(shared.node, name, "force", "auto")
    ports = dict(zip(NODES, shared.nodes.ports, strict=True))
    hosts = source(stack, tmp_path, ports)
    config = shared.config()
    queries = next(found for found in config["static_resources"]["clusters"] if found["name"] == "queries")
    del queries["health_checks"]
    hosts.use(queries)
    envoy = shared.envoy(name=source.__name__, concurrency=2, config=config)
    shared.wait_in_force(envoy)
    keys = {name: shared.key_of(name) for name in NODES}
    client = Client(envoy.port, f"/stock/{keys['node2']}?items=60&hold={source.__name__}")
    eventually("one in flight", lambda: shared.in_flight(envoy) == (60, 1))
    with Load(envoy, clients=4) as load:
        for gone, other in (NODES, NODES[::-1], NODES):
            hosts.put([other])
            eventually(f"{gone} is gone", lambda key=keys[gone], other=other: envoy.node_of(key) == other)
            load.goes_on()
            hosts.put(NODES)
            eventually(f"{gone} is back", lambda key=keys[gone], gone=gone: envoy.node_of(key) == gone)
            load.goes_on()
        # A request at a node that is removed still gets its answer.
        hosts.put(["node1"])
        eventually("node2 is gone", lambda: envoy.node_of(keys["node2"]) == "node1")
        shared.nodes.let_go(source.__name__)
        assert client.status() == 200
    assert set(load.answers) == {200}
    eventually("nothing in flight", lambda: shared.in_flight(envoy) == (0, 0))
    assert "panicked" not in envoy.said()
