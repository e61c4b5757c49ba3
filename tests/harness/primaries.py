"""Nodes that detect when a set runs at two of them, and clients with a ledger, for tests of placement."""

import asyncio
import random
import re
import sqlite3
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field

from tests.harness import ROOT
from tests.harness.ports import free_ports
from tests.harness.traffic import head_of, message

# SQL of an application for the fencing token.
GUIDE = (ROOT / "docs" / "placement.md").read_text()
FENCES = re.findall(r"`(CREATE TABLE fences .*?)`", GUIDE)[0]
FENCE = GUIDE.split("```sql\n")[1].split("```")[0]
NODES = ("node1", "node2", "node3")


class Primaries:
    """HTTP servers that record the requests they run, and refuse sets that another claimed with a newer
    fencing token. `/long` runs until `release` is set, even if its client leaves.
    """

    def __init__(self, seconds: float = 0.01) -> None:
        self.ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
        # By object set and node.
        self.at_work: dict[str, Counter[str]] = defaultdict(Counter)
        self.twice: list[str] = []
        self.ran: Counter[str] = Counter()
        self.where: dict[str, str] = {}
        self.heads: dict[str, list[tuple[str, str]]] = {}
        self._store = sqlite3.connect(":memory:", isolation_level=None)
        self._store.execute(FENCES)
        self.connections = 0
        self.release = asyncio.Event()
        self._seconds = seconds
        self._servers: dict[str, asyncio.Server] = {}
        self._open: dict[str, set[asyncio.StreamWriter]] = defaultdict(set)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Primaries":
        for name in NODES:
            await self.start(name)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release.set()
        for name in list(self._servers):
            self.kill(name)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def start(self, name: str) -> None:
        serve = lambda reader, writer: self._serve(name, reader, writer)  # noqa: E731
        self._servers[name] = await asyncio.start_server(serve, "127.0.0.1", self.ports[name], backlog=1000)

    def kill(self, name: str) -> None:
        """With all that it runs."""
        self._servers.pop(name).close()
        for writer in self._open.pop(name, set()):
            writer.transport.abort()
        for sets in self.at_work.values():
            sets.pop(name, None)

    def busy(self, name: str) -> int:
        return sum(self.at_work[name].values())

    async def _serve(self, node: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[node].add(writer)
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                first, pairs = await head_of(reader)
                fields = dict(pairs)
                self.heads[fields["x-id"]] = pairs
                if self._is_old(node, fields):
                    writer.write(b"HTTP/1.1 409 Conflict\r\nplimsoll-reason: fenced\r\n")
                    writer.write(b"content-length: 0\r\n\r\n")
                    continue
                task = asyncio.create_task(self._run(node, fields, "/long" in first.split()[1]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                await asyncio.shield(task)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        self._open[node].discard(writer)
        writer.close()

    def _is_old(self, node: str, fields: dict[str, str]) -> bool:
        words = {"object_set": fields["x-object-set"], "node": node, "fence": fields["x-plimsoll-fence"]}
        return self._store.execute(FENCE, words).rowcount == 0

    def fence(self, request: str) -> str:
        """The token that it came with."""
        return dict(self.heads[request])["x-plimsoll-fence"]

    async def _run(self, node: str, fields: dict[str, str], is_long: bool) -> None:
        name, request = fields["x-object-set"], fields["x-id"]
        at_work = self.at_work[name]
        at_work[node] += 1
        others = [other for other, count in at_work.items() if other != node and count]
        if others:
            self.twice.append(f"{name} at {node} and {others}")
        self.ran[request] += 1
        self.where[request] = node
        if is_long:
            await self.release.wait()
        else:
            # Some take so long that a handover that did not wait for them would end first.
            factor = random.uniform(0.2, 1.8) if random.random() < 0.95 else 50
            await asyncio.sleep(self._seconds * factor)
        # It may have been killed meanwhile.
        if at_work[node]:
            at_work[node] -= 1


@dataclass
class Clients:
    """Each sends one request after the other, each with an id of its own, and notes what it was told."""

    ports: list[int]
    sets: list[str]
    clients: int
    idle: float = 0.002
    told: dict[str, str] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    stopped: bool = False

    async def __aenter__(self) -> "Clients":
        self._tasks = [asyncio.create_task(self._client(number)) for number in range(self.clients)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stopped = True
        await asyncio.gather(*self._tasks)

    async def _client(self, number: int) -> None:
        count, streams = 0, None
        port = self.ports[number % len(self.ports)]
        while not self.stopped:
            count += 1
            request = f"c{number}.{count}"
            fresh = not streams
            try:
                streams = streams or await asyncio.open_connection("127.0.0.1", port)
                answer, kept = await send(streams, random.choice(self.sets), request)
                self.told[request] = answer
                self.answers[answer] += 1
            except (OSError, asyncio.IncompleteReadError) as error:
                kept = False
                self.told[request] = "nothing"
                # A kept connection may be closed just as it is used, which is HTTP's own race.
                if fresh:
                    self.lost.append(f"{request}: {error!r}")
            if not kept and streams:
                streams[1].close()
                streams = None
            await asyncio.sleep(self.idle)
        if streams:
            streams[1].close()

    def check(self, nodes: Primaries) -> None:
        """Acknowledged requests ran once, and refused ones did not run."""
        assert nodes.twice == []
        wrong = [
            (request, answer, nodes.ran[request])
            for request, answer in self.told.items()
            if nodes.ran[request] > 1
            or (nodes.ran[request] == 0 and answer == "200")
            or (nodes.ran[request] == 1 and answer.startswith("503"))
        ]
        assert wrong == []
        assert self.lost == []


async def send(
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], name: str, request: str, path: str = "/write"
) -> tuple[str, bool]:
    """The status with the policy's reason, and whether the connection is kept."""
    reader, writer = streams
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nx-id: {request}\r\nx-object-set: {name}\r\n"
    writer.write(f"{head}content-length: 5\r\n\r\nhello".encode())
    first, fields = await message(reader)
    answer = f"{first.split()[1]} {fields.get('plimsoll-reason', '')}".strip()
    return answer, fields.get("connection") != "close"


async def ask(port: int, name: str, request: str, path: str = "/write") -> str:
    streams = await asyncio.open_connection("127.0.0.1", port)
    try:
        return (await send(streams, name, request, path))[0]
    finally:
        streams[1].close()
