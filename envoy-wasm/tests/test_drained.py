"""A node that takes no work gets none, not even from retries beyond the hosts that the filter named."""

from collections.abc import Iterator

import pytest
from envoy_site import Site

from tests.harness.envoy import Envoy, manager_of
from tests.harness.eventually import eventually

RETRIES = {"retry_on": "5xx", "num_retries": 4}
AGAIN = {
    "match": {"prefix": "/again/"},
    "route": {"cluster": "queries", "timeout": "10s", "retry_policy": RETRIES},
}


@pytest.fixture(scope="module")
def envoy(shared: Site) -> Envoy:
    config = shared.config(alternatives=RETRIES["num_retries"])
    manager = manager_of(config["static_resources"]["listeners"][0])
    manager["route_config"]["virtual_hosts"][0]["routes"].insert(0, AGAIN)
    envoy = shared.envoy(config=config)
    shared.wait_in_force(envoy)
    return envoy


@pytest.fixture(params=[("drain",), ("force", "down")], ids=" ".join)
def without_node2(shared: Site, envoy: Envoy, request: pytest.FixtureRequest) -> Iterator[None]:
    shared.node("node2", *request.param)
    key = shared.key_of("node2")
    eventually("nothing at node2", lambda: envoy.node_of(key) == "node1")
    # The ring may arrive up to a period before the node's state.
    again = f"/again/{key}?status=500&at=node1"
    eventually("nor retries", lambda: envoy.get(again)[0] == 500)
    yield
    shared.node("node2", "ready")
    shared.node("node2", "force", "auto")
    shared.wait_ring()
    eventually("node2 again", lambda: envoy.node_of(shared.key_of("node2")) == "node2")


@pytest.mark.usefixtures("without_node2")
def test_a_node_that_is_drained_or_down_gets_no_request(shared, envoy):
    before = len(shared.nodes.seen)
    for number in range(50):
        assert envoy.node_of(f"S{number:04}") == "node1"
    # Not even if all other hosts fail, more often than there are hosts named.
    for number in range(10):
        assert envoy.get(f"/again/S{number:04}?status=500&at=node1")[0] == 500
    assert {node for node, _ in shared.nodes.seen[before:]} == {"node1"}
    eventually("nothing in flight", lambda: shared.in_flight(envoy) == (0, 0))
