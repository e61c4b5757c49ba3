"""Several proxies that together must not pass a bound, whatever their clients do."""

import asyncio
import itertools
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.eventually import until
from tests.harness.functions import Cluster
from tests.harness.haproxy import LIMITED, PLACED, SETTINGS, HAProxy, configuration, start_with_policy
from tests.harness.redis import Redis
from tests.harness.traffic import Load, Nodes

THREADS, PERIOD = 2, 0.1
BOUNDS = {"node1": 24, "node2": 16}
# Longer than a period: what was admitted by a share is still there when the share has gone elsewhere.
SECONDS = 3 * PERIOD
MANY = 400


def start(stack: ExitStack, directory: Path, name: str, redis: Redis, nodes: Nodes, policy: str) -> HAProxy:
    directory = directory / name
    settings = SETTINGS.format(name=name, redis=redis.port, policy=policy, age=60)
    # A slow machine must not take anybody's share away.
    settings = settings.replace("lease = 1,", "lease = 60,")
    rules = LIMITED if policy == "limits" else PLACED
    config = configuration(directory, nodes.ports, THREADS, rules)
    return start_with_policy(stack, directory, settings, config)


async def overload(stack: ExitStack, directory: Path, redis: Redis, proxies: int, policy: str, moves: bool):
    cluster = Cluster(redis.client)
    for node, bound in BOUNDS.items():
        cluster.report(node, bound, lease=3_600_000, mean_cost=1)
    async with Nodes(tuple(BOUNDS), SECONDS) as nodes:
        ports = [start(stack, directory, f"lb{n}", redis, nodes, policy).port for n in range(proxies)]
        # Of policy `limits` a process is one.
        dispatchers = proxies * (1 if policy == "limits" else THREADS)
        records = lambda: cluster.server.hgetall(cluster.proxies)  # noqa: E731
        await until("all dispatchers", lambda: len(records()) == dispatchers)
        # A second call proves that the answer to the first one was taken in.
        first = records()
        await until("their shares", lambda: not first.items() & records().items())
        async with Load(list(ports), clients=160, idle=0.005) as load:
            turns = itertools.cycle(ports)
            # Each has a whole number of requests in hand, and may leave a part of its share unused.
            full = lambda: all(nodes.peak[node] >= bound - dispatchers for node, bound in BOUNDS.items())  # noqa: E731
            while load.placed < MANY or not full():
                if moves:
                    # Most clients are on one proxy, and then on another.
                    load.ports[:] = [*ports, *[next(turns)] * 3 * proxies]
                await asyncio.sleep(3.5 * PERIOD)
        assert load.lost == []
        assert set(load.answers) == {"200", "503 full"}
        assert load.placed == load.answers["200"]
        # One request more for each thread: what is larger than a share is admitted alone.
        for node, bound in BOUNDS.items():
            assert nodes.peak[node] <= bound + dispatchers


@pytest.mark.parametrize("moves", [False, True], ids=["steady", "moving"])
@pytest.mark.parametrize("policy", ["fc_hash", "fc_prop", "limits"])
@pytest.mark.parametrize("proxies", [2, 4])
def test_bounds_hold_over_all_proxies_together(stack, tmp_path, own_redis, proxies, policy, moves):
    own_redis.start().load()
    asyncio.run(overload(stack, tmp_path, own_redis, proxies, policy, moves))
