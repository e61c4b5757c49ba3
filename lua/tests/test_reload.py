"""HAProxy reloaded under load: what is lost, whose shares are whose, and what the agents are told."""

import asyncio
import os
import select
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.eventually import until
from tests.harness.functions import Cluster
from tests.harness.haproxy import PLACED, SETTINGS, HAProxy, configuration
from tests.harness.redis import Redis
from tests.harness.traffic import Load, Nodes

THREADS, BOUND = 2, 8
NODES = ("node1", "node2")
NAMES = {f"lb1/{thread + 1}" for thread in range(THREADS)}
# Of answers, before and after.
MANY = 500


class Watcher:
    """What Redis was told by whom."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # By dispatcher's name: the runs that had it, one after the other, and the end of the lease.
        self.runs: dict[str, list[str]] = {}
        self.leases: dict[str, str] = {}
        # By run and node: the requests it counted so far.
        self._counts: dict[tuple[str, str], int] = {}

    def look(self) -> "Watcher":
        with self._cluster.server.pipeline() as both:
            both.hgetall(self._cluster.proxies)
            both.hgetall(self._cluster.observations)
            proxies, observations = both.execute()
        instances = {}
        for name, record in proxies.items():
            self.leases[name.decode()], _, _, instances[name.decode()] = record.decode().split()
        for name, run in instances.items():
            runs = self.runs.setdefault(name, [])
            if runs[-1:] != [run]:
                runs.append(run)
        for field, line in observations.items():
            # The sum of all has no proxy.
            if b" " in field:
                node, name = field.decode().split()
                self._counts[instances[name], node] = int(line.split()[1])
        return self

    def counted(self) -> int:
        return sum(self._counts.values())


class Balancer(HAProxy):
    """HAProxy with a master process, or one that a second one follows."""

    def __init__(self, stack: ExitStack, directory: Path, config: str, way: str) -> None:
        self._way = way
        super().__init__(stack, directory, config, mode="-W" if way == "master" else "-db")
        self.start()

    def at_work(self) -> int:
        """The process that serves, as a file that can be read when it has ended."""
        return os.pidfd_open(self.pid_at_work())

    def reload(self) -> None:
        if self._way == "master":
            self.process.send_signal(signal.SIGUSR2)
        else:
            super().reload()
            self.eventually("haproxy", lambda: bool(self.servers()))

    def kill(self) -> None:
        for process in self.processes:
            # A master that is told to end takes its workers along; one that is killed does so a moment later.
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def reloaded_under_load(stack: ExitStack, directory: Path, way: str, cluster: Cluster) -> None:
    async with Nodes(NODES, 0.02) as nodes:
        config = configuration(directory, nodes.ports, THREADS, PLACED)
        balancer = Balancer(stack, directory, config, way)
        watcher = Watcher(cluster)
        # An answer to the second report proves that the first one's was taken in.
        first = dict((await seen(watcher, NAMES)).leases)
        await until("shares", lambda: all(watcher.look().leases[name] != first[name] for name in NAMES))

        async with Load([balancer.port], clients=40, idle=0.01) as load:
            await until("answers", lambda: load.placed > MANY)
            # Keeps the old process while the new one is at work.
            long = asyncio.create_task(load.ask_until_admitted("/stock/long"))
            await nodes.arrived.wait()
            old = balancer.at_work()
            stack.callback(os.close, old)
            before = {name: run for name, (run,) in watcher.look().runs.items()}
            # In a thread: it may wait, and nodes must not.
            await asyncio.to_thread(balancer.reload)

            await seen(watcher, {f"{name}/{run}" for name, run in before.items()})
            await until("new runs", lambda: all(len(watcher.look().runs[name]) > 1 for name in NAMES))
            both = dict(watcher.leases)
            await until("shares", lambda: all(watcher.look().leases[name] != both[name] for name in NAMES))
            after = {name: watcher.runs[name][-1] for name in NAMES}
            # What either admitted until here, the new one before it had shares, has ended.
            await nodes.turned_over()
            enough = load.placed + MANY
            await until("answers", lambda: load.placed > enough)
            # One request more for each thread of both: what is larger than a share is admitted alone.
            assert all(nodes.peak[name] <= BOUND + 2 * THREADS for name in NODES), nodes.peak
            # Nobody took a name back.
            assert {name: runs[-1] for name, runs in watcher.look().runs.items() if name in NAMES} == after
            assert {name: set(watcher.runs[name]) for name in NAMES} == {
                name: {before[name], after[name]} for name in NAMES
            }

            nodes.release.set()
            assert await long == "200"
            await until("the old one's end", lambda: bool(select.select([old], [], [], 0)[0]))
        assert load.lost == []
        assert set(load.answers) == {"200", "503 full"}
        assert load.answers["200"] == nodes.answered
        # The last words of the old one are there as well.
        await until("all that was placed", lambda: watcher.look().counted() == load.placed)


async def reloaded_without_redis(stack: ExitStack, directory: Path, redis: Redis) -> None:
    config = configuration(directory, {"node1": 1}, THREADS)
    balancer = Balancer(stack, directory, config, "handover")
    await seen(Watcher(Cluster(redis.client)), NAMES)
    redis.kill()
    old = balancer.at_work()
    stack.callback(os.close, old)
    balancer.reload()
    await until("the old one's end", lambda: bool(select.select([old], [], [], 0)[0]))


async def seen(watcher: Watcher, names: set[str]) -> Watcher:
    await until(f"{names} in Redis", lambda: names <= set(watcher.look().runs))
    return watcher


def start(directory: Path, redis: Redis) -> Cluster:
    redis.start().load()
    cluster = Cluster(redis.client)
    for node in NODES:
        cluster.report(node, BOUND, lease=3_600_000)
    settings = SETTINGS.format(name="lb1", redis=redis.port, policy="fc_hash", age=60)
    # Longer than the test, so that what a process told stays to be seen.
    (directory / "plimsoll.lua").write_text(settings.replace("lease = 1,", "lease = 600,"))
    return cluster


@pytest.mark.parametrize("way", ["master", "handover"])
def test_a_reload_under_load_loses_no_request_and_no_accounting(stack, tmp_path, own_redis, way):
    cluster = start(tmp_path, own_redis)
    asyncio.run(reloaded_under_load(stack, tmp_path, way, cluster))


def test_the_old_process_ends_when_redis_is_away_too(stack, tmp_path, own_redis):
    start(tmp_path, own_redis)
    asyncio.run(reloaded_without_redis(stack, tmp_path, own_redis))
