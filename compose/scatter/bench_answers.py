"""Compares transports of answers from eight partitions to one: Redis publish/subscribe (SQMD), and direct.

    .venv/bin/python -m compose.scatter.bench_answers

Producers are processes, the consumer is this one; all on loopback, with a Redis of its own (`redis-server`
must be there). An answer of 80 kB is eight parts of 10 kB, one of 40 MB eight of 5 MB, in chunks of 64 KiB as
an agent sends them. Both ways are plain sockets and the same reader, so that no client library is measured.
The clock runs from the asking to the last byte: by Redis one message asks, directly eight requests on kept
connections do.
"""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import BinaryIO, NamedTuple

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

PRODUCERS = 8
CHUNK = 64 << 10
SMALL, LARGE = 80_000, 40_000_000
SMALL_REPEATS, LARGE_REPEATS = 500, 20
END = b"END"


class Way(NamedTuple):
    """One way to ask for that many bytes in all: None, or why it did not come."""

    name: str
    ask: Callable[[int], str | None]


def command(*words: bytes) -> bytes:
    """A command as Redis reads it."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def subscribe(port: int, channel: bytes) -> BinaryIO:
    """Its messages, from here on."""
    stream = socket.create_connection(("127.0.0.1", port))
    stream.sendall(command(b"SUBSCRIBE", channel))
    reader = stream.makefile("rb")
    for _ in range(6):
        reader.readline()
    return reader


def message(reader: BinaryIO, buffer: memoryview) -> int:
    """The size of the next one, whose bytes are in the buffer."""
    for _ in range(5):
        reader.readline()
    size = int(reader.readline()[1:])
    received = reader.readinto(buffer[: size + 2])
    if received != size + 2:
        raise ConnectionError(f"cut off by Redis after {received} bytes of a message of {size}")
    return size


def by_redis(port: int, ready: Connection) -> None:
    """Producer: receives the wanted size, and publishes as many bytes."""
    heard = subscribe(port, b"queries")
    stream = socket.create_connection(("127.0.0.1", port))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    replies = stream.makefile("rb")
    ready.send(None)
    request, chunk = memoryview(bytearray(64)), bytes(CHUNK)
    while True:
        left = int(bytes(request[: message(heard, request)]))
        while left > 0:
            stream.sendall(command(b"PUBLISH", b"answers", chunk[: min(left, CHUNK)]))
            replies.readline()
            left -= CHUNK
        stream.sendall(command(b"PUBLISH", b"answers", END))
        replies.readline()


def directly(ready: Connection) -> None:
    """A producer: HTTP/1.1 as an agent speaks it, a chunked body on a connection that is kept."""
    listener = socket.create_server(("127.0.0.1", 0))
    ready.send(listener.getsockname()[1])
    stream, _ = listener.accept()
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    chunk = bytes(CHUNK)
    while request := stream.recv(4096):
        left = int(request.split(b" ", 2)[1][1:])
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        while left > 0:
            part = chunk[: min(left, CHUNK)]
            stream.sendall(head + f"{len(part):x}\r\n".encode() + part + b"\r\n")
            head = b""
            left -= len(part)
        stream.sendall(b"0\r\n\r\n")


def start(producer: Callable[..., None], *args: object) -> tuple[multiprocessing.Process, object]:
    """A producer that is ready, and what it said of itself."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=producer, args=(*args, theirs), daemon=True)
    process.start()
    return process, ours.recv()


