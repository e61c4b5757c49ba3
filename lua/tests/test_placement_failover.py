"""Placement where a replica of Redis takes over while the former master goes on for some."""

import asyncio
from pathlib import Path

from lua.tests.conftest import Redis
from lua.tests.primaries import Keeper, Relay, Site, ask, eventually

HOLD = {"when_lost": "hold", "lease": 1.2, "request_limit": 0.5}
# As agents have it with this lag, in s.
LAG, MARGIN = 1, 1 + 1 + 2


async def replicated(site: Site, directory: Path) -> tuple[Redis, Relay]:
    """A replica behind a relay; the master takes writes only while it keeps up."""
    link = await site.stack.enter_async_context(Relay(site.redis.port))
    site.redis.client.config_set("repl-diskless-sync-delay", 0)
    replica = Redis(directory, "--replicaof", "127.0.0.1", str(link.port))
    site.stack.callback(replica.kill)
    # The relay is of this loop.
    await eventually_started(replica)
    site.redis.client.config_set("min-replicas-max-lag", LAG)
    site.redis.client.config_set("min-replicas-to-write", 1)
    return replica, link


async def eventually_started(replica: Redis) -> None:
    replica.start()
    state = lambda: replica.client.info("replication")["master_link_status"]  # noqa: E731
    await eventually("the replica is in step", lambda: state() == "up")


def test_a_proxy_left_with_an_isolated_master_lets_nobody_in_before_its_sets_move(run_site, tmp_path):
    async def test(site: Site) -> None:
        (tmp_path / "replica").mkdir()
        replica, link = await replicated(site, tmp_path / "replica")
        way = await site.stack.enter_async_context(Relay(site.redis.port))
        await site.start(ports=(site.redis.port, way.port), wait=0.1)
        left, other = site.proxies
        async with site.clients() as clients:
            await eventually("load", lambda: clients.answers["200"] > 100)
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
            await eventually("through", lambda: keeper.is_through(since, "=s1"))
            keeper.settle("node3", "=s1")
            enough = len(clients.told) + 500
            await eventually("load", lambda: len(clients.told) > enough)
            assert await ask(left.port, "s1", "left") == "503 suspended"
            assert await ask(other.port, "s1", "other") == "200"
            assert site.nodes.where["other"] == "node3"
        clients.check(site.nodes)
        assert set(clients.answers) <= {"200", "503 moving", "503 suspended"}

    run_site(test, margin=MARGIN, **HOLD)
