"""Nodes that count what they have in hand, and clients that ask for all they can, in one event loop."""

import asyncio
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from tests.harness.eventually import until
from tests.harness.ports import free_ports

KEYS = 4000


async def head_of(reader: asyncio.StreamReader) -> tuple[str, list[tuple[str, str]]]:
    """The first line of an HTTP message and all its fields, by names in lower case; its body is read past."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    found = re.findall(r"^([^:\r\n]+): *([^\r]*)\r$", head, re.MULTILINE)
    fields = [(name.lower(), value) for name, value in found]
    await reader.readexactly(int(dict(fields).get("content-length", 0)))
    return head.partition("\r\n")[0], fields


async def message(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    """The first line of an HTTP message and its fields, in lower case; its body is read past."""
    first, fields = await head_of(reader)
    return first.lower(), {name: value.lower() for name, value in fields}


class Nodes:
    """HTTP servers; a request for /stock/long is answered when `release` is set."""

    def __init__(self, names: tuple[str, ...], seconds: float) -> None:
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.active: dict[str, set[object]] = {name: set() for name in names}
        self.peak: Counter[str] = Counter()
        self.answered = 0
        self.arrived, self.release = asyncio.Event(), asyncio.Event()
        self._seconds = seconds
        self._servers: list[asyncio.Server] = []

    async def __aenter__(self) -> "Nodes":
        for name, port in self.ports.items():
            serve = lambda reader, writer, name=name: self._serve(name, reader, writer)  # noqa: E731
            self._servers.append(await asyncio.start_server(serve, "127.0.0.1", port, backlog=1000))
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()

    async def _serve(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                request = object()
                self.active[name].add(request)
                self.peak[name] = max(self.peak[name], len(self.active[name]))
                if b" /stock/long " in head:
                    self.arrived.set()
                    await self.release.wait()
                else:
                    await asyncio.sleep(self._seconds)
                self.active[name].remove(request)
                self.answered += 1
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async def turned_over(self) -> None:
        """Until what is under way now has ended, but for one for /stock/long; peaks begin anew."""
        now = [(name, request) for name, active in self.active.items() for request in active]
        await until(
            "the end of what is under way",
            lambda: sum(request in self.active[name] for name, request in now) <= self.arrived.is_set(),
        )
        self.peak.clear()


@dataclass
class Load:
    """Clients that each ask for one key after the other on a connection that is kept; what they were told."""

    ports: list[int]
    clients: int
    # Between an answer and the next request, so that kept connections are idle as well, s.
    idle: float
    # Status, with the policy's reason.
    answers: Counter[str] = field(default_factory=Counter)
    # Answered by a node that the policy chose.
    placed: int = 0
    lost: list[str] = field(default_factory=list)
    stopped: bool = False

    async def __aenter__(self) -> "Load":
        self._tasks = [asyncio.create_task(self._client(number)) for number in range(self.clients)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stopped = True
        await asyncio.gather(*self._tasks)

    async def _client(self, number: int) -> None:
        streams, kept, at = None, False, 0
        while not self.stopped:
            number += self.clients
            port = self.ports[number % len(self.ports)]
            if streams and port != at:
                # Its clients were sent elsewhere.
                streams[1].close()
                streams = None
            fresh, at = not streams, port
            try:
                streams = streams or await connect(port)
                _, kept = await self.ask(*streams, f"/stock/S{number % KEYS:04}")
            except (OSError, asyncio.IncompleteReadError) as error:
                kept = False
                # Retry: a kept connection may be closed just as it is used, which is HTTP's own race.
                if fresh:
                    self.lost.append(repr(error))
            if not kept and streams:
                streams[1].close()
                streams = None
            await asyncio.sleep(self.idle)
        if streams:
            streams[1].close()

    async def ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str
    ) -> tuple[str, bool]:
        """The status with the policy's reason, and whether the connection is kept."""
        writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        first, fields = await message(reader)
        answer = f"{first.split()[1]} {fields.get('plimsoll-reason', '')}".strip()
        self.answers[answer] += 1
        self.placed += answer == "200" and fields.get("x-placed", "") != ""
        return answer, fields.get("connection") != "close"

    async def ask_until_admitted(self, path: str) -> str:
        """Final response to the client."""
        answer = "503 full"
        while answer == "503 full":
            reader, writer = await connect(self.ports[0])
            answer, _ = await self.ask(reader, writer, path)
            writer.close()
            await asyncio.sleep(0.001)
        return answer


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)
