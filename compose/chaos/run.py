"""One run: a site, its clients, the nemesis, and what the checker says."""

import asyncio
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from compose.chaos import nemesis
from compose.chaos.checker import MAX_RESUME_SECONDS, Bounds, Violation, check
from compose.chaos.clients import SETS, Clients
from compose.chaos.history import CLIENTS, EVENTS, History, Writer, keep_rows, read
from compose.chaos.nemesis import Nemesis
from compose.chaos.site import (
    BOUND_ITEMS,
    HAPROXYS,
    NODES,
    PROXIES,
    QUERY_ITEMS,
    SERVICE,
    STORE,
    THREADS,
    Site,
)  # fmt: skip
from compose.lab import scratch
from compose.lab.errors import LabError
from compose.lab.processes import answers

BOUNDS = Bounds(BOUND_ITEMS, QUERY_ITEMS, THREADS * len(HAPROXYS))
# Clients run until all sets are written, then faults begin.
START_SECONDS = 60
LEVEL_SECONDS = 20
POLL_SECONDS = 0.1
KEPT = ("journals/*", "logs/*", "*.toml", "*.cfg", "*.lua", "*.yaml")


async def until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True


async def course(site: Site, seed: int, seconds: float, directory: Path) -> None:
    with Writer(directory / CLIENTS) as told, Writer(directory / EVENTS) as events:
        clients = Clients({name: site.address(name) for name in PROXIES}, told, seed)
        is_over = False
        running = asyncio.create_task(clients.run(lambda: is_over))
        try:
            if not await until(lambda: set(clients.written) == set(SETS), START_SECONDS):
                missing = sorted(set(SETS) - set(clients.written))
                raise LabError(f"not written within {START_SECONDS} s of the start: {', '.join(missing)}")
            start = time.monotonic()
            events.write(at=start, event="started", seed=seed, seconds=seconds)
            await asyncio.to_thread(Nemesis(site, events).run, nemesis.schedule(seed, seconds), start)
            healed = time.monotonic()
            events.write(at=healed, event="all healed")
            stale = lambda: {name for name in SETS if clients.written[name] < healed}  # noqa: E731
            await until(lambda: not stale(), MAX_RESUME_SECONDS)
        finally:
            is_over = True
            await running
        urls = [f"http://{site.address(name)}:{SERVICE}/readyz" for name in NODES]
        await until(lambda: all(map(answers, urls)), LEVEL_SECONDS)
        site.processes.check()


def run(seed: int, seconds: float, directory: Path) -> tuple[History, list[Violation]]:
    """In network and mount namespaces of this process' own; its files stay in `directory`."""
    directory.mkdir(parents=True)
    with scratch.directory("plimsoll-chaos-") as made:
        try:
            with ExitStack() as stack:
                site = Site(seed, made, stack)
                site.wait_ready()
                asyncio.run(course(site, seed, seconds, directory))
        finally:
            for path in (found for pattern in KEPT for found in made.glob(pattern)):
                shutil.copy(path, directory)
        databases = {name: made / f"{name}.data" / "stocks.db" for name in (STORE, *NODES)}
        keep_rows(directory, databases)
    history = read(directory)
    return history, check(history, BOUNDS, STORE)
