"""Faults: a schedule drawn from the seed alone, and how each is done to a site and undone."""

import heapq
import itertools
import random
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from compose.chaos.history import Writer
from compose.chaos.site import HAPROXYS, HOSTS, NODES, PROXIES, REDISES, SENTINELS, STORE, Site
from compose.lab.processes import wait_until

AGENTS = tuple(f"{node}-agent" for node in NODES)
FAULTY = tuple(name for name in HOSTS if name != STORE)
# The server that has this role when the fault begins.
REDIS_MASTER = "redis-master"
PROGRAMS = (*PROXIES, *AGENTS, *REDISES, *SENTINELS, REDIS_MASTER, REDIS_MASTER)
FIRST_SECONDS = 3
GAP_SECONDS = (3.0, 12.0)
FAULT_SECONDS = (1.0, 10.0)
# A write must not outlast REQUEST_LIMIT_SECONDS, so a node is not paused for as long.
NODE_PAUSE_SECONDS = (0.2, 2.0)
# Sets leave a proxy that is silent for a lease, what a replicated Redis adds, and REQUEST_LIMIT_SECONDS.
LONG_PAUSE_SECONDS = (14.0, 20.0)
CLOCK_STEP_SECONDS = 3600
FILLER_BYTES = 1 << 16


@dataclass(frozen=True)
class Fault:
    kind: str
    # A program, a host, or hosts by commas.
    target: str
    seconds: float
    detail: dict[str, Any] = field(default_factory=dict)
    # From the start of the schedule; while it is drawn, from the first of those drawn together.
    at: float = 0.0
    number: int = 0


def schedule(seed: int, seconds: float) -> list[Fault]:
    """All of the deck before any of it comes again."""
    chance = random.Random(seed)
    drawn: list[Fault] = []
    deck: list[Callable[[random.Random], list[Fault]]] = []
    at = float(FIRST_SECONDS)
    while at < seconds:
        if not deck:
            deck = list(DECK)
            chance.shuffle(deck)
        for fault in deck.pop()(chance):
            begin = round(at + fault.at, 3)
            length = round(min(fault.seconds, seconds - begin), 3)
            if length > 0:
                drawn.append(replace(fault, at=begin, seconds=length))
        at += chance.uniform(*GAP_SECONDS)
    drawn.sort(key=lambda fault: fault.at)
    return [replace(fault, number=number) for number, fault in enumerate(drawn, 1)]


def pause(chance: random.Random) -> list[Fault]:
    target = chance.choice((*PROGRAMS, *NODES))
    length = chance.uniform(*FAULT_SECONDS)
    if target in NODES:
        length = chance.uniform(*NODE_PAUSE_SECONDS)
    elif target in PROXIES and chance.random() < 0.5:
        length = chance.uniform(*LONG_PAUSE_SECONDS)
    return [Fault("pause", target, length)]


def strand(chance: random.Random) -> list[Fault]:
    """Writes wait in a proxy for a node; when the proxy sends them, their sets have left that node."""
    node, proxy = chance.choice(NODES), chance.choice(HAPROXYS)
    return [
        Fault("pause", node, NODE_PAUSE_SECONDS[1]),
        Fault("pause", proxy, chance.uniform(*LONG_PAUSE_SECONDS), at=0.5),
        Fault("kill", f"{node}-agent", chance.uniform(*FAULT_SECONDS), at=1.0),
    ]


def kill(chance: random.Random) -> list[Fault]:
    return [Fault("kill", chance.choice((*PROGRAMS, *NODES)), chance.uniform(*FAULT_SECONDS))]


def cut(chance: random.Random) -> list[Fault]:
    """One host, a pair's link, or a part of all hosts; the store is left to its nodes."""
    hosts = list(FAULTY)
    chance.shuffle(hosts)
    count = chance.choice((1, 1, 2, 4))
    near = ",".join(sorted(hosts[:count]))
    far = [hosts[count]] if chance.random() < 0.3 else sorted(hosts[count:])
    detail = {"from": far, "both_ways": chance.random() < 0.7}
    return [Fault("cut", near, chance.uniform(*FAULT_SECONDS), detail)]


def slow(chance: random.Random) -> list[Fault]:
    return [Fault("slow", chance.choice(FAULTY), chance.uniform(*FAULT_SECONDS))]


def lose(chance: random.Random) -> list[Fault]:
    return [Fault("lose", chance.choice(FAULTY), chance.uniform(*FAULT_SECONDS))]


def step(chance: random.Random) -> list[Fault]:
    offset = chance.choice((-1, 1)) * CLOCK_STEP_SECONDS ** chance.random()
    detail = {"offset_seconds": round(offset, 3)}
    return [Fault("clock", chance.choice(FAULTY), chance.uniform(*FAULT_SECONDS), detail)]


