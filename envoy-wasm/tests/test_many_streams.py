"""Ten thousand requests at once, over HTTP/2: twice as many sockets are more than many machines allow."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from envoy_site import Site
from http2 import OK, Server, connect

from tests.harness.eventually import LOADED_LIMIT_S, eventually

CONNECTIONS = 20
STREAMS = 500
ALL = CONNECTIONS * STREAMS
BOUND = 20 * ALL
PROTOCOL = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


@pytest.fixture
def bounds() -> tuple[int, ...]:
    return (BOUND, BOUND)


async def holds(what: str, condition: Callable[[], bool], check: Callable[[], None] = lambda: None) -> None:
    """Waits for a condition in a thread: it calls Envoy, and the nodes must not block meanwhile."""
    await asyncio.to_thread(eventually, what, condition, LOADED_LIMIT_S, check)


def test_ten_thousand_streams_are_counted(site: Site):
    asyncio.run(ten_thousand(site))


async def ten_thousand(site: Site) -> None:
    # A worker that is busy for longer than its lease loses its shares, and refuses.
    config = site.config(lease=60.0, age_limit=60.0)
    queries = next(found for found in config["static_resources"]["clusters"] if found["name"] == "queries")
    del queries["health_checks"]
    options = {
        "@type": f"type.googleapis.com/{PROTOCOL}",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    # All may be pending before the first connection to a node is there.
    thresholds = queries["circuit_breakers"]["thresholds"][0]
    thresholds["max_requests"] = thresholds["max_pending_requests"] = 2 * ALL
    queries["typed_extension_protocol_options"] = {PROTOCOL: options}
    for number in range(len(site.nodes.ports)):
        site.nodes.close(number)
    servers = [Server() for _ in site.nodes.ports]
    for server, port in zip(servers, site.nodes.ports, strict=True):
        await server.start(port)
    envoy = await asyncio.to_thread(site.envoy, 2, "envoy1", config)
    await asyncio.to_thread(site.force_bounds)
    await asyncio.to_thread(site.wait_in_force, envoy)
    for server in servers:
        server.holds = True
    at_nodes = lambda: sum(server.count() for server in servers)  # noqa: E731

    def in_flight(cost: float) -> Callable[[], bool]:
        return lambda: site.in_flight(envoy) == (cost, cost)

    clients = [await connect(envoy.port) for _ in range(CONNECTIONS)]
    for number, (streams, _) in enumerate(clients):
        streams.ask(STREAMS, f"/stock/S{number:04}")

    def none_is_answered() -> None:
        answers = Counter(answer for streams, _ in clients for answer in streams.answers)
        assert not answers, answers

    await holds("all at the nodes", lambda: at_nodes() == ALL, none_is_answered)
    await holds("all in flight", in_flight(ALL))

    stay, cancel, close = clients[0::2], clients[1::4], clients[3::4]
    for streams, _ in cancel:
        streams.cancel_all()
    for streams, _ in close:
        streams.close()
    await holds("half of them in flight", in_flight(len(stay) * STREAMS))
    for server in servers:
        for streams in server.connections:
            streams.answer_all()
    await holds("every answer", lambda: not any(streams.open for streams, _ in stay))
    assert all(streams.answers == [OK] * STREAMS for streams, _ in stay)
    await holds("nothing in flight", in_flight(0))
    for streams, reading in clients:
        streams.close()
        await reading
