"""Placement where something fails: nodes, proxies, Redis, clients that leave, names that are none."""

import asyncio
import csv
import os
import re
import select
import time

import pytest

from tests.harness.eventually import until
from tests.harness.haproxy_placement import Balancer, HAProxySite
from tests.harness.placement import Keeper
from tests.harness.primaries import GUIDE, Clients, ask, send

AGE = re.findall(r"`(http-request set-header x-request-start [^`]*)`", GUIDE)[0]
LIMIT = 1


def queued(proxy: Balancer, server: str) -> int:
    """Requests that wait for a connection to it."""
    rows = csv.DictReader(proxy.ask("show stat").lstrip("# ").splitlines())
    return sum(int(row["qcur"]) for row in rows if row["svname"] == server)


def test_a_primary_that_dies_in_the_middle_of_a_hand_over_takes_nothing_along(run_site):
    async def test(site: HAProxySite) -> None:
        await site.start()
        async with site.clients() as clients:
            long = asyncio.create_task(ask(site.proxies[0].port, "s1", "long", "/long"))
            await until("it runs", lambda: site.nodes.ran["long"])
            since = site.keeper.leave("=s1")
            await site.keeper.known(since)
            held = asyncio.create_task(ask(site.proxies[1].port, "s1", "held"))
            assert not site.keeper.is_through(since, "=s1")
            site.nodes.kill("node2")
            died = time.monotonic()
            assert await long == "502"
            # It is not known that the node is dead, so the request may be at work for as long as one may be.
            await until("the end of the doubt", lambda: site.keeper.is_through(since, "=s1"))
            assert time.monotonic() - died > 0.9
            site.keeper.settle("node3", "=s1")
            assert await held == "200"
            assert site.nodes.where["held"] == "node3"
        clients.check(site.nodes)

    run_site(test, request_limit=1)


def test_a_client_that_leaves_blocks_the_hand_over_for_as_long_as_its_request_may_run(run_site):
    async def test(site: HAProxySite) -> None:
        await site.start(proxies=1, defaults="    option abortonclose\n")
        streams = await asyncio.open_connection("127.0.0.1", site.proxies[0].port)
        task = asyncio.create_task(send(streams, "s1", "left", "/long"))
        await until("it runs", lambda: site.nodes.ran["left"])
        task.cancel()
        streams[1].close()
        left = time.monotonic()
        await site.keeper.move("node3", "=s1")
        assert time.monotonic() - left > 1.9
        await site.proxies[0].shows(doubted_total=1)

    run_site(test, request_limit=2)


def test_a_paused_proxy_holds_hand_overs_up_and_breaks_none(run_site):
    async def test(site: HAProxySite) -> None:
        await site.start()
        paused = site.proxies[0]
        async with site.clients() as clients:
            await site.keeper.move_by_chance(5)
            paused.pause()
            since = site.keeper.leave("=s1")
            behind = lambda: [version for version, *_ in site.keeper.read()[0].values() if version < since]  # noqa: E731
            await until("the other knows", lambda: len(behind()) == 2)
            enough = len(clients.told) + 100
            await until("load", lambda: len(clients.told) > enough)
            assert not site.keeper.is_through(since, "=s1")
            paused.resume()
            await until("all are through", lambda: site.keeper.is_through(since, "=s1"))
            site.keeper.settle("node3", "=s1")
            await site.keeper.move_by_chance(5)
        clients.check(site.nodes)
        assert set(clients.answers) <= {"200", "503 moving"}

    run_site(test)


def test_a_proxy_that_serves_goes_on_while_redis_is_away(run_site):
    async def test(site: HAProxySite) -> None:
        await site.start()
        async with site.clients() as clients:
            await site.keeper.move_by_chance(3)
            await site.keeper.known(site.keeper.version)
            site.redis.kill()
            enough = len(clients.told) + 500
            await until("load", lambda: len(clients.told) > enough)
        clients.check(site.nodes)
        assert set(clients.answers) == {"200"}

    run_site(test)


