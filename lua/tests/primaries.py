"""For the tests of placement: a keeper, nodes that tell when a set runs at two, clients with a ledger."""

import asyncio
import os
import random
import re
import signal
import sqlite3
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import redis

from compose.lab import machine, proxy
from compose.lab.processes import free_ports, start_tied
from compose.lab.topology import ROOT
from lua.tests.traffic import head_of, message, until

SNIPPET = (ROOT / "haproxy" / "snippets" / "placement.cfg").read_text()
# What an application does with the fencing token.
GUIDE = (ROOT / "docs" / "placement.md").read_text()
FENCES = re.findall(r"`(CREATE TABLE fences .*?)`", GUIDE)[0]
FENCE = GUIDE.split("```sql\n")[1].split("```")[0]
NODES = ("node1", "node2", "node3")
RESTS = 64
CONFIG = """\
global
    log stderr format raw local0 notice
    nbthread {threads}
    stats socket {directory}/{name}.sock mode 660 level admin expose-fd listeners
.if version_atleast(3.2)
    tune.lua.bool-sample-conversion normal
.endif
    lua-prepend-path {root}/lua/?.lua
    lua-prepend-path {root}/lua/?/init.lua
    lua-load-per-thread {directory}/{name}.lua

defaults
    mode http
    timeout connect 500ms
    timeout client 60s
    timeout server 60s
    # What a backend that writes must not have.
    retries 3
    retry-on all-retryable-errors
    option redispatch 1
{defaults}
frontend web
    bind 127.0.0.1:{port}
    http-request use-service lua.plimsoll_metrics if {{ path /plimsoll/metrics }}
    default_backend transactions

backend transactions
{snippet}    http-response set-header x-server %s
"""
SETTINGS = """\
require("plimsoll").start({{
  cluster = "test", proxy = "{name}", period = {period},
  redis = {{ addresses = {{ "127.0.0.1:{redis}" }}, timeout = 0.5 }},
  placement = {{ backend = "transactions", wait = {wait} }},
}})
"""


class Keeper:
    """What an agent does, by hand: one hand-over after the other."""

    def __init__(
        self, client: redis.Redis, request_limit: float = 1, when_lost: str = "serve", lease: float = 3600,
        margin: float = 1,
    ) -> None:  # fmt: skip
        self.client = client
        parts = ("", ":table", ":log", ":dispatchers", ":busy", ":loads", ":gone")
        self.keys = [f"plimsoll:{{test}}:placement{part}" for part in parts]
        self._limit = int(1000 * request_limit)
        self._terms = (int(1000 * lease), self._limit, when_lost, int(1000 * margin))
        self._answered = time.monotonic()
        self.version, self.generation, self.epoch = 0, "", 0
        self.primary: dict[str, str] = {}
        self.loads: Counter[str] = Counter()

    def call(self, function: str, *words):
        return self.client.fcall(f"plimsoll_placement_{function}", 7, *self.keys, *words)

    def claim(self, server: str) -> None:
        _, self.epoch, _ = self.call("claim", "test-keeper", 3_600_000, *self._terms, server)
        self._answered = time.monotonic()

    def open(self, primary: dict[str, str], wait_ms: int = 0) -> None:
        """Begins a table of its own; who is not in it is on node1."""
        self.claim("one")
        rests = {f"*{rest}": "node1" for rest in range(RESTS)}
        self.primary = rests | primary
        self.version, self.generation = self.version + 1, f"g{time.time_ns()}"
        entries = " ".join(f"{name} {node}" for name, node in self.primary.items())
        self.call("open", "test-keeper", self.epoch, self.generation, self.version, wait_ms, "", entries)

    def fence(self) -> str:
        """What nodes are told of this table."""
        return f"{self.generation} {self.version:016}"

    def publish(self, entries: dict[str, str]) -> int:
        words = " ".join(f"{name} {state}" for name, state in entries.items())
        delta = f"{self.version} {self.version + 1} {words}"
        self.version = self.call("publish", "test-keeper", self.epoch, self.generation, delta)
        return self.version

    def read(self) -> tuple[dict[str, tuple[int, int, set[str]]], int]:
        """Of each dispatcher its version, that it joined at, what is busy there; and how many have gone."""
        lease = 3_600_000
        passed = int(1000 * (time.monotonic() - self._answered))
        flat = self.call("read", "test-keeper", self.epoch, lease, self._limit, 1, "", passed)
        self._answered += passed / 1000
        flat = [word.decode() if isinstance(word, bytes) else word for word in flat]
        count, gone, words = int(flat[5]), int(flat[6]), flat[7:]
        found = {}
        for at in range(0, 5 * count, 5):
            name, _, version, joined, busy = words[at : at + 5]
            found[name] = (int(version), int(joined), set(busy.split()))
        loads = words[5 * count + 2 * gone :]
        for name, cost in zip(loads[::2], loads[1::2], strict=True):
            self.loads[name] += float(cost)
        return found, gone

    def leave(self, *sets: str) -> int:
        return self.publish({name: ">" + self.primary[name] for name in sets})

    def is_through(self, since: int, *sets: str) -> bool:
        dispatchers, gone = self.read()
        free = all(version >= since and not busy & set(sets) for version, _, busy in dispatchers.values())
        return free and not gone

    async def known(self, version: int) -> None:
        """Until every dispatcher has told that it has this version."""
        behind = lambda: [told for told, *_ in self.read()[0].values() if told < version]  # noqa: E731
        await until(f"version {version}", lambda: not behind())

    async def move(self, to: str, *sets: str) -> None:
        since = self.leave(*sets)
        await until(f"{sets} off {self.primary[sets[0]]}", lambda: self.is_through(since, *sets))
        self.settle(to, *sets)

    def settle(self, to: str, *sets: str) -> None:
        self.publish(dict.fromkeys(sets, to))
        self.primary |= dict.fromkeys(sets, to)


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


