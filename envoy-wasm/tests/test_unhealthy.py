"""A host that Envoy considers unhealthy gets no request from the module, though its agent is well."""

from typing import Any

import pytest
from envoy_site import Site

from tests.harness.envoy_filter import FILTERS, Filter, needs_envoy
from tests.harness.eventually import eventually


@pytest.fixture(scope="module")
def filter_kind() -> Filter:
    """The module only: with the wasm filter, the override-host policy uses such hosts all the same."""
    kind = FILTERS["module"]
    needs_envoy(kind.envoy(), kind.oldest)
    return kind


def config_of(shared: Site, *health: str) -> dict[str, Any]:
    """A configuration with the given health status of each node."""
    config = shared.config()
    queries = next(found for found in config["static_resources"]["clusters"] if found["name"] == "queries")
    del queries["health_checks"]
    hosts = queries["load_assignment"]["endpoints"][0]["lb_endpoints"]
    for host, told in zip(hosts, health, strict=True):
        host["health_status"] = told
    return config


@pytest.mark.parametrize("health", ["UNHEALTHY", "DRAINING"])
def test_keys_of_an_unhealthy_node_go_to_another(shared, health):
    config = config_of(shared, health, "UNKNOWN")
    envoy = shared.envoy(name=health.lower(), config=config)
    eventually("decisions", lambda: envoy.get("/stock/S0001")[0] == 200 and envoy.counts()[0] > 0)
    before = len(shared.nodes.seen)
    for number in range(50):
        assert envoy.node_of(shared.key_of("node1", number)) == "node2"
    assert {node for node, _ in shared.nodes.seen[before:]} == {"node2"}
    assert envoy.stats("cluster.queries.upstream_rq_retry$")["cluster.queries.upstream_rq_retry"] == 0
    eventually("nothing in flight", lambda: shared.in_flight(envoy) == (0, 0))


def test_envoy_answers_503_if_no_host_is_healthy(shared):
    """Envoy has no panic threshold for a module's policy, and accepts only the index of a healthy host."""
    envoy = shared.envoy(name="none", config=config_of(shared, "UNHEALTHY", "UNHEALTHY"))
    before = len(shared.nodes.seen)
    for number in range(5):
        status, headers = envoy.get(f"/stock/S{number:04}")
        assert (status, headers.get("plimsoll-reason")) == (503, None)
    assert len(shared.nodes.seen) == before
    eventually("nothing in flight", lambda: envoy.stats().get("in_flight_requests") == 0)
