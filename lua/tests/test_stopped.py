"""A proxy that is stopped for longer than its lease: the others have its shares when it resumes."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

from tests.harness.eventually import until
from tests.harness.functions import Cluster
from tests.harness.haproxy import PLACED, SETTINGS, HAProxy, configuration, start_with_policy
from tests.harness.redis import Redis
from tests.harness.stopped import NODE, Pair, load
from tests.harness.traffic import Nodes

BOUND, LEASE_SECONDS = 40, 2
# How long a request takes: what was admitted is still there when the shares have gone elsewhere.
SECONDS = 0.5


def start(stack: ExitStack, directory: Path, redis: Redis, nodes: Nodes, program: str) -> HAProxy:
    settings = SETTINGS.format(name=directory.name, redis=redis.port, policy="fc_prop", age=60)
    settings = settings.replace("lease = 1,", f"lease = {LEASE_SECONDS},")
    config = configuration(directory, nodes.ports, rules=PLACED)
    return start_with_policy(stack, directory, settings, config, program)


def pair_of(stack: ExitStack, directory: Path, redis: Redis, nodes: Nodes, program: str) -> Pair:
    cluster = Cluster(redis.client)
    cluster.report(NODE, BOUND, lease=3_600_000, mean_cost=1)
    names = ("lb1", "lb2")
    first, second = ((name, start(stack, directory / name, redis, nodes, program)) for name in names)
    return Pair(cluster, BOUND, first, second)


def test_a_proxy_that_was_stopped_does_not_fill_shares_that_others_have(stack, tmp_path, own_redis, haproxy):
    async def test() -> None:
        async with Nodes((NODE,), SECONDS) as nodes:
            pair = pair_of(stack, tmp_path, own_redis.start().load(), nodes, haproxy)
            await pair.stop()
            async with load(pair.other[1]):
                await until("the other's share", lambda: pair.share(pair.other) == BOUND)
                await until("a full node", lambda: len(nodes.active[NODE]) == BOUND)
                late = await pair.resume()
                assert set(late.answers) <= {"200", "503 full"}
                async with late:
                    await until("its share", lambda: pair.share(pair.stopped) > BOUND / 4)
                    await until("placements", lambda: late.placed > BOUND)
            # What is larger than a share is admitted alone.
            assert nodes.peak[NODE] <= BOUND + 2

    asyncio.run(test())


def test_a_proxy_that_was_stopped_serves_again_though_redis_is_gone(stack, tmp_path, own_redis, haproxy):
    async def test() -> None:
        async with Nodes((NODE,), SECONDS) as nodes:
            pair = pair_of(stack, tmp_path, own_redis.start().load(), nodes, haproxy)
            await pair.stop()
            await until("the end of its lease", lambda: pair.share(pair.stopped) == 0)
            own_redis.kill()
            late = await pair.resume()
            assert late.answers["503 full"] > BOUND
            async with late:
                await until("placements", lambda: late.placed > BOUND)

    asyncio.run(test())
