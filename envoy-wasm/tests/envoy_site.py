"""The filter in a real Envoy, with real agents, a real Redis, and nodes that do what they are asked."""

import asyncio
import http.client
import itertools
import json
import os
import socket
import struct
import subprocess
import threading
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import yaml

from compose.lab import machine
from compose.lab.processes import answers, free_ports, start_tied, wait_until
from compose.lab.topology import ROOT
from lua.tests.conftest import Cluster, Redis, owner

EXAMPLE = ROOT / "envoy-wasm" / "examples" / "wasm-fc-hash.yaml"
MODULE = ROOT / "target" / "wasm32-wasip1" / "release" / "envoy_wasm.wasm"
AGENT = """\
[agent]
period = "200ms"
[http]
listen = "127.0.0.1:{http}"
[agent_check]
listen = "127.0.0.1:{check}"
on_shutdown = "hold"
[control]
socket = "{directory}/node{number}.sock"
[redis]
urls = ["redis://127.0.0.1:{redis}"]
[[service]]
name = "stocks"
address = "127.0.0.1:{node}"
[service.sla]
delay = "1s"
[service.bound]
nominal = {bound}
[service.controller]
kind = "fixed"
[service.source]
kind = "proxies"
[service.ring]
cluster = "test"
node = "node{number}"
slots = 4096
lease = "1s"
"""


def eventually(what: str, condition: Callable[[], bool], seconds: float = 15) -> None:
    wait_until(what, condition, seconds, lambda: None)


class Nodes:
    """HTTP servers in a thread. The query says what a request wants of them, of one of them by `at`: to wait
    `seconds`, to `hold` the answer or its second `half` until that is let go, to `reset` the connection
    `before` the answer or `mid` of it, another `status`, a `location`.
    """

    def __init__(self, count: int) -> None:
        self.ports = free_ports(count)
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.active: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        # Of every request, where the query does not say.
        self.seconds = 0.0
        self._let_go: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._servers: dict[int, asyncio.Server] = {}

    def start(self) -> None:
        self._thread.start()
        for number in range(len(self.ports)):
            self.open(number)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _wait(self, work) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def open(self, number: int) -> None:
        name = f"node{number + 1}"
        serve = lambda reader, writer: self._serve(name, reader, writer)  # noqa: E731

        async def bind() -> asyncio.Server:
            return await asyncio.start_server(serve, "127.0.0.1", self.ports[number], backlog=4096)

        self._servers[number] = self._wait(bind())

    def close(self, number: int) -> None:
        """Nobody listens any more."""
        server = self._servers.pop(number)
        self._loop.call_soon_threadsafe(server.close)
        eventually("a closed port", lambda: not self._listens(number))

    def _listens(self, number: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.ports[number])) == 0

    def let_go(self, hold: str) -> None:
        """Requests with `hold=<hold>` are answered."""
        self._let_go.add(hold)

    def stop(self) -> None:
        async def cancel() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._wait(cancel())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _serve(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while await self._answer(name, reader, writer):
                pass
        writer.close()

    async def _answer(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        path = first.split()[1]
        headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(path).query))
        if path == "/readyz":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            return True
        await reader.readexactly(int(headers.get("content-length", 0)))
        self.seen.append((name, headers | {":path": path}))
        if query.get("at", name) != name:
            query = {}
        self.active[name] += 1
        self.peak[name] = max(self.peak[name], self.active[name])
        try:
            while "hold" in query and query["hold"] not in self._let_go and not reader.at_eof():
                await asyncio.sleep(0.01)
            await asyncio.sleep(float(query.get("seconds", self.seconds)))
            return await self._write(name, query, writer)
        finally:
            self.active[name] -= 1

    async def _write(self, name: str, query: dict[str, str], writer: asyncio.StreamWriter) -> bool:
        if query.get("reset") == "before":
            return self._reset(writer)
        status, items = query.get("status", "200"), query.get("touched", query.get("items", "1"))
        writer.write(f"HTTP/1.1 {status} X\r\nx-node: {name}\r\nx-items: {items}\r\n".encode())
        if "location" in query:
            writer.write(f"location: {query['location']}\r\n".encode())
        writer.write(b"content-length: 10\r\n\r\n01234")
        await writer.drain()
        while "half" in query and query["half"] not in self._let_go:
            await asyncio.sleep(0.01)
        if query.get("reset") == "mid":
            return self._reset(writer)
        writer.write(b"56789")
        await writer.drain()
        return True

    @staticmethod
    def _reset(writer: asyncio.StreamWriter) -> bool:
        stream = writer.get_extra_info("socket")
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        return False


def manager_of(listener: dict[str, Any]) -> dict[str, Any]:
    """The HTTP connection manager of a listener."""
    return listener["filter_chains"][0]["filters"][0]["typed_config"]


