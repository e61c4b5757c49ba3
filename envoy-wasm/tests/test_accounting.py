"""The cost in flight is counted exactly, however a request ends."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from envoy_site import Client, Site
from http2 import connect

from tests.harness.envoy import Envoy, manager_of
from tests.harness.envoy_filter import FILTERS, KINDS, ON_OLDEST, Filter, needs_envoy
from tests.harness.eventually import eventually

# Cost of requests held at each node during a test; without them a cost released twice would not show.
HELD = {"node1": 7, "node2": 11}
MARK = 1000
HOLDS = itertools.count()
# The module among the HTTP filters only, without upstream filters.
BY_REQUEST = "module by request"
MODES = [*FILTERS, BY_REQUEST]
on_each_envoy = pytest.mark.parametrize("mode", [*MODES, ON_OLDEST], indirect=True)


def route(prefix: str, **action: Any) -> dict[str, Any]:
    return {"match": {"prefix": prefix}, **action}


def forward(prefix: str, **more: Any) -> dict[str, Any]:
    return route(prefix, route={"cluster": "queries", "timeout": "60s", **more})


def retry(on: str, **more: Any) -> dict[str, Any]:
    # Never retries at a host that was tried before.
    kind = "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
    others = {"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": {"@type": kind}}
    return {"retry_on": on, "num_retries": 1, "retry_host_predicate": [others], **more}


ROUTES = [
    forward("/limited/", timeout="0.3s"),
    forward("/again/", retry_policy=retry("5xx,reset,connect-failure", per_try_timeout="0.3s")),
    forward("/patient/", retry_policy=retry("5xx")),
    forward(
        "/hedged/",
        retry_policy=retry("5xx", per_try_timeout="0.2s"),
        hedge_policy={"hedge_on_per_try_timeout": True},
    ),
    forward("/inside/", internal_redirect_policy={"max_internal_redirects": 1}),
    route("/direct/", direct_response={"status": 418}),
    route("/moved/", redirect={"path_redirect": "/elsewhere"}),
]


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def filter_kind(mode: str) -> Filter:
    kind = KINDS["module" if mode == BY_REQUEST else mode]
    needs_envoy(kind.envoy(), kind.oldest)
    return kind


@pytest.fixture(scope="module")
def envoy(shared: Site, mode: str) -> Envoy:
    shared.force_bounds()
    config = shared.config()
    manager = manager_of(config["static_resources"]["listeners"][0])
    manager["route_config"]["virtual_hosts"][0]["routes"][:0] = ROUTES
    if mode == BY_REQUEST:
        del manager["http_filters"][-1]["typed_config"]["upstream_http_filters"]
    envoy = shared.envoy(config=config)
    shared.wait_in_force(envoy)
    return envoy


class Ledger:
    """Checks what one Envoy has in flight."""

    def __init__(self, site: Site, envoy: Envoy) -> None:
        self._site, self._envoy = site, envoy

    def is_exactly(self, cost: float, requests: int) -> None:
        eventually(
            f"{cost} in flight, by {requests}", lambda: self._site.in_flight(self._envoy) == (cost, requests)
        )

    def settle(self) -> None:
        """Waits until the statistics are up to date: until a new request shows in them, and its end, too."""
        base = sum(HELD.values())
        with self.held(MARK):
            self.is_exactly(base + MARK, len(HELD) + 1)
        self.is_exactly(base, len(HELD))

    @contextmanager
    def held(self, cost: float, key: str = "S0001") -> Iterator[None]:
        hold = f"held{next(HOLDS)}"
        client = Client(self._envoy.port, f"/stock/{key}?items={cost}&hold={hold}")
        yield
        self._site.nodes.let_go(hold)
        assert client.status() == 200


@pytest.fixture
def ledger(shared: Site, envoy: Envoy, request: pytest.FixtureRequest) -> Iterator[Ledger]:
    ledger = Ledger(shared, envoy)
    one, two = ((cost, shared.key_of(node)) for node, cost in HELD.items())
    with ledger.held(*one), ledger.held(*two):
        ledger.is_exactly(sum(HELD.values()), len(HELD))
        yield ledger
        ledger.settle()
    ledger.is_exactly(0, 0)


def arrives(shared: Site, path: str) -> Callable[[], bool]:
    return lambda: any(seen[":path"] == path for _, seen in shared.nodes.seen)


def test_an_answered_request_is_released(envoy, ledger):
    assert envoy.get("/stock/S0001?items=60")[0] == 200


def test_several_requests_on_one_connection_are_released(envoy, ledger):
    client = Client(envoy.port, "/stock/S0001?items=60")
    client.read_until(b"0123456789")
    client.send("GET /stock/S0002?items=60 HTTP/1.1\r\nhost: x\r\n\r\n")
    assert client.status() == 200


@pytest.mark.parametrize("reset", [True, False])
def test_a_client_leaves_before_the_answer(shared, envoy, ledger, reset):
    path = f"/stock/S0001?items=60&hold=never{reset:d}"
    client = Client(envoy.port, path)
    eventually("the request at a node", arrives(shared, path))
    ledger.is_exactly(sum(HELD.values()) + 60, len(HELD) + 1)
    client.leave(reset)


@on_each_envoy
def test_clients_that_leave_do_not_eject_a_node(shared, envoy, ledger):
    before = envoy.stats()["ejections_total"]
    for number in range(10):
        path = f"/stock/S0001?items=60&hold=never&number={number}"
        client = Client(envoy.port, path)
        eventually("the request at a node", arrives(shared, path))
        client.leave()
    ledger.settle()
    assert envoy.stats()["ejections_total"] == before


def test_clients_that_reset_their_streams_do_not_eject_a_node(shared, envoy, ledger):
    before = envoy.stats()["ejections_total"]
    path = "/stock/S0001?items=60&hold=neverreset"

    async def reset() -> None:
        streams, reader = await connect(envoy.port)
        streams.ask(10, path)
        there = lambda: sum(seen[":path"] == path for _, seen in shared.nodes.seen) == 10  # noqa: E731
        await asyncio.to_thread(eventually, "the requests at a node", there)
        streams.cancel_all()
        await asyncio.to_thread(ledger.is_exactly, sum(HELD.values()), len(HELD))
        streams.close()
        await reader

    asyncio.run(reset())
    ledger.settle()
    assert envoy.stats()["ejections_total"] == before


def test_a_client_leaves_at_once(envoy, ledger):
    for _ in range(20):
        Client(envoy.port, "/stock/S0001?items=60&hold=never").leave()


def test_a_client_leaves_within_its_headers(envoy, ledger):
    client = Client(envoy.port, "/stock/S0001?items=60")
    client.read_until(b"0123456789")
    client.send("GET /stock/S0002?items=60 HTTP/1.1\r\nhost:")
    client.leave()


@pytest.mark.parametrize("reset", [True, False])
def test_a_client_leaves_within_its_request_body(envoy, ledger, reset):
    client = Client(envoy.port, "/stock/S0001?items=60")
    client.read_until(b"0123456789")
    client.send("PUT /stock/S0002?items=60 HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n01234")
    ledger.is_exactly(sum(HELD.values()) + 60, len(HELD) + 1)
    client.leave(reset)


@pytest.mark.parametrize("reset", [True, False])
def test_a_client_leaves_during_a_retry(shared, envoy, ledger, reset):
    path = f"/patient/{shared.key_of('node1')}?items=60&status=500&at=node1&then=never4{reset:d}"
    client = Client(envoy.port, path)
    asked = lambda: [node for node, seen in shared.nodes.seen if seen[":path"] == path]  # noqa: E731
    eventually("the retry at the other node", lambda: asked() == ["node1", "node2"])
    ledger.is_exactly(sum(HELD.values()) + 60, len(HELD) + 1)
    client.leave(reset)


def test_a_client_leaves_within_the_response_body(shared, envoy, ledger):
    client = Client(envoy.port, "/stock/S0001?items=60&half=never")
    client.read_until(b"01234")
    ledger.is_exactly(sum(HELD.values()) + 60, len(HELD) + 1)
    client.leave()
    shared.nodes.let_go("never")


def test_a_node_resets_before_its_answer(envoy, ledger):
    assert envoy.get("/again/S0001?items=60&reset=before")[0] == 503


def test_a_node_resets_within_its_response_body(envoy, ledger):
    client = Client(envoy.port, "/stock/S0001?items=60&reset=mid")
    assert client.status() == 200


def test_the_route_times_out(envoy, ledger):
    assert envoy.get("/limited/S0001?items=60&hold=never2")[0] == 504


def test_each_attempt_times_out(envoy, ledger):
    assert envoy.get("/again/S0001?items=60&hold=never2")[0] == 504


@on_each_envoy
def test_a_retry_goes_to_another_node(shared, envoy, ledger):
    for fault in ("hold=never2", "reset=before", "status=500"):
        key = shared.key_of("node1")
        status, headers = envoy.get(f"/again/{key}?items=60&{fault}&at=node1")
        assert (status, headers["x-node"]) == (200, "node2"), fault


def test_a_hedged_request_is_released(shared, envoy, ledger):
    key = shared.key_of("node1")
    status, headers = envoy.get(f"/hedged/{key}?items=60&hold=never2&at=node1")
    assert (status, headers["x-node"]) == (200, "node2")


def test_direct_responses_and_redirects_of_envoy_are_released(envoy, ledger):
    assert envoy.get("/direct/S0001?items=60")[0] == 418
    assert envoy.get("/moved/S0001?items=60")[0] == 301


def test_an_internal_redirect_is_released(envoy, ledger):
    to = f"http://127.0.0.1:{envoy.port}/stock/S0002"
    status, headers = envoy.get(f"/inside/S0001?items=60&status=302&location={to}")
    assert status == 200, headers


@on_each_envoy
def test_a_request_without_a_host_header_is_released(envoy, ledger):
    client = Client(envoy.port, "/stock/S0001?items=60")
    client.read_until(b"0123456789")
    client.send("GET /stock/S0002?items=60 HTTP/1.1\r\n\r\n")
    assert client.status() == 400


@on_each_envoy
def test_a_refused_request_holds_nothing(shared, envoy, ledger):
    with ledger.held(900, shared.key_of("node2")), ledger.held(2900, shared.key_of("node1")):
        status, headers = envoy.get("/stock/S0001?items=3000")
        assert (status, headers["plimsoll-reason"], headers["retry-after"]) == (503, "full", "1")


def test_a_node_with_a_closed_port_is_ejected_and_loses_no_request(site):
    """Requests for the node are retried at the other one until it is ejected."""
    config = site.config()
    queries = next(found for found in config["static_resources"]["clusters"] if found["name"] == "queries")
    del queries["health_checks"]
    site.nodes.close(1)
    envoy = site.envoy(config=config)
    key = site.key_of("node2")
    eventually("decisions", lambda: envoy.get(f"/stock/{key}")[0] == 200 and envoy.counts()[0] > 0)
    eventually(
        "an ejection", lambda: envoy.get(f"/stock/{key}")[0] == 200 and envoy.stats()["ejections_total"] > 0
    )
    eventually("nothing in flight", lambda: site.in_flight(envoy) == (0, 0))
    refused = envoy.stats("cluster.queries.upstream_cx_connect_fail")
    assert refused["cluster.queries.upstream_cx_connect_fail"] >= 5


def test_envoy_ends_cleanly_with_requests_in_flight(shared):
    envoy = shared.envoy(name="ends", concurrency=2)
    shared.wait_in_force(envoy)
    path = "/stock/S0001?items=6&hold=never3"
    clients = [Client(envoy.port, path) for _ in range(20)]
    eventually("all in flight", lambda: shared.in_flight(envoy) == (20 * 6, 20))
    envoy.process.terminate()
    assert envoy.process.wait(30) == 0
    for client in clients:
        client.leave()
    assert "panicked" not in envoy.said()
