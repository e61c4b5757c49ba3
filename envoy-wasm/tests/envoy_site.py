"""The filter in a real Envoy, with real agents, a real Redis, and nodes that obey each request's query."""

import asyncio
import http.client
import itertools
import socket
import struct
import threading
import urllib.parse
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tests.harness import agent
from tests.harness.agent import Agent
from tests.harness.envoy import Envoy, endpoints, example, set_filter, set_policy
from tests.harness.envoy_filter import Filter
from tests.harness.eventually import eventually
from tests.harness.functions import Cluster, owner
from tests.harness.ports import free_ports, listens
from tests.harness.redis import Redis


class Nodes:
    """HTTP servers in a thread. The query of a request controls its answer: `seconds` delays it; `hold` or
    `half` holds it, or its second half, until `let_go` of that name; `reset` breaks the connection `before`
    or `mid` of it; `status` and `location` set these. With `at`, this applies to that node only; the other
    nodes hold the answer by the name in `then`.
    """

    def __init__(self, count: int) -> None:
        self.ports = free_ports(count)
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.active: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        # Delay of requests whose query sets none.
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
        """Stops listening."""
        server = self._servers.pop(number)
        self._loop.call_soon_threadsafe(server.close)
        eventually("a closed port", lambda: not listens(self.ports[number]))

    def let_go(self, hold: str) -> None:
        """Answers the requests with `hold=<hold>` or `half=<hold>`, present and future."""
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
            query = {"hold": query["then"]} if "then" in query else {}
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


class Client:
    """A client with a connection of its own, which the test can close at any time."""

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
        """Status of the answer, which is read to its end."""
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


class Load:
    """Clients that send requests without a pause, each on a new connection; `answers` has the results."""

    def __init__(self, envoy: Envoy, clients: int = 1) -> None:
        self.answers: list[int | str] = []
        self._envoy, self._stopped = envoy, threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]

    def _run(self) -> None:
        # A request without an answer counts as well.
        while not self._stopped.is_set():
            try:
                self.answers.append(self._envoy.get(f"/stock/S{len(self.answers) % 100:04}")[0])
            except (OSError, http.client.HTTPException) as error:
                self.answers.append(repr(error))

    def goes_on(self) -> None:
        """Waits until some requests that begin from now on are answered."""
        told = len(self.answers) + len(self._threads)
        eventually("answers", lambda: len(self.answers) > told + 100)

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()


class Site:
    """Redis, nodes with their agents, and Envoys in front of them."""

    def __init__(
        self, directory: Path, stack: ExitStack, redis: Redis, bounds: tuple[int, ...], filter_kind: Filter
    ) -> None:
        self.directory, self._stack, self.redis, self._bounds = directory, stack, redis, bounds
        self.filter_kind = filter_kind
        self.cluster = Cluster(redis.client)
        self.nodes = Nodes(len(bounds))
        self.nodes.start()
        stack.callback(self.nodes.stop)
        self.agents = free_ports(len(bounds))
        self._running: dict[str, Agent] = {}

    def start_agent(self, number: int) -> None:
        name = f"node{number + 1}"
        address = f'address = "127.0.0.1:{self.nodes.ports[number]}"'
        ring = agent.ring(name, "slots = 4096", 'lease = "1s"')
        config = agent.redis(self.redis.port) + agent.service(self._bounds[number], address) + ring
        made = Agent(self._stack, self.directory, name, config, http=self.agents[number])
        self._running[name] = made.start()

    def node(self, name: str, *words: str) -> None:
        """Runs `plimsoll node …` for the node's agent."""
        self._running[name].node(*words)

    def force_bounds(self) -> None:
        """Keeps the bounds where they are: where nothing ends while requests are held, that is a stall."""
        for number, bound in enumerate(self._bounds, 1):
            self.node(f"node{number}", "force", "bound", str(bound))

    def start(self) -> None:
        for number in range(len(self._bounds)):
            self.start_agent(number)
        self.wait_ring()

    def wait_ring(self) -> None:
        names = {f"node{number + 1}" for number in range(len(self._bounds))}
        eventually("a ring of all", lambda: set(self.cluster.ring_or_none() or ()) == names)

    def config(self, **settings: Any) -> dict[str, Any]:
        """The example's configuration, for this site; `settings` change those of the filter."""
        config = example(f"{self.filter_kind.name}-fc-hash.yaml")
        quick = {"cluster": "test", "period": 0.1, "lease": 1.0, "age_limit": 2.0, "timeout": 0.5}
        set_filter(config["static_resources"]["listeners"][0], **(quick | settings))
        ports = {"queries": self.nodes.ports, "plimsoll_agents": self.agents}
        for cluster in config["static_resources"]["clusters"]:
            group = cluster["load_assignment"]["endpoints"][0]
            ours = ports.get(cluster["name"], self.nodes.ports[:1])
            group["lb_endpoints"] = endpoints(ours)["lb_endpoints"]
            set_policy(cluster, cluster="test")
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
        envoy = Envoy(self._stack, self.directory / name, config, concurrency, words)
        envoy.command[0] = self.filter_kind.envoy()
        envoy.start()
        return envoy

    def wait_in_force(self, envoy: Envoy) -> None:
        """Waits until every worker places requests by the ring in Redis, and has its full share."""
        eventually("the ring in force", lambda: self._is_in_force(envoy))
        eventually("shares", self._have_all_shares)
        # A worker takes granted shares with a delay, but before the second exchange from now.
        for _ in range(2):
            leases = self._leases()
            eventually("an exchange", lambda leases=leases: not leases.items() & self._leases().items())

    def _leases(self) -> dict[bytes, bytes]:
        return self.cluster.server.hgetall(self.cluster.proxies)

    def _have_all_shares(self) -> bool:
        held: dict[str, list[float]] = {}
        for name, text in self.cluster.server.hgetall(self.cluster.shares).items():
            held.setdefault(name.split()[0].decode(), []).append(float(text.split()[0]))
        # Without demand shares are equal, up to rounding to whole requests.
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
        """The key with this number, from 0, among those of the node in the ring; `None` without slots."""
        _, _, names, owners = self.cluster.ring()
        keys = (f"S{i:04}" for i in range(10_000))
        return next(
            itertools.islice((key for key in keys if owner(key, names, owners) == node), number, None), None
        )

    def in_flight(self, envoy: Envoy) -> tuple[float, float]:
        stats = envoy.stats()
        return stats["in_flight_cost"], stats["in_flight_requests"]
