"""Object sets: the work of scenario `placement`, its best fixed placement, and a watch on where they are."""

import contextlib
import csv
import hashlib
import itertools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import redis

from compose.lab.errors import LabError

COLUMNS = ["t_s", "version", "set", "state"]
# The cluster of the agents in loadtests/policies.toml.
KEY = "plimsoll:{stocks}:placement"
LOOK_S = 0.1
RESTS = 64


@dataclass(frozen=True)
class Sets:
    """Object sets `G00`, `G01`, …; requests for the n-th are in proportion to 1 / n ** skew.

    Their number is that of Middle-R's tables; none exceeds a node's share, or no placement could be even.
    With `evenly`: one for each entry that names share, all with equal frequency.
    """

    count: int = 36
    skew: float = 0.7
    evenly: bool = False

    def shares(self) -> dict[str, float]:
        """The part of the transactions that each has."""
        if self.evenly:
            return dict.fromkeys(one_of_each_rest(), 1 / RESTS)
        weights = [1 / (n + 1) ** self.skew for n in range(self.count)]
        return {f"G{n:02}": weight / sum(weights) for n, weight in enumerate(weights)}


def rest_of(name: str) -> int:
    """The entry that a name shares while it has none of its own, as agents and proxies have it."""
    return int.from_bytes(hashlib.md5(name.encode()).digest()[12:16]) % RESTS


def one_of_each_rest() -> list[str]:
    found: dict[int, str] = {}
    for number in itertools.count():
        if len(found) == RESTS:
            return list(found.values())
        found.setdefault(rest_of(f"G{number:02}"), f"G{number:02}")


def best(loads: dict[str, float], capacities: dict[str, float]) -> dict[str, str]:
    """A node for each set so that the fullest node is as little loaded, for its capacity, as can be found.

    The largest set first, each to where it fills least; then sets move or change places while that helps.
    """
    if not capacities or min(capacities.values()) <= 0:
        raise LabError("the best fixed placement: every node needs a capacity above 0")
    placed: dict[str, str] = {}
    full = dict.fromkeys(capacities, 0.0)
    for name in sorted(loads, key=lambda name: (-loads[name], name)):
        node = min(full, key=lambda node: ((full[node] + loads[name]) / capacities[node], node))
        placed[name] = node
        full[node] += loads[name]

    def fullness(node: str, change: float = 0.0) -> float:
        return (full[node] + change) / capacities[node]

    def better() -> tuple[str, str | None, str] | None:
        """A set of the fullest node, one to come in its place or none, and where to."""
        worst = max(full, key=fullness)
        top = fullness(worst)
        found, least = None, top * (1 - 1e-9)
        for mine, node in itertools.product([s for s, at in placed.items() if at == worst], full):
            if node == worst:
                continue
            for other in [None, *(s for s, at in placed.items() if at == node)]:
                change = loads[mine] - (loads[other] if other else 0.0)
                after = max(fullness(worst, -change), fullness(node, change))
                if after < least:
                    found, least = (mine, other, node), after
        return found

    while step := better():
        mine, other, node = step
        worst = placed[mine]
        change = loads[mine] - (loads[other] if other else 0.0)
        full[worst] -= change
        full[node] += change
        placed[mine] = node
        if other:
            placed[other] = worst
    return placed


class Watch:
    """Writes where each object set is, and each change of it: `node`, or `>node` while it leaves.

    That is what the table in Redis has for the set or, where it has no entry of its own, for the one it
    shares.
    """

    def __init__(self, path: Path, port: int, sets: Iterable[str], now: Callable[[], float]) -> None:
        self._entries = {name: (f"={name}", f"*{rest_of(name)}") for name in sets}
        self._now = now
        self._redis = client(port)
        self._file = path.open("w", newline="")
        self._csv = csv.writer(self._file)
        self._csv.writerow(COLUMNS)
        self._version = ""
        self._states: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._redis.close()
        self._file.close()

    def _loop(self) -> None:
        while not self._stop.wait(LOOK_S):
            # It may be away: what changed is seen when it is back.
            with contextlib.suppress(redis.RedisError):
                self._look()

    def _look(self) -> None:
        t = round(max(0.0, self._now()), 2)
        version = self._redis.hget(KEY, "version") or ""
        if version == self._version:
            return
        with self._redis.pipeline(transaction=True) as both:
            version, table = both.hget(KEY, "version").hgetall(f"{KEY}:table").execute()
        for name, (own, shared) in self._entries.items():
            state = table.get(own) or table.get(shared)
            if state and state != self._states.get(name):
                self._csv.writerow([t, version, name, state])
                self._states[name] = state
        self._file.flush()
        self._version = version or ""


def client(port: int) -> redis.Redis:
    return redis.Redis(port=port, decode_responses=True, socket_timeout=0.5, socket_connect_timeout=0.5)


def joined(port: int, dispatchers: int) -> bool:
    """Whether this many dispatchers have the table."""
    with contextlib.suppress(redis.RedisError), contextlib.closing(client(port)) as server:
        return server.hlen(f"{KEY}:dispatchers") >= dispatchers and server.hlen(f"{KEY}:table") > 0
    return False
