"""Placement where a replica of Redis takes over while the former master goes on for some."""

import asyncio
from pathlib import Path

from lua.tests.relay import Relay
from tests.harness.eventually import until
from tests.harness.haproxy_placement import HAProxySite
from tests.harness.placement import Keeper
from tests.harness.primaries import ask
from tests.harness.redis import Redis

HOLD = {"when_lost": "hold", "lease": 1.2, "request_limit": 0.5}
# As agents have it with this lag, in s.
LAG, MARGIN = 1, 1 + 1 + 2


async def replicated(site: HAProxySite, directory: Path) -> tuple[Redis, Relay]:
    """A replica behind a relay; the master takes writes only while it keeps up."""
    link = await site.stack.enter_async_context(Relay(site.redis.port))
    site.redis.client.config_set("repl-diskless-sync-delay", 0)
    replica = Redis(site.stack, directory, "--replicaof", "127.0.0.1", str(link.port)).start()
    # The relay is of this loop.
    await until("the replica is in step", replica.is_in_step)
    site.redis.client.config_set("min-replicas-max-lag", LAG)
    site.redis.client.config_set("min-replicas-to-write", 1)
    return replica, link


def test_a_proxy_left_with_an_isolated_master_lets_nobody_in_before_its_sets_move(run_site, tmp_path):
    async def test(site: HAProxySite) -> None:
        replica, link = await replicated(site, tmp_path)
        way = await site.stack.enter_async_context(Relay(site.redis.port))
        await site.start(ports=(site.redis.port, way.port), wait=0.1)
        left, other = site.proxies
        async with site.clients() as clients:
            await until("load", lambda: clients.answers["200"] > 100)
            assert await asyncio.to_thread(site.redis.client.wait, 1, 5000) == 1
            # The master and one proxy are cut off, without a word; all others use the replica.
            link.is_cut = True
            replica.client.replicaof("NO", "ONE")
            way.turn(replica.port)
            keeper = Keeper(replica.client, margin=MARGIN, **HOLD)
            keeper.version, keeper.generation, keeper.primary = (
                site.keeper.version, site.keeper.generation, site.keeper.primary,
            )  # fmt: skip
            keeper.claim("two")
            since = keeper.leave("=s1")
            await until("through", lambda: keeper.is_through(since, "=s1"))
            keeper.settle("node3", "=s1")
            enough = len(clients.told) + 500
            await until("load", lambda: len(clients.told) > enough)
            assert await ask(left.port, "s1", "left") == "503 suspended"
            assert await ask(other.port, "s1", "other") == "200"
            assert site.nodes.where["other"] == "node3"
        clients.check(site.nodes)
        assert set(clients.answers) <= {"200", "503 moving", "503 suspended"}

    run_site(test, margin=MARGIN, **HOLD)
