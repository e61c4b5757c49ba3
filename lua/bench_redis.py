"""What the shared state costs Redis: 100 nodes report, 40 dispatchers observe, each once a second.

`python -m lua.bench_redis` sends what agents and dispatchers send, over connections of their own, to a
redis-server of its own. Times of the functions are Redis' own, from its slow log; CPU is the server's.
"""

import asyncio
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import redis

from tests.harness.redis import Redis

NODES, PROXIES, THREADS = 100, 20, 2
DISPATCHERS = PROXIES * THREADS
PERIOD, WARM_UP, PERIODS = 1.0, 4, 20
# As agents and dispatchers have them where nothing else is set.
LEASE, SLOTS, DEAD_BAND, PING = 3000, 16384, 0.05, 5.0
WANDER, STEP = 0.03, 0.012
KEYS = [f"plimsoll:{{bench}}:{part}" for part in ("nodes", "ring", "proxies", "shares", "observations")]
MAX_MS, MAX_CPU = 1.0, 25.0
# A dispatcher that has run for a while has met most delays: buckets of 1.2^i ms, 57 at most.
BUCKETS = range(6, 52)


class Connection:
    """What is sent and what comes back, and nothing else: the generator has one core for 180 of these."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))

    def send(self, *words: object) -> None:
        texts = [str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(texts), *(b"$%d\r\n%b\r\n" % (len(text), text) for text in texts)]
        self._writer.write(b"".join(parts))

    async def receive(self) -> Any:
        line = await self._reader.readuntil(b"\r\n")
        kind, rest = line[:1], line[1:-2]
        if kind == b"*":
            return [await self.receive() for _ in range(int(rest))]
        if kind == b"$":
            return (await self._reader.readexactly(int(rest) + 2))[:-2]
        if kind == b":":
            return int(rest)
        if kind == b"-":
            raise SystemExit(f"bench: Redis says {rest.decode()}")
        return rest

    async def ask(self, *words: object) -> Any:
        self.send(*words)
        return await self.receive()


class Load:
    """Agents, dispatchers and followers, and what they have done so far."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.draw = random.Random(1)
        self.reports = self.observes = self.tables = 0
        self.reply_bytes: list[int] = []
        self.observation_bytes: list[int] = []
        self.messages: list[int] = []

    async def agent(self, number: int) -> None:
        """One call a period, as `Link::report` makes it; the table where the version is another."""
        client, name, known = await Connection.open(self.port), f"node{number + 1}", 0
        nominal = self.draw.uniform(4000, 12000)
        bound = nominal * self.draw.uniform(1 - WANDER, 1 + WANDER)
        await client.ask("FCALL", "plimsoll_version", 1, KEYS[0])
        await asyncio.sleep(self.draw.random() * PERIOD)
        while True:
            bound += nominal * self.draw.uniform(-STEP, STEP)
            bound = min(max(bound, nominal * (1 - WANDER)), nominal * (1 + WANDER))
            measured = (
                bound,
                bound / 80.0,
                80.0,
                float(self.draw.randrange(90)),
                self.draw.uniform(0.2, 1.1),
            )
            version, *seen = await client.ask(
                "FCALL", "plimsoll_report", 5, *KEYS, name, f"3f2.{number:x}c0ffee", *map(repr, measured),
                LEASE, SLOTS, DEAD_BAND, LEASE // 2, f"192.0.2.{number}:8001",
            )  # fmt: skip
            self.reports += 1
            self.reply_bytes.append(sum(map(len, seen)))
            if version not in (0, known):
                known = (await client.ask("FCALL", "plimsoll_ring", 5, *KEYS))[0]
                self.tables += 1
            await asyncio.sleep(PERIOD * self.draw.uniform(0.95, 1.05))

    def observation(self, counts: list[int]) -> str:
        for _ in range(2):
            counts[min(max(int(self.draw.gauss(22, 7)), 0), len(counts) - 1)] += self.draw.randrange(12)
        count = sum(counts)
        buckets = ",".join(f"{bucket}:{n}" for bucket, n in zip(BUCKETS, counts, strict=True))
        return f"1 {count} {0.08 * count:.6f} {count // 900} {80 * count} {buckets}"

    async def dispatcher(self, number: int) -> None:
        """One call a period, as `Follower:period` makes it, and a subscription."""
        calls, changes = await Connection.open(self.port), await Connection.open(self.port)
        name, instance = f"proxy{number // THREADS + 1}/{number % THREADS + 1}", f"65f1.{number:x}.1"
        known = 0
        counts = [[self.draw.randrange(100, 99_999) for _ in BUCKETS] for _ in range(NODES)]
        demand = [self.draw.uniform(0, 400) for _ in range(NODES)]
        changes.send("SUBSCRIBE", KEYS[1])

        async def follow() -> None:
            nonlocal known
            while True:
                message = await changes.receive()
                if message[0] == b"message":
                    since, to, _, moved = message[2].split(b" ")
                    if int(since) == known and moved != b"full":
                        known = int(to)
                    if number == 0:
                        self.messages.append(len(message[2]))

        async def ping() -> None:
            while True:
                await asyncio.sleep(PING)
                changes.send("PING")

        async def observe() -> None:
            nonlocal known
            await calls.ask("FCALL_RO", "plimsoll_version", 0)
            await asyncio.sleep(self.draw.random() * PERIOD)
            while True:
                flat = []
                for node in range(NODES):
                    demand[node] += 0.5 * (self.draw.uniform(0, 400) - demand[node])
                    # Of what it wants in a second, a fifth is under way at once.
                    wanted = f"{demand[node]:.6g}/{0.2 * demand[node]:.6g}"
                    flat += [f"node{node + 1}", wanted, self.observation(counts[node])]
                self.observation_bytes += map(len, flat[2::3])
                version, *_ = await calls.ask(
                    "FCALL", "plimsoll_observe", 5, *KEYS, name, instance, LEASE, *flat
                )
                self.observes += 1
                if version not in (0, known):
                    known = (await calls.ask("FCALL_RO", "plimsoll_ring", 5, *KEYS))[0]
                    self.tables += 1
                await asyncio.sleep(PERIOD * self.draw.uniform(0.9, 1.1))

        async with asyncio.TaskGroup() as group:
            for task in (follow, ping, observe):
                group.create_task(task())

    def tasks(self) -> list[Awaitable[None]]:
        agents = [self.agent(number) for number in range(NODES)]
        return agents + [self.dispatcher(number) for number in range(DISPATCHERS)]


