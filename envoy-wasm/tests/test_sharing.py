"""An Envoy's workers, listeners and configuration updates share the state of a cluster."""

import copy
import time
from collections.abc import Iterator
from typing import Any

import pytest
from envoy_site import Client, Load, Site

from tests.harness.envoy import Envoy, set_filter
from tests.harness.eventually import eventually
from tests.harness.ports import free_ports

PERIOD = 0.2


def second_listener(config: dict[str, Any], **settings: Any) -> int:
    """Adds another listener with the filter, and returns its port."""
    listeners = config["static_resources"]["listeners"]
    (port,) = free_ports(1)
    other = copy.deepcopy(listeners[0]) | {"name": "second"}
    other["address"]["socket_address"]["port_value"] = port
    set_filter(other, **settings)
    listeners.append(other)
    return port


def held(port: int, hold: str) -> Client:
    return Client(port, f"/stock/S0001?items=60&hold={hold}")


def test_one_exchange_serves_all_workers(fake_site):
    site, agent = fake_site
    config = site.config(period=PERIOD, proxy="four")
    second_listener(config)
    envoy = site.envoy(name="four", concurrency=4, config=config)
    names = lambda: [told["name"] for told in agent.exchanges[-1]["dispatchers"]]  # noqa: E731
    eventually("every worker's demand", lambda: agent.exchanges and len(names()) >= 4)
    # Envoy's main thread has a VM, too, which gets no requests and stops reporting.
    for _ in range(100):
        envoy.get("/stock/S0001")
    eventually("only workers", lambda: len(names()) == 4)
    assert len(set(names())) == 4
    assert all(name.startswith("four/") for name in names())
    # With two fetchers, ten exchanges would take half as long.
    before, start = len(agent.exchanges), time.monotonic()
    eventually("ten exchanges", lambda: len(agent.exchanges) >= before + 10)
    assert time.monotonic() - start > 9 * 0.9 * PERIOD


def test_listeners_of_one_cluster_count_together(shared):
    config = shared.config()
    port = second_listener(config)
    envoy = shared.envoy(name="together", config=config)
    shared.wait_in_force(envoy)
    clients = [held(envoy.port, "one"), held(port, "one")]
    eventually("both in flight", lambda: shared.in_flight(envoy) == (120, 2))
    shared.nodes.let_go("one")
    assert [client.status() for client in clients] == [200, 200]
    eventually("nothing in flight", lambda: shared.in_flight(envoy) == (0, 0))


def test_clusters_do_not_mix(shared):
    """Not even if both use the same ring."""
    config = shared.config()
    port = second_listener(config, cluster="other")
    envoy = shared.envoy(name="apart", config=config)
    shared.wait_in_force(envoy)
    client = held(port, "two")
    eventually("one in flight", lambda: envoy.stats()["in_flight_cost.cluster.other"] == 60)
    assert shared.in_flight(envoy) == (0, 0)
    shared.nodes.let_go("two")
    assert client.status() == 200
    eventually("nothing in flight", lambda: envoy.stats()["in_flight_cost.cluster.other"] == 0)
    before = envoy.counts()
    for number in range(30):
        assert envoy.get(f"/stock/S{number}")[0] == 200
    assert envoy.counted(before, 30) == (30, 0, 0)


@pytest.fixture
def updatable(shared: Site) -> Iterator[tuple[Envoy, dict[str, Any]]]:
    config = shared.config() | {"dynamic_resources": {}}
    (listener,) = config["static_resources"]["listeners"]
    words = ("--drain-time-s", "2", "--drain-strategy", "immediate")
    envoy = shared.envoy(name="updated", concurrency=2, config=config, words=words)
    shared.wait_in_force(envoy)
    yield envoy, listener
    # The next Envoy uses the same file of listeners.
    envoy.kill()


def manager_stat(envoy: Envoy, name: str) -> float:
    return envoy.stats(f"listener_manager.{name}")[f"listener_manager.{name}"]


def test_listener_updates_under_load_lose_no_request(shared, updatable):
    envoy, listener = updatable
    with Load(envoy, clients=4) as load:
        for number in range(1, 4):
            set_filter(listener, spill=number / 10)
            envoy.put_listeners([listener])
            updates = 1 + number
            eventually(
                "an update", lambda updates=updates: manager_stat(envoy, "lds.update_success") == updates
            )
            load.goes_on()
    assert set(load.answers) == {200}
    eventually("nothing in flight", lambda: shared.in_flight(envoy) == (0, 0))


def test_filter_updates_keep_counts_and_a_rejected_one_has_no_effect(shared, updatable):
    envoy, listener = updatable
    client = held(envoy.port, "three")
    eventually("one in flight", lambda: shared.in_flight(envoy) == (60, 1))

    set_filter(listener, spill=7)
    envoy.put_listeners([listener])
    eventually("a rejected update", lambda: manager_stat(envoy, "lds.update_rejected") == 1)
    assert "plimsoll: spill: must be a number within 0..1, is 7" in envoy.said()
    assert envoy.get("/stock/S0001")[0] == 200
    # Workers publish their counts with a delay.
    eventually("the first one alone", lambda: shared.in_flight(envoy) == (60, 1))

    set_filter(listener, spill=0.4)
    envoy.put_listeners([listener])
    eventually("an update", lambda: manager_stat(envoy, "lds.update_success") == 2)
    assert envoy.get("/stock/S0001")[0] == 200
    eventually("the first one alone", lambda: shared.in_flight(envoy) == (60, 1))
    shared.nodes.let_go("three")
    assert client.status() == 200
    eventually("nothing in flight", lambda: shared.in_flight(envoy) == (0, 0))

    def draining() -> float:
        names = ("total_listeners_draining", "total_filter_chains_draining")
        return sum(manager_stat(envoy, name) for name in names)

    eventually("the end of the old configuration", lambda: draining() == 0)
    # Its calls to agents ended with it; new ones must follow before the shares are stale.
    before, end = envoy.counts(), time.monotonic() + 4
    requests = 0
    while time.monotonic() < end:
        assert envoy.get("/stock/S0001")[0] == 200
        requests += 1
    assert envoy.counted(before, requests) == (requests, 0, 0)