def fill(chance: random.Random) -> list[Fault]:
    return [Fault("fill", chance.choice((*NODES, *REDISES)), chance.uniform(*FAULT_SECONDS))]


DECK = (pause, pause, strand, kill, kill, cut, cut, slow, lose, step, fill)


class Nemesis:
    """Does the faults of a schedule, and writes down when each began and ended."""

    def __init__(self, site: Site, writer: Writer) -> None:
        self._site, self._writer = site, writer
        # Programs that a fault has now, and which may have ended.
        self.down: set[str] = set()
        self._slowed: set[str] = set()
        self._done: dict[str, Callable[[Fault], Callable[[], None] | None]] = {
            "pause": self._pause,
            "kill": self._kill,
            "cut": self._cut,
            "slow": self._slow,
            "lose": lambda fault: site.hosts[fault.target].lose(),
            "clock": self._step,
            "fill": self._fill,
        }

    def run(self, faults: list[Fault], start: float) -> None:
        """Until all are undone; `start` is the monotonic time of the schedule's zero."""
        numbers = itertools.count()
        actions: list[tuple[float, int, Callable[[], None]]] = []
        for fault in faults:
            begin = lambda fault=fault: self._begin(fault, start, actions, numbers)  # noqa: E731
            actions.append((start + fault.at, next(numbers), begin))
        heapq.heapify(actions)
        while actions:
            at, _, action = heapq.heappop(actions)
            time.sleep(max(0.0, at - time.monotonic()))
            self._site.processes.check(self.down)
            action()

    def _begin(self, fault: Fault, start: float, actions: list, numbers: itertools.count) -> None:
        at = time.monotonic()
        undo = self._done[fault.kind](fault)
        event = "fault" if undo else "skipped"
        self._writer.write(**asdict(fault) | {"at": at, "event": event, "planned": fault.at})
        if undo is None:
            return

        def end() -> None:
            undo()
            self._writer.write(at=time.monotonic(), event="healed", number=fault.number)

        heapq.heappush(actions, (start + fault.at + fault.seconds, next(numbers), end))

    def _named(self, fault: Fault) -> str | None:
        """The program that is meant, unless another fault has it."""
        name = self._site.master() if fault.target == REDIS_MASTER else fault.target
        return None if name in self.down else name

    def _pause(self, fault: Fault) -> Callable[[], None] | None:
        name = self._named(fault)
        if name is None:
            return None
        self.down.add(name)
        self._site.processes.signal(name, "STOP")
        self._writer.write(at=time.monotonic(), event="paused", number=fault.number, program=name)

        def undo() -> None:
            self._site.processes.signal(name, "CONT")
            self.down.remove(name)

        return undo

    def _kill(self, fault: Fault) -> Callable[[], None] | None:
        name = self._named(fault)
        if name is None:
            return None
        processes = self._site.processes
        self.down.add(name)
        processes.signal(name, "KILL")
        wait_until(f"the end of {name}", lambda: processes.has_ended(name), 10, lambda: None)
        self._writer.write(at=time.monotonic(), event="died", number=fault.number, program=name)

        def undo() -> None:
            processes.start(name)
            self.down.remove(name)

        return undo

    def _cut(self, fault: Fault) -> Callable[[], None]:
        addresses = [self._site.address(name) for name in fault.detail["from"]]
        both_ways = fault.detail["both_ways"]
        undone = [self._site.hosts[name].cut(addresses, both_ways) for name in fault.target.split(",")]

        def undo() -> None:
            for one in undone:
                one()

        return undo

    def _slow(self, fault: Fault) -> Callable[[], None] | None:
        if fault.target in self._slowed:
            return None
        self._slowed.add(fault.target)
        faster = self._site.hosts[fault.target].slow()

        def undo() -> None:
            faster()
            self._slowed.remove(fault.target)

        return undo

    def _step(self, fault: Fault) -> Callable[[], None]:
        clock = self._site.clocks[fault.target]

        def to(seconds: float) -> None:
            # In place: programs have the file mapped.
            with clock.open("r+b") as file:
                file.write(struct.pack("<q", round(seconds * 1e9)))

        to(fault.detail["offset_seconds"])
        return lambda: to(0)

    def _fill(self, fault: Fault) -> Callable[[], None] | None:
        name, processes = fault.target, self._site.processes
        if name in self.down:
            return None
        self.down.add(name)
        filler = self._site.disks[name] / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(FILLER_BYTES)):
                pass

        def undo() -> None:
            filler.unlink()
            # A replica of Redis ends when it cannot write its file; an operator has it restarted.
            if processes.has_ended(name):
                processes.start(name)
            self.down.remove(name)

        return undo