class Primaries:
    """HTTP servers that write down what they run, and refuse what another one has written by a newer table.
    `/long` runs until `release` is set, whoever leaves.
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
            # Some take long enough that a hand-over that did not wait for them would be over first.
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
        """Who was told that it was done was done once; who was refused was not."""
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


def pause(process: subprocess.Popen[bytes]) -> None:
    """Until all its threads stand still: the signal alone leaves those that run to what they are at."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


async def names_are_placed(
    nodes: Primaries, keeper: Keeper, port: int, cases: dict[str, str | None], is_path: bool
) -> None:
    """Each case of lua/tests/names.py has its set, which the node is told, or is refused."""
    for number, (case, name) in enumerate(cases.items()):
        request = f"case{number}"
        path, lines = (case, "x-object-set: client") if is_path else ("/write", case)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\nx-id: {request}\r\n{lines}\r\n"
        writer.write(f"{head}x-plimsoll-fence: z\r\ncontent-length: 0\r\n\r\n".encode())
        first, _ = await message(reader)
        writer.close()
        told = nodes.heads.get(request, [])
        # As CGI and WSGI fold them.
        folded = [(re.sub("[^a-z0-9]", "_", field), value) for field, value in told]
        found = [value for field, value in folded if field == "x_object_set"]
        fences = [value for field, value in folded if field == "x_plimsoll_fence"]
        assert (first.split()[1], found) == (("200", [name]) if name else ("400", [])), case
        assert fences == ([keeper.fence()] if name else []), case


class Balancer:
    """A HAProxy in front of the primaries; a second one may follow it."""

    def __init__(
        self, directory: Path, name: str, nodes: Primaries, redis_port: int,
        wait: float = 5, period: float = 0.1, defaults: str = "", extra: str = "", threads: int = 2,
        snippet: str = SNIPPET, program: str = "", proxy_name: str = "",
    ) -> None:  # fmt: skip
        (self.port,) = free_ports(1)
        self.name, self._directory, self._program = name, directory, program or machine.haproxy()
        self.socket = directory / f"{name}.sock"
        self._file = directory / f"{name}.cfg"
        settings = SETTINGS.format(name=proxy_name or name, period=period, redis=redis_port, wait=wait)
        (directory / f"{name}.lua").write_text(settings)
        config = CONFIG.format(
            threads=threads, directory=directory, name=name, root=ROOT, port=self.port, snippet=snippet,
            defaults=defaults,
        )  # fmt: skip
        config += extra
        config += "".join(f"    server {node} 127.0.0.1:{port}\n" for node, port in nodes.ports.items())
        self._file.write_text(config)
        self.processes = []
        self.start()

    def start(self, *words: str) -> None:
        self.log = self._directory / f"{self.name}{len(self.processes)}.log"
        command = [self._program, "-db", "-f", str(self._file), *words]
        self.processes.append(start_tied(command, {}, self.log))

    async def up(self) -> "Balancer":
        def is_up() -> bool:
            assert self.processes[-1].poll() is None, self.log.read_text()
            with suppress(OSError):
                return bool(proxy.ask(self.socket, "show info"))
            return False

        await until("haproxy", is_up)
        return self

    def reload(self) -> None:
        self.start("-x", str(self.socket), "-sf", str(self.processes[-1].pid))

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    async def metrics(self) -> dict[str, float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET /plimsoll/metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        text = (await reader.read()).decode()
        writer.close()
        samples = re.findall(
            r'^plimsoll_placement_(\w+)\{plimsoll_cluster="test"(?:,reason="(\w+)")?\} (\S+)$', text, re.M
        )
        return {name + (f" {reason}" if reason else ""): float(value) for name, reason, value in samples}

    async def shows(self, **wanted: float) -> None:
        """Threads tell what they did once a second."""
        deadline = time.monotonic() + 60
        while not wanted.items() <= (shown := await self.metrics()).items():
            assert time.monotonic() < deadline, f"{shown} and not {wanted}"
            await asyncio.sleep(0.05)


async def eventually(what: str, condition: Callable[[], object]) -> None:
    await until(what, lambda: bool(condition()))


SETS = [f"s{number}" for number in range(12)]
OWN = {f"=s{number}": NODES[number % 3] for number in range(6)}


class Site:
    """Primaries, their keeper, and two proxies with two threads each."""

    def __init__(self, stack: AsyncExitStack, directory: Path, redis, **keeper) -> None:
        self.stack, self.directory, self.redis = stack, directory, redis
        self.keeper = Keeper(redis.client, **keeper)

    async def start(self, proxies: int = 2, ports: tuple[int, ...] = (), **options) -> "Site":
        """`ports`: of Redis, or what leads there, of the first proxies."""
        self.nodes = await self.stack.enter_async_context(Primaries())
        self.keeper.open(OWN)
        self.proxies = []
        for number in range(proxies):
            port = ports[number] if number < len(ports) else self.redis.port
            balancer = Balancer(self.directory, f"lb{number}", self.nodes, port, **options)
            self.stack.callback(balancer.kill)
            self.proxies.append(balancer)
        for balancer in self.proxies:
            await balancer.up()
        await eventually("dispatchers", lambda: len(self.keeper.read()[0]) == 2 * proxies)
        return self

    def clients(self, count: int = 24) -> Clients:
        return Clients([balancer.port for balancer in self.proxies], SETS, count)
