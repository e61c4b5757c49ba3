"""A fake agent, whose answers are up to the test."""

import json
import socket
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SLOTS = 16


@dataclass
class Reply:
    """An answer. `length` is a false content length, `endless` a body without an end, `seconds` a delay."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    endless: bool = False
    seconds: float = 0


class FakeAgent:
    """Answers `/v1/observe` and `/v1/ring` correctly, except for paths in `replies`."""

    def __init__(self, port: int, addresses: dict[str, str]) -> None:
        self.addresses, self.version = addresses, 1
        self.replies: dict[str, Callable[[dict[str, Any]], Reply]] = {}
        self.answered: Counter[str] = Counter()
        self.exchanges: list[dict[str, Any]] = []
        agent = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                agent.answer(self, {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                agent.answer(self, json.loads(body))

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Ignores errors, as Envoy may close a connection at any time."""

            def process_request(self, request: socket.socket, address: object) -> None:
                agent.connections.append(request)
                super().process_request(request, address)

        self._make = lambda: Server(("127.0.0.1", port), Handler)
        self.start()

    def start(self) -> None:
        self.connections: list[socket.socket] = []
        self._server = self._make()
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def shares(self, exchange: dict[str, Any]) -> dict[str, Any]:
        """The correct answer to `/v1/observe`."""
        node = {"bound_jobs": 64, "mean_cost": 80, "jobs": 5, "load": 0.4}
        granted = {"count": 1, "granted": dict.fromkeys(self.addresses, 1e6)}
        return {
            "version": self.version,
            "nodes": {name: node | {"address": address} for name, address in self.addresses.items()},
            "dispatchers": {told["name"]: granted for told in exchange["dispatchers"]},
        }

    def table(self) -> dict[str, Any]:
        """The correct answer to `/v1/ring`."""
        names = list(self.addresses)
        each, rest = divmod(SLOTS, len(names))
        owners = [number for i in range(len(names)) for number in (i, each + (rest if i == 0 else 0))]
        return {
            "service": "stocks", "version": self.version, "slots": SLOTS, "nodes": names, "owners": owners,
        }  # fmt: skip

    def truth(self, path: str, asked: dict[str, Any]) -> Reply:
        if path == "/v1/ring" and asked.get("since") == str(self.version):
            return Reply(status=304)
        return Reply(json.dumps(self.table() if path == "/v1/ring" else self.shares(asked)).encode())

    def answer(self, handler: BaseHTTPRequestHandler, exchange: dict[str, Any]) -> None:
        path, _, query = handler.path.partition("?")
        if path == "/v1/ring":
            exchange = dict(urllib.parse.parse_qsl(query))
        else:
            self.exchanges.append(exchange)
        liar = self.replies.get(path)
        if not liar and path == "/v1/ring":
            self._wait(exchange)
            liar = self.replies.get(path)
        reply = liar(exchange) if liar else self.truth(path, exchange)
        with suppress(OSError):
            self._write(handler, reply)
        self.answered[f"{path} {'lie' if liar else 'truth'}"] += 1

    def _wait(self, asked: dict[str, Any]) -> None:
        until = time.monotonic() + float(asked.get("wait", 0))
        while (
            asked.get("since") == str(self.version)
            and time.monotonic() < until
            and "/v1/ring" not in self.replies
        ):
            time.sleep(0.01)

    @staticmethod
    def _write(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        time.sleep(reply.seconds)
        if reply.status == 0:
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
            return
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        length = len(reply.body) if reply.length is None else reply.length
        if reply.status not in (204, 304):
            handler.send_header("content-length", str(length))
        handler.end_headers()
        handler.wfile.write(reply.body)
        while reply.endless:
            handler.wfile.write(bytes(1 << 16))
        if length != len(reply.body):
            handler.close_connection = True
