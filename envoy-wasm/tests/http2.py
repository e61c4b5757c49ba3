"""As much of HTTP/2 as it takes to have thousands of streams on a few connections (RFC 9113)."""

import asyncio
import struct
from contextlib import suppress

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 1, 3, 4, 6, 8
ACK = END_STREAM = 1
END_HEADERS = 4
CANCEL = 8
# `:status: 200` of HPACK's static table.
OK = b"\x88"


class Streams:
    """One connection's streams; `open` are under way, `answers` the first bytes of header blocks."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: "Server | None" = None
    ) -> None:
        self._reader, self._writer, self._server = reader, writer, server
        self.open: set[int] = set()
        self.answers: list[bytes] = []

    def send(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self._writer.write(
            struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload
        )

    def settle(self) -> None:
        self.send(SETTINGS, 0, 0)
        self.send(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30))

    async def read(self) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = await self._reader.readexactly(9)
                length, (kind, flags, stream) = int.from_bytes(head[:3]), struct.unpack(">BBI", head[3:])
                self._take(kind, flags, stream, await self._reader.readexactly(length))
        self.open.clear()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in (SETTINGS, PING) and not flags & ACK:
            self.send(kind, ACK, 0, payload if kind == PING else b"")
        elif kind == RST_STREAM:
            self.open.discard(stream)
        elif kind == HEADERS and self._server:
            self.open.add(stream)
            if not self._server.holds:
                self.answer_all()
        elif kind == HEADERS:
            self.answers.append(payload[:1])
        if stream and not self._server and flags & END_STREAM:
            self.open.discard(stream)

    def ask(self, count: int, path: str) -> None:
        """So many requests at once."""
        text = lambda value: bytes([len(value)]) + value.encode()  # noqa: E731
        block = b"\x82\x86\x01" + text("x") + b"\x04" + text(path)
        for stream in range(1, 2 * count, 2):
            self.open.add(stream)
            self.send(HEADERS, END_HEADERS | END_STREAM, stream, block)

    def answer_all(self) -> None:
        for stream in self.open:
            self.send(HEADERS, END_HEADERS | END_STREAM, stream, OK)
        self.open.clear()

    def cancel_all(self) -> None:
        for stream in self.open:
            self.send(RST_STREAM, 0, stream, struct.pack(">I", CANCEL))
        self.open.clear()

    def close(self) -> None:
        self._writer.transport.abort()


class Server:
    """Answers at once, or where it `holds`, not at all until it is told."""

    def __init__(self) -> None:
        self.holds = False
        self.connections: list[Streams] = []

    async def start(self, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            await reader.readexactly(len(PREFACE))
            streams = Streams(reader, writer, self)
            self.connections.append(streams)
            streams.settle()
            await streams.read()
        writer.close()

    def count(self) -> int:
        return sum(len(streams.open) for streams in self.connections)


async def connect(port: int) -> tuple[Streams, asyncio.Task[None]]:
    """A client's connection, and what reads from it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(PREFACE)
    streams = Streams(reader, writer)
    streams.settle()
    return streams, asyncio.create_task(streams.read())