def picture(server: redis.Redis, load: Load) -> dict[str, float]:
    """Counters of the server and of the load."""
    info = server.info("everything")
    calls = {name: stats["calls"] for name, stats in info.items() if name.startswith("cmdstat_")}
    return {
        "at": time.monotonic(),
        "cpu": info["used_cpu_user"] + info["used_cpu_sys"],
        "in": info["total_net_input_bytes"],
        "out": info["total_net_output_bytes"],
        "memory": info["used_memory"],
        "fcall": calls.get("cmdstat_fcall", 0),
        "fcall_ro": calls.get("cmdstat_fcall_ro", 0),
        "calls": load.reports + load.observes + load.tables,
        "reports": load.reports,
        "observes": load.observes,
        "tables": load.tables,
        "messages": len(load.messages),
    }


async def run(server: redis.Redis, port: int) -> tuple[Load, dict[str, float], dict[str, float]]:
    """Warms up, then measures; the counters at the beginning and the end."""
    load = Load(port)
    tasks = [asyncio.ensure_future(task) for task in load.tasks()]
    over = asyncio.ensure_future(asyncio.sleep(WARM_UP * PERIOD))
    begin: dict[str, float] = {}
    for then in (PERIODS * PERIOD, None):
        done, _ = await asyncio.wait([*tasks, over], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {over}:
            task.result()
        if then:
            server.slowlog_reset()
            begin = picture(server, load)
            over = asyncio.ensure_future(asyncio.sleep(then))
    end = picture(server, load)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return load, begin, end


def times(server: redis.Redis) -> dict[str, list[float]]:
    """Milliseconds of each call, by function."""
    found: dict[str, list[float]] = {}
    for entry in server.slowlog_get(1_000_000):
        words = entry["command"].split()
        if words[0].upper() in (b"FCALL", b"FCALL_RO"):
            found.setdefault(words[1].decode(), []).append(entry["duration"] / 1000)
    return found


def line(what: str, figure: str, target: str = "", met: bool = True) -> bool:
    print(f"{what:34} {figure:44}" + (f" target {target}   {'met' if met else 'MISSED'}" if target else ""))
    return met


def tell(server: redis.Redis, load: Load, begin: dict[str, float], end: dict[str, float]) -> bool:
    change = {name: end[name] - begin[name] for name in begin}
    seconds = change["at"]
    print(f"{NODES} nodes, {PROXIES} proxies of {THREADS} threads, {seconds:.1f} s, {SLOTS} slots")
    # A generator that falls behind would flatter Redis.
    paced = min(change["reports"] / NODES, change["observes"] / DISPATCHERS) / (seconds / PERIOD)
    good = line("calls sent, of those due", f"{100 * paced:.0f} %", ">= 90 %", paced >= 0.9)
    # Of fcall and fcall_ro; a call may be under way at either end.
    asked = change["fcall"] + change["fcall_ro"]
    trips = (asked - change["observes"] - change["tables"]) / change["reports"]
    good &= line("round trips a report", f"{trips:.2f}", "1", abs(trips - 1) < 0.02)
    cpu = 100 * change["cpu"] / seconds
    good &= line("CPU of Redis", f"{cpu:.1f} % of a core", f"<= {MAX_CPU:g} %", cpu <= MAX_CPU)
    for function, spent in sorted(times(server).items()):
        mean, last = statistics.mean(spent), sorted(spent)[int(0.99 * len(spent))]
        figure = f"mean {mean:.3f}, p99 {last:.3f}, most {max(spent):.3f} ms, {len(spent)} calls"
        regular = function in ("plimsoll_report", "plimsoll_observe")
        good &= line(function, figure, *((f"mean <= {MAX_MS:g} ms", mean <= MAX_MS) if regular else ()))
    line("bytes in, out", f"{change['in'] / seconds / 1e6:.2f}, {change['out'] / seconds / 1e6:.2f} MB/s")
    seen = load.observation_bytes
    line("an observation", f"mean {statistics.mean(seen):.0f}, most {max(seen)} bytes")
    line("observations in a report's reply", f"{max(load.reply_bytes):,} bytes")
    memory = sum(server.memory_usage(key, samples=0) or 0 for key in KEYS)
    line("memory", f"{memory / 1e6:.2f} MB of keys, {end['memory'] / 1e6:.1f} MB used")
    published, sizes = change["messages"], load.messages[int(begin["messages"]) :] or [0]
    line("ring versions", f"{published / seconds:.2f} a second, {change['tables'] / seconds:.1f} tables read")
    line("bytes of a change", f"mean {statistics.mean(sizes):.0f}, most {max(sizes)}")
    return good


def main() -> int:
    if not shutil.which("redis-server"):
        print("bench: redis-server is not on the PATH; run `make tools`", file=sys.stderr)
        return 1
    with ExitStack() as stack:
        run_directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plimsoll-bench-")))
        # The time of every call is kept, and of few commands within one: they are logged as well.
        options = ["--slowlog-log-slower-than", "20", "--slowlog-max-len", "1000000"]
        server = Redis(stack, run_directory, *options).start().load()
        load, begin, end = asyncio.run(run(server.client, server.port))
        tell(server.client, load, begin, end)
    return 0


if __name__ == "__main__":
    sys.exit(main())