class Client:
    """One request on a connection of its own, left when the test likes."""

    def __init__(self, port: int, path: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.send(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")

    def send(self, text: str) -> None:
        self._socket.sendall(text.encode())

    def read_until(self, text: bytes) -> bytes:
        read = b""
        while text not in read:
            more = self._socket.recv(4096)
            assert more, read
            read += more
        return read

    def status(self) -> int:
        """Of the answer, read to its end."""
        answer = http.client.HTTPResponse(self._socket)
        answer.begin()
        with suppress(http.client.IncompleteRead, OSError):
            answer.read()
        self._socket.close()
        return answer.status

    def leave(self, reset: bool = True) -> None:
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


class Envoy:
    """One Envoy with the filter."""

    def __init__(
        self, directory: Path, config: dict[str, Any], concurrency: int, words: tuple[str, ...] = ()
    ) -> None:
        self.concurrency, self._words = concurrency, words
        self.port, self.admin = free_ports(2)
        listener = config["static_resources"]["listeners"][0]
        listener["address"]["socket_address"]["port_value"] = self.port
        config["admin"]["address"]["socket_address"]["port_value"] = self.admin
        directory.mkdir(exist_ok=True)
        self.file, self.log = directory / "envoy.yaml", directory / "envoy.log"
        if "dynamic_resources" in config:
            path = directory / "listeners.yaml"
            config["dynamic_resources"]["lds_config"] = {"path_config_source": {"path": str(path)}}
            self.put_listeners(config["static_resources"].pop("listeners"))
        self.file.write_text(yaml.safe_dump(config))
        self.process: subprocess.Popen[bytes] | None = None

    def put_listeners(self, listeners: list[dict[str, Any]]) -> None:
        """Other listeners, where the configuration has `dynamic_resources`."""
        kind = "type.googleapis.com/envoy.config.listener.v3.Listener"
        new = self.file.with_name("listeners.new")
        new.write_text(yaml.safe_dump({"resources": [{"@type": kind} | listener for listener in listeners]}))
        new.rename(self.file.with_name("listeners.yaml"))

    def start(self) -> None:
        self.process = self.begin()
        wait_until("envoy", lambda: answers(f"http://127.0.0.1:{self.admin}/ready"), 30, self.check)

    def begin(self, *more: str) -> subprocess.Popen[bytes]:
        words = ["-c", str(self.file), "--concurrency", str(self.concurrency), "-l", "info"]
        command = [machine.envoy(), *words, *self._words, *(more or ["--disable-hot-restart"])]
        return start_tied(command, dict(os.environ), self.log)

    def check(self) -> None:
        assert self.process.poll() is None, self.log.read_text()[-3000:]

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()

    def stats(self, what: str = "plimsoll") -> dict[str, float]:
        """Counters and gauges of that name, without what is common to the filter's."""
        url = f"http://127.0.0.1:{self.admin}/stats?format=json&filter={what}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            found = json.load(answer)["stats"]
        strip = lambda name: name.removeprefix("wasmcustom.plimsoll_").removesuffix(".cluster.test")  # noqa: E731
        return {strip(stat["name"]): stat["value"] for stat in found if "value" in stat}

    def counts(self) -> tuple[float, float, float]:
        """Requests admitted, refused and left to the fallback policy so far."""
        stats = self.stats()
        return tuple(stats.get(name, 0) for name in ("admitted_total", "refused_total", "undecided_total"))

    def connections(self) -> list[float]:
        """What each worker has had."""
        stats = self.stats("worker_.*downstream_cx_total")
        return [value for name, value in sorted(stats.items()) if f"_{self.port}." in name]

    def counted(self, before: tuple[float, ...], requests: int) -> tuple[float, ...]:
        """What `counts` grew by, once it has grown by so many requests."""
        grew: tuple[float, ...] = ()

        def is_all() -> bool:
            nonlocal grew
            grew = tuple(now - then for now, then in zip(self.counts(), before, strict=True))
            return sum(grew) >= requests

        eventually(f"{requests} requests in the counters", is_all)
        return grew

    def get(self, path: str, headers: Iterable[tuple[str, str]] = ()) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.putrequest("GET", path)
            for name, value in headers:
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            answer.read()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()

    def node_of(self, key: str) -> str:
        status, headers = self.get(f"/stock/{key}")
        assert status == 200
        return headers["x-node"]


def set_filter(listener: dict[str, Any], **settings: Any) -> None:
    """Changes settings of the filter."""
    filters = manager_of(listener)["http_filters"]
    own = next(entry for entry in filters if entry["name"] == "plimsoll")
    value = own["typed_config"]["config"]["configuration"]
    value["value"] = json.dumps(json.loads(value["value"]) | settings)


def start_agent(stack: ExitStack, directory: Path, name: str, config: str) -> subprocess.Popen[bytes]:
    """An agent of that configuration; what it logs is in `<name>.log`."""
    path = directory / f"{name}.toml"
    path.write_text(config)
    command = [machine.binary("plimsoll"), "agent", "--config", str(path)]
    process = start_tied(command, {}, directory / f"{name}.log")
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


class Site:
    """Redis, nodes with their agents, and Envoys in front of them."""

    def __init__(self, directory: Path, stack: ExitStack, redis: Redis, bounds: tuple[int, ...]) -> None:
        self.directory, self._stack, self.redis, self._bounds = directory, stack, redis, bounds
        self.cluster = Cluster(redis.client)
        self.nodes = Nodes(len(bounds))
        self.nodes.start()
        stack.callback(self.nodes.stop)
        self.agents = free_ports(len(bounds))
        self._checks = free_ports(len(bounds))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start_agent(self, number: int) -> None:
        text = AGENT.format(
            http=self.agents[number], check=self._checks[number], directory=self.directory,
            number=number + 1, redis=self.redis.port, node=self.nodes.ports[number],
            bound=self._bounds[number],
        )  # fmt: skip
        self._processes[number] = start_agent(self._stack, self.directory, f"node{number + 1}", text)

    def agent(self, number: int) -> subprocess.Popen[bytes]:
        return self._processes[number]

    def start(self) -> None:
        for number in range(len(self._bounds)):
            self.start_agent(number)
        self.wait_ring()

    def wait_ring(self) -> None:
        names = {f"node{number + 1}" for number in range(len(self._bounds))}
        eventually("a ring of all", lambda: set(self.cluster.ring_or_none() or ()) == names)

    def config(self, **settings: Any) -> dict[str, Any]:
        """The example's, for this site; `settings` are the filter's."""
        text = EXAMPLE.read_text().replace("/usr/share/plimsoll/envoy_wasm.wasm", str(MODULE))
        config = yaml.safe_load(text)
        quick = {"cluster": "test", "period": 0.1, "lease": 1.0, "age_limit": 2.0, "timeout": 0.5}
        set_filter(config["static_resources"]["listeners"][0], **(quick | settings))
        ports = {"queries": self.nodes.ports, "plimsoll_agents": self.agents}
        for cluster in config["static_resources"]["clusters"]:
            endpoints = cluster["load_assignment"]["endpoints"][0]
            ours = ports.get(cluster["name"], self.nodes.ports[:1])
            endpoints["lb_endpoints"] = [
                {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}
                for port in ours
            ]
        return config

    def envoy(
        self,
        concurrency: int = 1,
        name: str = "envoy1",
        config: dict[str, Any] | None = None,
        words: tuple[str, ...] = (),
        **settings: Any,
    ) -> Envoy:
        config = config or self.config(**settings)
        config["node"]["id"] = name
        envoy = Envoy(self.directory / name, config, concurrency, words)
        self._stack.callback(envoy.kill)
        envoy.start()
        return envoy

    def wait_in_force(self, envoy: Envoy) -> None:
        """Until the ring of Redis is the filter's, and every worker decides by it and has its share."""
        eventually("the ring in force", lambda: self._is_in_force(envoy))
        eventually("shares", self._have_all_shares)
        # A worker looks a moment later than it is granted them, and before the second exchange from now.
        for _ in range(2):
            leases = self._leases()
            eventually("an exchange", lambda leases=leases: not leases.items() & self._leases().items())

    def _leases(self) -> dict[bytes, bytes]:
        return self.cluster.server.hgetall(self.cluster.proxies)

    def _have_all_shares(self) -> bool:
        held: dict[str, list[float]] = {}
        for name, text in self.cluster.server.hgetall(self.cluster.shares).items():
            held.setdefault(name.split()[0].decode(), []).append(float(text.split()[0]))
        # Without demand they are even, but for their being whole requests.
        return all(3 * min(shares) > max(shares) for shares in held.values())

    def _is_in_force(self, envoy: Envoy) -> bool:
        before, connections, requests = envoy.counts(), envoy.connections(), 10 * envoy.concurrency
        for _ in range(requests):
            envoy.get("/stock/warm")
        if envoy.counted(before, requests) != (requests, 0, 0):
            return False
        every = all(now > then for now, then in zip(envoy.connections(), connections, strict=True))
        return every and envoy.stats().get("proxy_ring_version") == self.cluster.ring()[0]

    def key_of(self, node: str, number: int = 0) -> str | None:
        """A key of that node in the ring, another one for each number; none while it has no slots."""
        _, _, names, owners = self.cluster.ring()
        keys = (f"S{i:04}" for i in range(10_000))
        return next(
            itertools.islice((key for key in keys if owner(key, names, owners) == node), number, None), None
        )

    def in_flight(self, envoy: Envoy) -> tuple[float, float]:
        stats = envoy.stats()
        return stats["in_flight_cost"], stats["in_flight_requests"]