def test_a_proxy_that_holds_lets_nobody_in_while_redis_is_away(run_site):
    async def test(site: HAProxySite) -> None:
        await site.start(wait=0.1)
        async with site.clients() as clients:
            await until("load", lambda: clients.answers["200"] > 100)
            site.redis.kill()
            await until("refusals", lambda: clients.answers["503 suspended"] > 100)
            done = sum(site.nodes.ran.values())
            refused = clients.answers["503 suspended"]
            await until("refusals", lambda: clients.answers["503 suspended"] > refused + 100)
            assert sum(site.nodes.ran.values()) == done
        clients.check(site.nodes)

    run_site(test, when_lost="hold", lease=1)


def test_a_paused_proxy_that_holds_sends_nothing_when_it_wakes(run_site):
    async def test(site: HAProxySite) -> None:
        await site.start(wait=0)
        paused = site.proxies[0]
        # On a busy machine the lease may lapse.
        while (answer := await ask(paused.port, "s1", "before")) != "200":
            assert answer == "503 suspended"
        paused.pause()
        # Sent while it sleeps, and so the first that it sees.
        first = [asyncio.create_task(ask(paused.port, "s1", f"first{number}")) for number in range(8)]
        since = site.keeper.leave("=s1")
        # Taken for gone, and then for idle a request limit later.
        await until("through", lambda: site.keeper.is_through(since, "=s1"))
        site.keeper.settle("node3", "=s1")
        paused.resume()
        for answer in await asyncio.gather(*first):
            assert answer in ("503 suspended", "200")
        assert {site.nodes.where.get(f"first{number}") for number in range(8)} <= {None, "node3"}
        asked = 0
        while await ask(paused.port, "s1", f"again{asked}") != "200":
            asked += 1
        assert site.nodes.where[f"again{asked}"] == "node3"

    run_site(test, when_lost="hold", lease=1, request_limit=1)


def test_what_waits_in_the_queue_of_a_paused_proxy_is_refused_by_the_former_primary(run_site):
    async def test(site: HAProxySite) -> None:
        # One request at a time at each node; HAProxy's clock stands still while it is paused.
        lines = ("default-server maxconn 1", "timeout queue 60s", AGE)
        await site.start(extra="".join(f"    {line}\n" for line in lines))
        paused, other = site.proxies
        long = asyncio.create_task(ask(paused.port, "s4", "long", "/long"))
        await until("it runs", lambda: site.nodes.ran["long"])
        late = asyncio.create_task(ask(paused.port, "s1", "late"))
        await until("it waits", lambda: queued(paused, "node2") == 1)
        paused.pause()
        before, since = site.keeper.fence(), site.keeper.leave("=s1")
        await until("through", lambda: site.keeper.is_through(since, "=s1"))
        site.keeper.settle("node3", "=s1")
        assert await ask(other.port, "s1", "new") == "200"
        site.nodes.release.set()
        paused.resume()
        assert await late == "409 fenced"
        assert site.nodes.where == {"long": "node2", "new": "node3"}
        # Which also is too old where nodes share nothing.
        placed = dict(site.nodes.heads["late"])["x-request-start"].removeprefix("t=")
        assert 1000 * time.time() - int(placed) > 1000 * LIMIT
        # Of the tables by which they were placed.
        assert [site.nodes.fence(request) for request in ("late", "new")] == [before, site.keeper.fence()]
        # It was answered, and so leaves no doubt.
        await paused.shows(doubted_total=0, in_flight_requests=0)
        assert await long == "200"

    run_site(test, when_lost="hold", lease=1, request_limit=LIMIT)


def test_redis_that_comes_back_with_another_table_is_followed(run_site):
    async def test(site: HAProxySite) -> None:
        await site.start(wait=10)
        async with site.clients() as clients:
            await site.keeper.move_by_chance(3)
            site.redis.kill()
            site.redis.start().load()
            site.keeper = Keeper(site.redis.client)
            # Nobody is told before what began under the old table has ended.
            site.keeper.open({"=s1": "node3", "=s9": "node2"}, wait_ms=1500)
            await until("all are back", lambda: len(site.keeper.read()[0]) == 4)
            await site.keeper.move_by_chance(3)
            enough = len(clients.told) + 100
            await until("load", lambda: len(clients.told) > enough)
        clients.check(site.nodes)
        assert set(clients.answers) == {"200"}

    run_site(test)


