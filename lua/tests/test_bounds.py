"""Several proxies that together must not pass a bound, whatever their clients do."""

import asyncio
import itertools
from contextlib import ExitStack
from pathlib import Path

import pytest

from compose.lab.processes import free_ports
from compose.lab.topology import ROOT
from lua.tests.conftest import Cluster, Redis
from lua.tests.haproxy import CONFIG, POLICY, SETTINGS, Proxy
from lua.tests.traffic import Load, Nodes, until

THREADS, PERIOD = 2, 0.1
BOUNDS = {"node1": 24, "node2": 16}
# Longer than a period: what was admitted by a share is still there when the share has gone elsewhere.
SECONDS = 3 * PERIOD
MANY = 400


def start(stack: ExitStack, directory: Path, name: str, redis: Redis, nodes: Nodes, policy: str) -> Proxy:
    directory = directory / name
    directory.mkdir()
    settings = SETTINGS.format(name=name, redis=redis.port, policy=policy, age=60)
    # A slow machine must not take anybody's share away.
    (directory / "plimsoll.lua").write_text(settings.replace("lease = 1,", "lease = 60,"))
    (port,) = free_ports(1)
    config = CONFIG.format(threads=THREADS, directory=directory, root=ROOT, port=port, policy=POLICY)
    config += "    http-response set-header x-placed %[var(txn.plimsoll)]\n"
    config += "".join(f"    server {name} 127.0.0.1:{at}\n" for name, at in nodes.ports.items())
    proxy = Proxy(directory, config)
    stack.callback(proxy.kill)
    return proxy


async def overload(stack: ExitStack, directory: Path, redis: Redis, proxies: int, policy: str, moves: bool):
    cluster = Cluster(redis.client)
    for node, bound in BOUNDS.items():
        cluster.report(node, bound, lease=3_600_000, mean_cost=1)
    async with Nodes(tuple(BOUNDS), SECONDS) as nodes:
        ports = [start(stack, directory, f"lb{n}", redis, nodes, policy).port for n in range(proxies)]
        dispatchers = proxies * THREADS
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
@pytest.mark.parametrize("policy", ["fc_hash", "fc_prop"])
@pytest.mark.parametrize("proxies", [2, 4])
def test_bounds_hold_over_all_proxies_together(tmp_path, own_redis, proxies, policy, moves):
    own_redis.start()
    with ExitStack() as stack:
        asyncio.run(overload(stack, tmp_path, own_redis, proxies, policy, moves))
