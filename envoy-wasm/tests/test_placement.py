"""Placement at primaries by Envoy: no object set runs at two nodes at once, and no request is lost."""

import asyncio
import time

import pytest

from tests.harness import programs
from tests.harness.envoy_filter import FILTERS, ON_OLDEST
from tests.harness.envoy_placement import WORKERS, EnvoySite
from tests.harness.eventually import eventually, until
from tests.harness.placement import runner
from tests.harness.primaries import ask, send

pytestmark = programs.needs(programs.wasm)


@pytest.fixture
def run_site(tmp_path, own_redis, filter_kind):
    kind = type("OwnSite", (EnvoySite,), {"filter_kind": filter_kind})
    return runner(kind, tmp_path, own_redis.start().load())


@pytest.mark.parametrize("filter_kind", [*FILTERS, ON_OLDEST], indirect=True)
def test_sets_are_handed_over_under_load(run_site):
    async def test(site: EnvoySite) -> None:
        await site.start()
        async with site.clients() as clients:
            await site.keeper.move_by_chance(12)
        clients.check(site.nodes)
        assert set(clients.answers) == {"200"}
        assert sum(site.nodes.ran.values()) == clients.answers["200"] > 300
        placed = lambda: sum(envoy.stats()["placement_placed_total"] for envoy in site.proxies)  # noqa: E731
        await asyncio.to_thread(eventually, "counts", lambda: placed() == clients.answers["200"])
        assert sum(site.keeper.loads.values()) > 0

    run_site(test)


def test_requests_for_a_primary_that_is_down_go_to_no_other_node(run_site):
    async def test(site: EnvoySite) -> None:
        await site.start(proxies=1)
        port = site.proxies[0].port
        async with site.clients() as clients:
            await until("load", lambda: len(clients.told) > 100)
            site.nodes.kill("node2")
            await until("refusals", lambda: clients.answers["503 down"] > 50)
        failed = [request for request, answer in clients.told.items() if answer != "200"]
        assert {site.nodes.where.get(request) for request in failed} <= {None, "node2"}
        assert site.nodes.twice == []
        assert max(site.nodes.ran.values()) == 1
        # A request that reached no node is not in doubt.
        assert site.proxies[0].stats()["placement_doubted_total"] <= clients.clients
        assert await ask(port, "s0", "other") == "200"
        await site.nodes.start("node2")
        assert await ask(port, "s1", "after") == "200"
        assert site.nodes.where["after"] == "node2"

    run_site(test)


def test_a_client_that_leaves_blocks_the_hand_over_for_as_long_as_its_request_may_run(run_site):
    async def test(site: EnvoySite) -> None:
        await site.start(proxies=1)
        streams = await asyncio.open_connection("127.0.0.1", site.proxies[0].port)
        task = asyncio.create_task(send(streams, "s1", "left", "/long"))
        await until("it runs", lambda: site.nodes.ran["left"] == 1)
        task.cancel()
        streams[1].close()
        left = time.monotonic()
        await site.keeper.move("node3", "=s1")
        assert time.monotonic() - left > 1.9

    run_site(test, request_limit=2)


@pytest.mark.parametrize("filter_kind", [*FILTERS, ON_OLDEST], indirect=True)
def test_held_requests_are_refused_in_time_and_dropped_when_the_client_leaves(run_site):
    async def test(site: EnvoySite) -> None:
        await site.start(proxies=1, wait=0.5)
        port = site.proxies[0].port
        since = site.keeper.leave("=s1")
        await site.keeper.known(since)
        assert await ask(port, "s1", "held") == "503 moving"
        streams = await asyncio.open_connection("127.0.0.1", port)
        task = asyncio.create_task(send(streams, "s1", "left"))
        await asyncio.sleep(0.1)
        task.cancel()
        streams[1].close()
        site.keeper.settle("node3", "=s1")
        await site.keeper.known(site.keeper.version)
        assert await ask(port, "s1", "after") == "200"
        assert site.nodes.where == {"after": "node3"}

    run_site(test)