@pytest.mark.parametrize("when_lost", ["serve", "hold"])
def test_a_reload_under_load_loses_nothing(run_site, when_lost):
    async def test(site: HAProxySite) -> None:
        await site.start()
        async with site.clients() as clients:
            await site.keeper.move_by_chance(3)
            for _ in range(2):
                old = os.pidfd_open(site.proxies[0].pid_at_work())
                site.proxies[0].reload()
                await site.keeper.move_by_chance(5)
                await until("the end", lambda: select.select([old], [], [], 0)[0])  # noqa: B023
                os.close(old)
                await site.proxies[0].up()
            await until("dispatchers", lambda: len(site.keeper.read()[0]) == 4)
            await site.keeper.move_by_chance(3)
            await until("load", lambda: clients.answers["200"] > 100)
        clients.check(site.nodes)
        assert set(clients.answers) <= {"200", "503 moving", "503 suspended"}
        assert clients.answers["200"] > 100

    run_site(test, request_limit=1, when_lost=when_lost, lease=3)


def test_a_process_that_stops_keeps_hand_overs_waiting_for_its_requests(run_site):
    async def test(site: HAProxySite) -> None:
        await site.start(proxies=1)
        long = asyncio.create_task(ask(site.proxies[0].port, "s1", "long", "/long"))
        await until("it runs", lambda: site.nodes.ran["long"])
        site.proxies[0].reload()
        await until("both", lambda: len(site.keeper.read()[0]) == 4)
        assert site.keeper.read()[1] == 0
        since = site.keeper.leave("=s1")
        await site.keeper.known(since)
        assert not site.keeper.is_through(since, "=s1")
        site.nodes.release.set()
        assert await long == "200"
        await until("through", lambda: site.keeper.is_through(since, "=s1"))
        await until("the old one has left", lambda: len(site.keeper.read()[0]) == 2)
        assert site.keeper.read()[1] == 0

    run_site(test, request_limit=60)


def test_names_that_are_none_are_refused(run_site):
    async def test(site: HAProxySite) -> None:
        await site.start(proxies=1)
        port = site.proxies[0].port
        for number, name in enumerate(
            ["", "x" * 129, "a b", "a\tb", "sch\xf6n", "\u4e2d".encode().decode("latin1"), "\x7f"]
        ):
            answer = await ask(port, name, f"bad{number}")
            assert answer in ("400 name", "400"), name
            assert f"bad{number}" not in site.nodes.ran
        for number, name in enumerate(["x" * 128, "=", "*3", ">node1", "-", "a=b;c,d", "%s%d"]):
            assert await ask(port, name, f"good{number}") == "200", name
        await site.proxies[0].shows(version=1, placed_total=7, **{"refused_total name": 7})

    run_site(test)


def test_thousands_of_new_names_take_no_memory(run_site):
    async def test(site: HAProxySite) -> None:
        await site.start(proxies=1)
        (balancer,) = site.proxies

        async def flood(first: int, count: int) -> None:
            sets = [f"{number:x}".rjust(120, "n") for number in range(first, first + count)]
            async with Clients([balancer.port], sets, 32, idle=0) as clients:
                await until("load", lambda: clients.answers["200"] >= count)
            assert set(clients.answers) == {"200"}

        await flood(0, 4000)
        before = balancer.resident_mib()
        for part in range(1, 5):
            await flood(4000 * part, 4000)
        assert balancer.resident_mib() < before + 8
        site.keeper.read()
        assert len(site.keeper.loads) < 64 + 64 * 200
        assert abs(sum(site.keeper.loads.values()) - sum(site.nodes.ran.values())) < 2000

    run_site(test)
