"""docs/envoy-filter.md and docs/envoy-module.md, from their text, on hosts with the real programs."""

from typing import Any

import yaml

from docs.tests.cluster import Nodes, install_agents, node_of, start_redis, without_source
from docs.tests.guide import Guide, merged
from docs.tests.host import Host
from tests.harness import ROOT, programs

TOKEN = "a-token-of-this-test"
EXAMPLES = {"envoy-wasm": "wasm-fc-hash.yaml", "envoy-module": "module-fc-hash.yaml"}


def endpoints(port: int) -> list[dict[str, Any]]:
    at = [{"socket_address": {"address": f"192.0.2.1{n}", "port_value": port}} for n in (1, 2)]
    return [{"lb_endpoints": [{"endpoint": {"address": address}} for address in at]}]


def configuration(area: str, per_route: str) -> str:
    """The example at this test's addresses, with a token, and a route that the filter is not for."""
    text = (ROOT / area / "examples" / EXAMPLES[area]).read_text()
    text = text.replace('"cluster": "stocks",', f'"cluster": "stocks", "token": "{TOKEN}",')
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


def places_by_the_ring(proxy: Host, node1: Host, validate: str) -> None:
    """Runs Envoy by /etc/envoy.yaml, which the command finds fine."""
    checked = proxy.run(validate.strip().replace("envoy ", f"{programs.envoy()} -l warning ", 1) + " 2>&1")
    assert "[warning]" not in checked, checked
    proxy.start("envoy", programs.envoy(), "-c", "/etc/envoy.yaml", "--log-level", "warning")
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


def test_docs_envoy_filter_md_and_envoy_module_md(network):
    lb1, lb2 = network.host("lb1", "192.0.2.2"), network.host("lb2", "192.0.2.3")
    nodes = Nodes.make(network)
    start_redis(network)
    with Guide("envoy-filter.md") as guide, Guide("envoy-module.md") as module:
        text = install_agents(Guide("haproxy.md"), nodes)
        nodes.write(merged(without_source(text), guide.take("Agents", "toml")))
        nodes.run(f"echo {TOKEN} >/etc/plimsoll/token; systemctl restart plimsoll")
        nodes.ready()

        lb1.run(guide.take("Envoy", "sh"))
        lb1.write("/etc/envoy.yaml", configuration("envoy-wasm", guide.take("Envoy", "yaml")))
        lb2.run(module.take("Envoy", "sh"))
        lb2.write("/etc/envoy.yaml", configuration("envoy-module", module.take("Envoy", "yaml")))
        validate = module.take("Envoy", "sh")
        guide.leave("Agents with certificates", "yaml", "tests/end_to_end/envoy/test_tls.py runs it")
        for proxy in (lb1, lb2):
            places_by_the_ring(proxy, nodes.hosts[0], validate)
