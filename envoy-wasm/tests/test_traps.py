"""Clients cannot choose hosts by the header in which the wasm filter names them."""

import pytest
from envoy_site import Site

from tests.harness.envoy import Envoy, manager_of
from tests.harness.envoy_filter import FILTERS, Filter
from tests.harness.eventually import eventually

HEADER = "x-plimsoll-hosts"
UNFILTERED = {
    "match": {"prefix": "/unfiltered/"},
    "route": {"cluster": "queries"},
    "typed_per_filter_config": {
        "plimsoll": {
            "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig",
            "disabled": True,
        }
    },
}


@pytest.fixture(scope="module")
def filter_kind() -> Filter:
    """The wasm build only: the others name hosts without a header."""
    return FILTERS["wasm"]


@pytest.fixture(scope="module")
def envoy(shared: Site) -> Envoy:
    config = shared.config()
    manager = manager_of(config["static_resources"]["listeners"][0])
    manager["route_config"]["virtual_hosts"][0]["routes"].insert(0, UNFILTERED)
    envoy = shared.envoy(config=config)
    shared.wait_in_force(envoy)
    return envoy


def address(site: Site, node: str) -> str:
    return f"127.0.0.1:{site.nodes.ports[int(node[-1]) - 1]}"


def asked(site: Site, before: int) -> list[tuple[str, dict[str, str]]]:
    return site.nodes.seen[before:]


@pytest.mark.parametrize("spelling", [HEADER, "X-Plimsoll-Hosts"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_clients_header_does_not_choose_the_host(shared, envoy, spelling, times):
    key, other = shared.key_of("node1"), address(shared, "node2")
    before = len(shared.nodes.seen)
    status, answer = envoy.get(f"/stock/{key}", [(spelling, other)] * times)
    assert (status, answer["x-node"]) == (200, "node1")
    assert all(HEADER not in headers for _, headers in asked(shared, before))


def test_a_clients_header_has_no_effect_on_routes_without_the_filter(shared, envoy):
    before = len(shared.nodes.seen)

    def both_are_asked() -> bool:
        assert envoy.get("/unfiltered/x", [(HEADER, address(shared, "node2"))])[0] == 200
        return {node for node, _ in asked(shared, before)} == {"node1", "node2"}

    # Envoy may not have seen yet that the other node is healthy.
    eventually("both nodes are asked", both_are_asked)
    assert all(HEADER not in headers for _, headers in asked(shared, before))


def test_a_clients_header_is_removed_while_the_filter_names_no_hosts(shared):
    """Nor do requests wait for agents that Envoy does not have."""
    envoy = shared.envoy(name="alone", agents="nobody")
    before = len(shared.nodes.seen)
    for number in range(40):
        assert envoy.get(f"/stock/S{number}", [(HEADER, address(shared, "node2"))])[0] == 200
    assert {node for node, _ in asked(shared, before)} == {"node1", "node2"}
    assert all(HEADER not in headers for _, headers in asked(shared, before))
    assert envoy.counted((0, 0, 0), 40) == (0, 0, 40)
    envoy.wait_said("shares: Envoy has no cluster nobody")
