"""What the override-host policy would do with a header, a drained node or one retry more, if it were let."""

import subprocess
from collections.abc import Iterator

import pytest
from envoy_site import Envoy, Site, eventually, manager_of

from compose.lab import machine

HEADER = "x-plimsoll-hosts"
RETRIES = {"retry_on": "5xx", "num_retries": 4}
ROUTES = [
    {
        "match": {"prefix": "/again/"},
        "route": {"cluster": "queries", "timeout": "10s", "retry_policy": RETRIES},
    },
    {
        "match": {"prefix": "/unfiltered/"},
        "route": {"cluster": "queries"},
        "typed_per_filter_config": {
            "plimsoll": {
                "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig",
                "disabled": True,
            }
        },
    },
]


@pytest.fixture(scope="module")
def envoy(shared: Site) -> Envoy:
    config = shared.config(alternatives=RETRIES["num_retries"])
    manager = manager_of(config["static_resources"]["listeners"][0])
    manager["route_config"]["virtual_hosts"][0]["routes"][:0] = ROUTES
    envoy = shared.envoy(config=config)
    shared.wait_in_force(envoy)
    return envoy


def address(site: Site, node: str) -> str:
    return f"127.0.0.1:{site.nodes.ports[int(node[-1]) - 1]}"


def asked(site: Site, before: int) -> list[tuple[str, dict[str, str]]]:
    return site.nodes.seen[before:]


@pytest.mark.parametrize("spelling", [HEADER, "X-Plimsoll-Hosts"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_client_names_no_host(shared, envoy, spelling, times):
    key, other = shared.key_of("node1"), address(shared, "node2")
    before = len(shared.nodes.seen)
    status, answer = envoy.get(f"/stock/{key}", [(spelling, other)] * times)
    assert (status, answer["x-node"]) == (200, "node1")
    assert all(HEADER not in headers for _, headers in asked(shared, before))


def test_a_client_names_no_host_where_the_filter_is_off(shared, envoy):
    before = len(shared.nodes.seen)

    def both_are_asked() -> bool:
        assert envoy.get("/unfiltered/x", [(HEADER, address(shared, "node2"))])[0] == 200
        return {node for node, _ in asked(shared, before)} == {"node1", "node2"}

    # Envoy may not know yet that the other one is well.
    eventually("both nodes are asked", both_are_asked)
    assert all(HEADER not in headers for _, headers in asked(shared, before))


def test_a_client_names_no_host_while_the_filter_names_none(shared):
    """Nor do requests wait for agents that Envoy does not know."""
    envoy = shared.envoy(name="alone", agents="nobody")
    before = len(shared.nodes.seen)
    for number in range(40):
        assert envoy.get(f"/stock/S{number}", [(HEADER, address(shared, "node2"))])[0] == 200
    assert {node for node, _ in asked(shared, before)} == {"node1", "node2"}
    assert all(HEADER not in headers for _, headers in asked(shared, before))
    assert envoy.counted((0, 0, 0), 40) == (0, 0, 40)
    eventually("a warning", lambda: "shares: Envoy has no cluster nobody" in envoy.log.read_text())


def command(site: Site, node: str, *words: str) -> None:
    """`plimsoll node`, to the node's agent."""
    socket = site.directory / f"{node}.sock"
    subprocess.run(
        [machine.binary("plimsoll"), "node", "--socket", str(socket), *words], check=True, capture_output=True
    )


@pytest.fixture(params=[("drain",), ("force", "down")], ids=" ".join)
def without_node2(shared: Site, envoy: Envoy, request: pytest.FixtureRequest) -> Iterator[None]:
    command(shared, "node2", *request.param)
    key = shared.key_of("node2")
    eventually("nothing at node2", lambda: envoy.node_of(key) == "node1")
    # The ring may have come before the news of the node, by up to a period.
    again = f"/again/{key}?status=500&at=node1"
    eventually("nor retries", lambda: envoy.get(again)[0] == 500)
    yield
    command(shared, "node2", "ready")
    command(shared, "node2", "force", "auto")
    shared.wait_ring()
    eventually("node2 again", lambda: envoy.node_of(shared.key_of("node2")) == "node2")


@pytest.mark.usefixtures("without_node2")
def test_a_node_that_is_drained_or_down_gets_nothing(shared, envoy):
    before = len(shared.nodes.seen)
    for number in range(50):
        assert envoy.node_of(f"S{number:04}") == "node1"
    # Not even where all else fails, more often than hosts are named.
    for number in range(10):
        assert envoy.get(f"/again/S{number:04}?status=500&at=node1")[0] == 500
    assert {node for node, _ in asked(shared, before)} == {"node1"}
    eventually("nothing in flight", lambda: shared.in_flight(envoy) == (0, 0))
