"""Workers of Envoy and threads of HAProxy share one ring, and keep the bounds together."""

import asyncio
from contextlib import ExitStack

import pytest
from envoy_site import Site

from tests.harness.envoy import Envoy
from tests.harness.eventually import LOADED_LIMIT_S, eventually, until
from tests.harness.functions import owner
from tests.harness.haproxy import SETTINGS, HAProxy, configuration, start_with_policy
from tests.harness.traffic import Load

BOUNDS = {"node1": 40, "node2": 20}
THREADS = 2


@pytest.fixture(scope="module")
def shared_bounds() -> tuple[int, ...]:
    """Bounds so low that a little load exceeds them."""
    return tuple(BOUNDS.values())


def overload(site: Site, ports: list[int], dispatchers: int, clients: int) -> Load:
    """Overloads the site with closed-loop clients, and checks the bounds once all shares have grown."""

    async def run() -> Load:
        async with Load(ports, clients, 0) as load:
            # Refused clients retry at once, so only requests that were served show that shares have grown.
            await until("shares by demand", lambda: all(map(is_filled, BOUNDS)))
            site.nodes.peak.clear()
            load.answers.clear()
            await until("more answers", lambda: load.answers["200"] > 10 * clients)
        return load

    def is_filled(node: str) -> bool:
        return site.nodes.peak[node] > BOUNDS[node] / 4

    site.nodes.seconds = 0.05
    try:
        load = asyncio.run(run())
    finally:
        site.nodes.seconds = 0
    assert not load.lost
    assert set(load.answers) == {"200", "503 full"}, load.answers
    # A dispatcher admits a request larger than its whole share if nothing else of it is in flight.
    for node, bound in BOUNDS.items():
        assert bound / 4 < site.nodes.peak[node] <= bound + dispatchers, site.nodes.peak
    return load


@pytest.mark.parametrize("policy", ["fc_prop", "weighted_round_robin", "load_informed"])
def test_each_policy_keeps_the_bounds_under_overload(shared, policy):
    envoy = shared.envoy(name=policy, concurrency=2, policy=policy)
    shared.wait_in_force(envoy)
    overload(shared, [envoy.port], 2, 150)
    assert sum(envoy.counts()[:2]) > 0
    envoy.kill()


@pytest.fixture
def haproxy(stack: ExitStack, shared: Site) -> HAProxy:
    directory = shared.directory / "haproxy"
    settings = SETTINGS.format(name="lb1", redis=shared.redis.port, policy="fc_hash", age=2)
    servers = {f"node{number}": port for number, port in enumerate(shared.nodes.ports, 1)}
    return start_with_policy(stack, directory, settings, configuration(directory, servers, THREADS))


@pytest.fixture
def envoy(shared: Site) -> Envoy:
    envoy = shared.envoy(concurrency=4)
    shared.wait_in_force(envoy)
    return envoy


def test_haproxy_and_envoy_place_alike_and_share_the_bounds(shared, envoy, haproxy):
    keys = [f"S{number:04}" for number in range(300)]
    # Each thread and worker takes the ring by itself, and a busy machine may end a node's lease meanwhile.
    eventually("the ring's nodes", lambda: place_by_ring(shared, keys, envoy, haproxy), LOADED_LIMIT_S)
    # The bounds are shared by six dispatchers.
    load = overload(shared, [envoy.port, haproxy.port], 4 + THREADS, 200)
    assert load.answers["503 full"] > 0


def place_by_ring(site: Site, keys: list[str], envoy: Envoy, haproxy: HAProxy) -> bool:
    _, _, names, owners = site.cluster.ring()
    by_ring = [owner(key, names, owners) for key in keys]
    return by_ring == [*map(envoy.node_of, keys)] == [*map(haproxy.server_of, keys)]