@pytest.mark.parametrize("when_lost", ["serve", "hold"])
def test_writes_go_on_or_are_refused_while_agents_are_away(run_site, when_lost):
    async def test(site: EnvoySite) -> None:
        await site.start(proxies=1, wait=0.1)
        async with site.clients() as clients:
            await until("load", lambda: clients.answers["200"] > 100)
            site.agent.away = True
            if when_lost == "hold":
                await until("refusals", lambda: clients.answers["503 suspended"] > 100)
            else:
                enough = len(clients.told) + 500
                await until("load", lambda: len(clients.told) > enough)
                assert set(clients.answers) == {"200"}
            site.agent.away = False
            enough = clients.answers["200"] + 100
            await until("load", lambda: clients.answers["200"] > enough)
        clients.check(site.nodes)

    run_site(test, when_lost=when_lost, lease=1)


def test_a_paused_envoy_delays_hand_overs_but_breaks_none(run_site):
    async def test(site: EnvoySite) -> None:
        await site.start()
        paused = site.proxies[0]
        async with site.clients() as clients:
            await site.keeper.move_by_chance(3)
            paused.pause()
            since = site.keeper.leave("=s1")
            behind = lambda: [told for told, *_ in site.keeper.read()[0].values() if told < since]  # noqa: E731
            await until(
                "the other knows", lambda: len(behind()) == WORKERS + site.filter_kind.more_dispatchers
            )
            assert not site.keeper.is_through(since, "=s1")
            paused.resume()
            await until("all are through", lambda: site.keeper.is_through(since, "=s1"))
            site.keeper.settle("node3", "=s1")
            await site.keeper.move_by_chance(3)
        clients.check(site.nodes)

    run_site(test)


def test_the_former_primary_refuses_requests_queued_in_a_paused_envoy(run_site):
    async def test(site: EnvoySite) -> None:
        # Envoy sends one request at a time to each node, and queues the others.
        await site.start(workers=1, connections=1)
        paused, other = site.proxies
        long = asyncio.create_task(ask(paused.port, "s4", "long", "/long"))
        await until("it runs", lambda: site.nodes.ran["long"] == 1)
        late = asyncio.create_task(ask(paused.port, "s1", "late"))
        waits = "cluster.primary-node2.upstream_rq_pending_active"
        await asyncio.to_thread(eventually, "it waits", lambda: paused.stats(waits)[waits] == 1)
        paused.pause()
        before, since = site.keeper.fence(), site.keeper.leave("=s1")
        await until("through", lambda: site.keeper.is_through(since, "=s1"))
        site.keeper.settle("node3", "=s1")
        assert await ask(other.port, "s1", "new") == "200"
        site.nodes.release.set()
        paused.resume()
        assert await late == "409 fenced"
        assert site.nodes.where == {"long": "node2", "new": "node3"}
        # Each request has the fencing token of the table by which it was placed.
        assert [site.nodes.fence(request) for request in ("late", "new")] == [before, site.keeper.fence()]
        assert await long == "200"

    run_site(test, when_lost="hold", lease=1, request_limit=1)


def test_invalid_names_are_refused_and_clients_cannot_name_a_primary(run_site):
    async def test(site: EnvoySite) -> None:
        await site.start(proxies=1)
        port = site.proxies[0].port
        for number, name in enumerate(["", "x" * 129, "a b", "sch\xf6n"]):
            assert await ask(port, name, f"bad{number}") == "400 name", name
        for number, name in enumerate(["x" * 128, "=", "*3", ">node1", "-"]):
            assert await ask(port, name, f"good{number}") == "200", name
        forged = "s1\r\nx-plimsoll-primary: primary-node3"
        assert await ask(port, forged, "forged") == "200"
        assert site.nodes.where["forged"] == "node2"
        assert set(site.nodes.ran) == {f"good{number}" for number in range(5)} | {"forged"}

    run_site(test)


def test_requests_for_a_primary_unknown_to_envoy_are_refused(run_site):
    async def test(site: EnvoySite) -> None:
        await site.start(proxies=1)
        site.keeper.leave("=s1")
        site.keeper.settle("node9", "=s1")
        await site.keeper.known(site.keeper.version)
        assert await ask(site.proxies[0].port, "s1", "lost") == "503 down"
        await site.keeper.move("node2", "=s1")
        await site.keeper.known(site.keeper.version)
        assert await ask(site.proxies[0].port, "s1", "after") == "200"
        assert site.nodes.where == {"after": "node2"}

    run_site(test, request_limit=3600)
