"""docs/envoy-filter.md, from its text, on hosts with the real programs."""

from typing import Any

import yaml

from compose.lab import machine
from compose.lab.topology import ROOT
from docs.tests.cluster import Nodes, install_agents, node_of, start_redis, without_source
from docs.tests.guide import Guide, merged

TOKEN = "a-token-of-this-test"
EXAMPLE = ROOT / "envoy-wasm" / "examples" / "wasm-fc-hash.yaml"


def endpoints(port: int) -> list[dict[str, Any]]:
    at = [{"socket_address": {"address": f"192.0.2.1{n}", "port_value": port}} for n in (1, 2)]
    return [{"lb_endpoints": [{"endpoint": {"address": address}} for address in at]}]


def configuration(per_route: str) -> str:
    """The example at this test's addresses, with a token, and a route that the filter is not for."""
    text = EXAMPLE.read_text().replace('"cluster": "stocks",', f'"cluster": "stocks", "token": "{TOKEN}",')
    assert TOKEN in text
    whole = yaml.safe_load(text)
    resources = whole["static_resources"]
    for cluster in resources["clusters"]:
        cluster["load_assignment"]["endpoints"] = endpoints(
            9464 if cluster["name"] == "plimsoll_agents" else 8080
        )
    (chain,) = resources["listeners"][0]["filter_chains"]
    (host,) = chain["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]
    plain = {"match": {"prefix": "/plain"}, "route": {"cluster": "transactions"}}
    host["routes"].insert(0, plain | yaml.safe_load(per_route))
    return yaml.safe_dump(whole, sort_keys=False)


def test_docs_envoy_filter_md(network):
    proxy = network.host("lb1", "192.0.2.2")
    nodes = Nodes.make(network)
    node1 = nodes.hosts[0]
    start_redis(network)
    with Guide("envoy-filter.md") as guide:
        text = install_agents(Guide("haproxy.md"), nodes)
        nodes.write(merged(without_source(text), guide.take("Agents", "toml")))
        nodes.run(f"echo {TOKEN} >/etc/plimsoll/token; systemctl restart plimsoll")
        nodes.ready()

        proxy.run(guide.take("Envoy", "sh"))
        proxy.write("/etc/envoy.yaml", configuration(guide.take("Envoy", "yaml")))
        checked = proxy.run(f"{machine.envoy()} --mode validate -l warning -c /etc/envoy.yaml 2>&1")
        assert "[warning]" not in checked, checked
        proxy.start("envoy", machine.envoy(), "-c", "/etc/envoy.yaml", "--log-level", "warning")

        keys = " ".join(f"S{number}" for number in range(16))

        def ring_names() -> dict[str, str]:
            told = node1.run(f"plimsoll ring owner --url http://192.0.2.11:9464 {keys} || true")
            return dict(line.split() for line in told.splitlines())

        node1.wait("both nodes in the ring", lambda: set(ring_names().values()) == {"node1", "node2"})
        owners = ring_names()
        proxy.wait(
            "the ring's places", lambda: {key: node_of(proxy, f":8080/x/{key}") for key in owners} == owners
        )
        statistics = proxy.curl("http://127.0.0.1:9901/stats/prometheus")
        assert 'plimsoll_admitted_total{plimsoll_cluster="stocks"}' in statistics
        assert proxy.status("http://127.0.0.1:8080/plain") == "200"