def redis_way(port: int) -> Way:
    """The consumer's end of publish/subscribe."""
    reader = subscribe(port, b"answers")
    stream = socket.create_connection(("127.0.0.1", port))
    replies = stream.makefile("rb")
    buffer = memoryview(bytearray(CHUNK + 2))

    def ask(size: int) -> str | None:
        stream.sendall(command(b"PUBLISH", b"queries", b"%d" % (size // PRODUCERS)))
        replies.readline()
        ended = received = 0
        try:
            while ended < PRODUCERS:
                length = message(reader, buffer)
                if length == len(END):
                    ended += 1
                else:
                    received += length
        except (ConnectionError, ValueError) as error:
            return f"after {received} bytes: {error}"
        return None if received == size else f"{received} bytes came"

    return Way("Redis publish/subscribe", ask)


def direct_way(ports: list[int]) -> Way:
    """The consumer's end of eight streams, read one after the other."""
    streams = [socket.create_connection(("127.0.0.1", port)) for port in ports]

    readers = [stream.makefile("rb") for stream in streams]
    buffer = memoryview(bytearray(CHUNK))

    def drain(reader: BinaryIO) -> int:
        while reader.readline() != b"\r\n":
            pass
        size = 0
        while length := int(reader.readline(), 16):
            size += reader.readinto(buffer[:length])
            reader.read(2)
        reader.read(2)
        return size

    def ask(size: int) -> str | None:
        for stream in streams:
            stream.sendall(f"GET /{size // PRODUCERS} HTTP/1.1\r\nhost: agent\r\n\r\n".encode())
        received = sum(drain(reader) for reader in readers)
        return None if received == size else f"{received} bytes came"

    return Way("direct streams", ask)


def measure(way: Way, size: int, repeats: int) -> list[float]:
    """Seconds of each answer, in order; says why some did not come."""
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        problem = way.ask(size)
        if problem:
            print(f"  {way.name}, {size} bytes: {problem}")
            break
        seconds.append(time.perf_counter() - begun)
    return sorted(seconds)


def shown(size: int, seconds: dict[str, list[float]]) -> None:
    """Each way's line."""
    for name, taken in seconds.items():
        cut = statistics.quantiles(taken, n=20)
        low, median, high = (cut[at] * 1e3 for at in (0, 9, 18))
        print(
            f"{size} bytes, {name}: median {median:.2f} ms (p5 {low:.2f}, p95 {high:.2f}), "
            f"{size / 1e3 / median:.0f} MB/s; {len(taken)} answers"
        )


def slow_subscriber(client: redis.Redis) -> None:
    """Shows Redis' treatment of a subscriber that reads nothing for a while."""
    limit = client.config_get("client-output-buffer-limit")["client-output-buffer-limit"]
    print(f"limits of Redis: {limit[limit.index('pubsub') :]}")
    slow = client.pubsub()
    slow.subscribe("slow")
    chunk, sent = bytes(CHUNK), 0
    while sent < 4 * LARGE and client.publish("slow", chunk):
        sent += CHUNK
    print(f"a subscriber that reads nothing is cut off after {sent / 1e6:.1f} MB")


def started(port: int, directory: str) -> tuple[subprocess.Popen[bytes], redis.Redis]:
    """A Redis that keeps nothing, once it answers."""
    words = ["redis-server", "--port", str(port), "--save", "", "--dir", directory]
    server = subprocess.Popen([*words, "--logfile", str(Path(directory) / "log")])
    retry = Retry(ConstantBackoff(0.02), 500)
    client = redis.Redis(port=port, retry=retry, retry_on_error=[redis.ConnectionError])
    client.ping()
    return server, client


def main() -> None:
    """Both ways in turn, so that neither has the quieter machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as directory:
        server, client = started(port, directory)
        try:
            publishers = [start(by_redis, port)[0] for _ in range(PRODUCERS)]
            ways = [redis_way(port), direct_way([start(directly)[1] for _ in range(PRODUCERS)])]
            for size, repeats in [(SMALL, SMALL_REPEATS), (LARGE, LARGE_REPEATS)]:
                seconds: dict[str, list[float]] = {way.name: [] for way in ways}
                for way in ways:
                    measure(way, size, 1)
                for _ in range(repeats):
                    for way in ways:
                        seconds[way.name] += measure(way, size, 1)
                shown(size, seconds)
            for publisher in publishers:
                publisher.terminate()
            slow_subscriber(client)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
