"""A host that Envoy takes for unhealthy, while its agent is well, gets nothing from the module."""

import pytest

from tests.harness.envoy_filter import FILTERS, Filter
from tests.harness.eventually import eventually


@pytest.fixture(scope="module")
def filter_kind() -> Filter:
    """The override-host policy that follows the wasm filter's names asks such hosts all the same."""
    return FILTERS["module"]


@pytest.mark.parametrize("health", ["UNHEALTHY", "DRAINING"])
def test_its_keys_go_to_another_node(shared, health):
    config = shared.config()
    queries = next(found for found in config["static_resources"]["clusters"] if found["name"] == "queries")
    del queries["health_checks"]
    queries["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["health_status"] = health
    envoy = shared.envoy(name=health.lower(), config=config)
    eventually("decisions", lambda: envoy.get("/stock/S0001")[0] == 200 and envoy.counts()[0] > 0)
    before = len(shared.nodes.seen)
    for number in range(50):
        assert envoy.node_of(shared.key_of("node1", number)) == "node2"
    assert {node for node, _ in shared.nodes.seen[before:]} == {"node2"}
    assert envoy.stats("cluster.queries.upstream_rq_retry$")["cluster.queries.upstream_rq_retry"] == 0
    eventually("nothing in flight", lambda: shared.in_flight(envoy) == (0, 0))
