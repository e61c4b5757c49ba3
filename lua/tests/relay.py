"""A way between a server and its clients that a test may cut or turn."""

import asyncio
from contextlib import suppress


class Relay:
    """Hands on what a server and its clients say to each other."""

    def __init__(self, target: int) -> None:
        self.target = target
        # Connections stay, and nothing is handed on.
        self.is_cut = False
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "Relay":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._close()

    def turn(self, target: int) -> None:
        """Who comes back finds another server."""
        self.target = target
        self._close()

    def _close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers = []

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there, here = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers += [writer, here]
            await asyncio.gather(self._pass_on(reader, here), self._pass_on(there, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if not self.is_cut:
                    writer.write(data)
        if not self.is_cut:
            writer.close()
