"""Clients that mean no good to the agent's ports, each kind in a thread."""

import contextlib
import itertools
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

# What a connection of the crowd sends, and goes on to send.
HEAD = b"GET /healthz HTTP/1.1\r\nhost: x\r\nx: " + b"x" * 15_000
BODY = b"POST /v3/discovery:endpoints HTTP/1.1\r\nhost: x\r\ncontent-length: 900000\r\n\r\n" + b"x" * 800_000
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
ANSWER_SECONDS = 5


def connect(port: int) -> socket.socket | None:
    """Begins to; none where this side or the other has no more room."""
    client = socket.socket()
    client.setblocking(False)
    try:
        client.connect_ex(("127.0.0.1", port))
    except OSError:
        client.close()
        return None
    return client


class Crowd:
    """Connections that are opened and kept, and again wherever they are closed; each drips what it owes."""

    def __init__(self, size: int, kinds: list[tuple[int, bytes, bytes]]) -> None:
        """A kind: its port, what it begins with, what it goes on with."""
        self._kinds = list(itertools.islice(itertools.cycle(kinds), size))
        self._clients: list[socket.socket | None] = [None] * size
        self.opened = 0

    def run(self, over: threading.Event) -> None:
        while not over.is_set():
            for i, (port, first, more) in enumerate(self._kinds):
                if over.is_set():
                    break
                client = self._clients[i]
                if client is None:
                    client = self._clients[i] = connect(port)
                    self.opened += client is not None
                    text = first
                else:
                    text = more
                if client is not None and not self._goes_on(client, text):
                    client.close()
                    self._clients[i] = None
        for client in self._clients:
            if client is not None:
                client.close()

    @staticmethod
    def _goes_on(client: socket.socket, text: bytes) -> bool:
        try:
            client.send(text)
        except BlockingIOError:
            pass
        except OSError:
            return False
        try:
            return client.recv(4096) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False


def agent_checks(port: int) -> Callable[[int], None]:
    """Each by another proxy."""

    def ask(n: int) -> None:
        with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as client:
            client.sendall(f"stocks proxy{n}\n".encode())
            client.recv(4096)

    return ask


def requests(port: int) -> Callable[[int], None]:
    """Each with other names."""

    def ask(n: int) -> None:
        path = ["/v1/ring?service=s", "/v1/node?x=", "/x", "/metrics?x="][n % 4]
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}{n}", timeout=ANSWER_SECONDS).read()

    return ask


def exchanges(port: int) -> Callable[[int], None]:
    """Each of 256 other dispatchers."""

    def ask(n: int) -> None:
        dispatchers = [
            {
                "name": f"proxy{n}/{i}",
                "instance": "a",
                "lease_seconds": 3600,
                "nodes": [{"name": "node1", "demand": 1, "observation": "x" * 2048}],
            }
            for i in range(256)
        ]
        body = json.dumps({"dispatchers": dispatchers}).encode()
        with contextlib.suppress(urllib.error.HTTPError):
            url = f"http://127.0.0.1:{port}/v1/observe"
            urllib.request.urlopen(urllib.request.Request(url, body), timeout=ANSWER_SECONDS).read()

    return ask


def log_lines(port: int) -> Callable[[int], None]:
    """Of other servers each, in one connection as long as it is taken."""
    client: socket.socket | None = None

    def tell(n: int) -> None:
        nonlocal client
        client = client or socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        lines = "".join(f"plimsoll queries/node{n}x{i} 0 0 1 0 200 -- -\n" for i in range(500))
        try:
            client.sendall(lines.encode() + b"x" * 20_000)
        except OSError:
            client = None

    return tell


def orders(socket_path: str) -> Callable[[int], None]:
    """To the control socket."""

    def tell(n: int) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(ANSWER_SECONDS)
            client.connect(socket_path)
            client.sendall(b"x" * 100_000 if n % 2 else b"drain service%d\n" % n)
            client.recv(4096)

    return tell


@contextlib.contextmanager
def attacked(crowd: Crowd, floods: dict[str, Callable[[int], None]]) -> Iterator[dict[str, int]]:
    """While all of them run; how often each flood was taken."""
    over, counts = threading.Event(), dict.fromkeys(floods, 0)

    def flood(name: str, once: Callable[[int], None]) -> None:
        for n in itertools.count():
            if over.is_set():
                return
            with contextlib.suppress(OSError):
                once(n)
                counts[name] += 1

    threads = [threading.Thread(target=crowd.run, args=(over,))]
    threads += [threading.Thread(target=flood, args=pair) for pair in floods.items()]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        over.set()
        for thread in threads:
            thread.join()
