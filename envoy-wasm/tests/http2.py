"""Thousands of streams on a few connections."""

import asyncio
from contextlib import suppress

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import Event, RequestReceived, ResponseReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

OK = b"200"
# Most streams open at once on one connection.
MAX_STREAMS = 1 << 20


class Streams:
    """The streams of one connection: `open` are those in flight, `answers` the statuses that came back."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: "Server | None" = None
    ) -> None:
        self._reader, self._writer, self._server = reader, writer, server
        config = H2Configuration(client_side=server is None, header_encoding=None)
        self._connection = H2Connection(config)
        self._connection.local_settings = Settings(
            client=server is None, initial_values={SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS}
        )
        self._connection.initiate_connection()
        self._flush()
        self.open: set[int] = set()
        self.answers: list[bytes] = []

    def _flush(self) -> None:
        self._writer.write(self._connection.data_to_send())

    async def read(self) -> None:
        # Health checks may speak HTTP/1.
        with suppress(OSError, ProtocolError):
            while data := await self._reader.read(1 << 16):
                for event in self._connection.receive_data(data):
                    self._take(event)
                self._flush()
        self.open.clear()

    def _take(self, event: Event) -> None:
        match event:
            case RequestReceived(stream_id=stream) if self._server:
                self.open.add(stream)
                if not self._server.holds:
                    self.answer_all()
            case ResponseReceived(headers=headers):
                self.answers.append(dict(headers)[b":status"])
            case StreamEnded(stream_id=stream) if not self._server:
                self.open.discard(stream)
            case StreamReset(stream_id=stream):
                self.open.discard(stream)

    def ask(self, count: int, path: str) -> None:
        """Sends `count` requests at once."""
        head = [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", path)]
        for _ in range(count):
            stream = self._connection.get_next_available_stream_id()
            self._connection.send_headers(stream, head, end_stream=True)
            self.open.add(stream)
        self._flush()

    def answer_all(self) -> None:
        for stream in self.open:
            self._connection.send_headers(stream, [(":status", OK)], end_stream=True)
        self.open.clear()
        self._flush()

    def cancel_all(self) -> None:
        for stream in self.open:
            self._connection.reset_stream(stream, ErrorCodes.CANCEL)
        self.open.clear()
        self._flush()

    def close(self) -> None:
        self._writer.transport.abort()


class Server:
    """Answers each request at once; while `holds` is set, only when `answer_all` is called."""

    def __init__(self) -> None:
        self.holds = False
        self.connections: list[Streams] = []

    async def start(self, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams = Streams(reader, writer, self)
        self.connections.append(streams)
        await streams.read()
        writer.close()

    def count(self) -> int:
        return sum(len(streams.open) for streams in self.connections)


async def connect(port: int) -> tuple[Streams, asyncio.Task[None]]:
    """A client's connection, and the task that reads from it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    streams = Streams(reader, writer)
    return streams, asyncio.create_task(streams.read())
