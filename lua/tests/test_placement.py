"""Placement in real HAProxys with a real Redis: no set runs at two nodes at once, and no request is lost."""

import hashlib
import random
import re

from tests.harness import ROOT
from tests.harness.eventually import until
from tests.harness.haproxy_placement import HAProxySite
from tests.harness.primaries import NODES, ask


def test_sets_are_handed_over_under_load(run_site):
    async def test(site: HAProxySite) -> None:
        await site.start()
        async with site.clients() as clients:
            moves = 0
            while moves < 25 or len(clients.told) <= 500:
                moves += 1
                names = random.sample(sorted(site.keeper.primary), 12)
                to = random.choice(NODES)
                same = [name for name in names if site.keeper.primary[name] == site.keeper.primary[names[0]]]
                await site.keeper.move(to, *same)
        clients.check(site.nodes)
        # All of them waited for a hand-over, none was refused.
        assert set(clients.answers) == {"200"}
        assert sum(site.nodes.ran.values()) == clients.answers["200"] > 500
        for balancer in site.proxies:
            await balancer.shows(version=site.keeper.version, suspended_threads=0, in_flight_requests=0)

    run_site(test)


def test_a_name_gets_an_entry_of_its_own_and_loses_it_under_load(run_site):
    async def test(site: HAProxySite) -> None:
        await site.start()
        async with site.clients() as clients:
            for _ in range(10):
                for name, rest in (("s7", rest_of("s7")), ("s8", rest_of("s8"))):
                    since = site.keeper.leave(rest)
                    await until("free", lambda: site.keeper.is_through(since, rest))  # noqa: B023
                    site.keeper.publish({rest: site.keeper.primary[rest], f"={name}": "node3"})
                    since = site.keeper.publish({f"={name}": ">node3"})
                    await until("free", lambda: site.keeper.is_through(since, f"={name}"))  # noqa: B023
                    site.keeper.publish({f"={name}": "-"})
        clients.check(site.nodes)
        assert set(clients.answers) == {"200"}
        assert "node3" in {site.nodes.where[request] for request in clients.told}

    run_site(test)


def rest_of(name: str) -> str:
    return f"*{hashlib.md5(name.encode()).digest()[15] % 64}"


def test_a_primary_that_is_down_is_replaced_by_nobody(run_site):
    async def test(site: HAProxySite) -> None:
        await site.start(proxies=1, extra="    default-server check inter 50ms fall 1 rise 1\n")
        port = site.proxies[0].port
        assert await ask(port, "s1", "before") == "200"
        assert site.nodes.where["before"] == "node2"
        async with site.clients() as clients:
            await until("load", lambda: len(clients.told) > 100)
            site.nodes.kill("node2")
            enough = clients.answers["503 down"] + 100
            await until("refusals", lambda: clients.answers["503 down"] > enough)
        failed = [request for request, answer in clients.told.items() if answer != "200"]
        assert {site.nodes.where.get(request) for request in failed} <= {None, "node2"}
        clients.check(site.nodes)
        assert await ask(port, "s1", "down") == "503 down"
        assert "down" not in site.nodes.ran
        site.proxies[0].ask("set server transactions/node2 state maint")
        assert await ask(port, "s1", "maintained") == "503 down"
        site.proxies[0].ask("set server transactions/node2 state ready")
        # Others' requests go on.
        assert await ask(port, "s0", "other") == "200"
        await site.nodes.start("node2")
        assert await ask(port, "s1", "after") == "200"
        assert site.nodes.where["after"] == "node2"

    run_site(test)


def test_a_server_that_haproxy_does_not_have_is_no_primary(run_site):
    async def test(site: HAProxySite) -> None:
        site.keeper.primary["=s1"] = "node9"
        await site.start(proxies=1)
        site.keeper.leave("=s1")
        site.keeper.settle("node9", "=s1")
        await site.keeper.known(site.keeper.version)
        assert await ask(site.proxies[0].port, "s1", "lost") == "503 unknown"
        assert "lost" not in site.nodes.ran

    run_site(test)


def test_what_is_shown_is_documented(run_site):
    async def test(site: HAProxySite) -> None:
        await site.start(proxies=1)
        await site.proxies[0].shows(version=1)
        catalogue = (
            (ROOT / "docs" / "metrics.md").read_text().split("Placement in HAProxy")[1].split("\n\n")[1]
        )
        shown = {name.split()[0] for name in await site.proxies[0].placements()}
        assert shown == set(re.findall(r"^\| `plimsoll_placement_(\w+)`", catalogue, re.M))

    run_site(test)
