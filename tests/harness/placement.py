"""Placement as tests drive it: what a keeper does, by hand, and what proxies of either kind stand in."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import redis

from tests.harness.eventually import until
from tests.harness.functions import Placement
from tests.harness.primaries import NODES, Clients, Primaries
from tests.harness.redis import Redis

AGENT = "test-keeper"
RESTS = 64
# Lease of the keeper itself, long enough never to expire.
LEASE_MS = 3_600_000
SETS = [f"s{number}" for number in range(12)]
OWN = {f"=s{number}": NODES[number % 3] for number in range(6)}


class Keeper:
    """A keeper driven by hand, one handover after the other."""

    def __init__(
        self, client: redis.Redis, request_limit: float = 1, when_lost: str = "serve", lease: float = 3600,
        margin: float = 1,
    ) -> None:  # fmt: skip
        self.functions = Placement(client)
        self._limit = int(1000 * request_limit)
        self._terms = {
            "told_lease": int(1000 * lease), "limit": self._limit, "when_lost": when_lost,
            "margin": int(1000 * margin),
        }  # fmt: skip
        self._answered = time.monotonic()
        self.version, self.generation = 0, ""
        self.primary: dict[str, str] = {}
        self.loads: Counter[str] = Counter()

    def claim(self, server: str) -> None:
        self.functions.claim(AGENT, LEASE_MS, server=server, **self._terms)
        self._answered = time.monotonic()

    def open(self, primary: dict[str, str], wait_ms: int = 0) -> None:
        """Begins a table of its own; who is not in it is on node1."""
        self.claim("one")
        rests = {f"*{rest}": "node1" for rest in range(RESTS)}
        self.primary = rests | primary
        self.version, self.generation = self.version + 1, f"g{time.time_ns()}"
        entries = " ".join(f"{name} {node}" for name, node in self.primary.items())
        epoch = self.functions.epoch
        self.functions.call("open", AGENT, epoch, self.generation, self.version, wait_ms, "", entries)

    def fence(self) -> str:
        """Fencing token of this table."""
        return f"{self.generation} {self.version:016}"

    def publish(self, entries: dict[str, str]) -> int:
        words = " ".join(f"{name} {state}" for name, state in entries.items())
        delta = f"{self.version} {self.version + 1} {words}"
        self.version = self.functions.publish(delta, self.generation, AGENT)
        return self.version

    def read(self) -> tuple[dict[str, tuple[int, int, set[str]]], int]:
        """Each dispatcher's version, version when it joined, busy sets; the number of gone dispatchers."""
        passed = int(1000 * (time.monotonic() - self._answered))
        told = self.functions.read(passed, LEASE_MS, self._limit, loads=1, agent=AGENT)
        self._answered += passed / 1000
        self.loads.update(told["loads"])
        dispatchers = {
            name: (int(one["version"]), int(one["joined"]), set(one["busy"].split()))
            for name, one in told["dispatchers"].items()
        }
        return dispatchers, len(told["gone"])

    def leave(self, *sets: str) -> int:
        return self.publish({name: ">" + self.primary[name] for name in sets})

    def is_through(self, since: int, *sets: str) -> bool:
        dispatchers, gone = self.read()
        free = all(version >= since and not busy & set(sets) for version, _, busy in dispatchers.values())
        return free and not gone

    async def known(self, version: int) -> None:
        """Until every dispatcher has told that it has this version."""
        behind = lambda: [told for told, *_ in self.read()[0].values() if told < version]  # noqa: E731
        await until(f"version {version}", lambda: not behind())

    async def move(self, to: str, *sets: str) -> None:
        since = self.leave(*sets)
        await until(f"{sets} off {self.primary[sets[0]]}", lambda: self.is_through(since, *sets))
        self.settle(to, *sets)

    def settle(self, to: str, *sets: str) -> None:
        self.publish(dict.fromkeys(sets, to))
        self.primary |= dict.fromkeys(sets, to)

    async def move_by_chance(self, times: int) -> None:
        for _ in range(times):
            await self.move(random.choice(NODES), random.choice(sorted(self.primary)))


class Site:
    """Primaries and their keeper; proxies of a kind stand before them."""

    nodes: Primaries

    def __init__(self, stack: AsyncExitStack, directory: Path, redis: Redis, **keeper: Any) -> None:
        self.stack, self.directory, self.redis = stack, directory, redis
        self.keeper = Keeper(redis.client, **keeper)
        self.proxies: list[Any] = []

    async def open(self) -> None:
        self.nodes = await self.stack.enter_async_context(Primaries())
        self.keeper.open(OWN)

    async def joined(self, dispatchers: int) -> None:
        await until("dispatchers", lambda: len(self.keeper.read()[0]) == dispatchers)

    def clients(self, count: int = 24) -> Clients:
        return Clients([proxy.port for proxy in self.proxies], SETS, count)


def runner(kind: type[Site], directory: Path, redis: Redis) -> Callable[..., None]:
    """Runs a test's coroutine with a site, which it starts; `keeper` are terms of its keeper."""

    def run(test: Callable[[Any], Awaitable[None]], **keeper: Any) -> None:
        async def whole() -> None:
            async with AsyncExitStack() as stack:
                await test(kind(stack, directory, redis, **keeper))

        asyncio.run(whole())

    return run
