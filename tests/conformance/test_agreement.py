"""What is kept twice is the same: owners of keys on proxies and in Rust, sums of shares in Redis."""

import http.client
import math
import random
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import xxhash

from tests.harness import ROOT, agent, programs
from tests.harness.agent import Agent
from tests.harness.eventually import eventually
from tests.harness.functions import Cluster
from tests.harness.haproxy import HAProxy
from tests.harness.ports import answers, free_ports
from tests.harness.redis import Redis

# A dozen keys a slot.
KEYS, SLOTS = 200_000, 16384
# Of one request: HAProxy ends a service that has computed for 4 s.
CHUNK = 50_000
CONFIG = """\
global
    nbthread 1
    stats socket {directory}/haproxy.sock mode 660 level admin
    lua-prepend-path {root}/lua/?.lua
    lua-prepend-path {root}/lua/?/init.lua
    lua-load-per-thread {directory}/plimsoll.lua
defaults
    mode http
    timeout connect 1s
    timeout client 30s
    timeout server 30s
frontend web
    bind 127.0.0.1:{port}
    http-request use-service lua.owners
backend queries
    server agent 127.0.0.1:1
    server node1 127.0.0.1:1
    server node2 127.0.0.1:1
    server node3 127.0.0.1:1
    server drained 127.0.0.1:1
"""
POLICY = """\
package.path = "{root}/tests/conformance/?.lua;" .. package.path
require("agreement")
require("plimsoll").start({{
  cluster = "test", backend = "queries", proxy = "{name}", period = 0.1, lease = 5,
  redis = {{ addresses = {{ "127.0.0.1:{redis}" }} }},
}})
"""
# Bounds after each change, the agent's 40 among them.
CHANGES = [
    {"node1": 11.0, "node2": 37.5, "node3": 80.25, "drained": 0.0},
    {"node1": 90.0},  # grows
    {"node3": 21.0},  # shrinks
    {"drained": 33.3},  # is back
    {"node1": None},  # leaves
]


def key_of(n: int) -> bytes:
    """The same as `key_of` of agreement.lua."""
    kind, odd = n % 4, n // 4 % 256
    if kind == 0:
        return b"S%d" % n
    if kind == 1:
        return b"order-%d-" % n + b"x" * (n % 97)
    # These end a line, and a part of the path.
    odd = 126 if odd in (10, 47) else odd
    return b"%c%d" % (odd, n) if kind == 2 else b"%d%c\xff" % (n, odd)


class Owners(HAProxy):
    """Says who owns keys."""

    def __init__(self, stack: ExitStack, directory: Path, name: str, redis: int) -> None:
        self.dispatcher = f"{name}/1"
        directory.mkdir()
        (directory / "plimsoll.lua").write_text(POLICY.format(root=ROOT, name=name, redis=redis))
        super().__init__(
            stack, directory, CONFIG.format(root=ROOT, directory=directory, port=free_ports(1)[0])
        )
        self.start()

    def part(self, version: int, first: int, count: int) -> tuple[int, str | None, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", f"/owners/{version}/{first}/{count}")
            answer = connection.getresponse()
            return answer.status, answer.getheader("names"), answer.read()
        finally:
            connection.close()

    def has(self, version: int) -> bool:
        try:
            return self.part(version, 0, 1)[0] == 200
        except OSError:
            return False

    def owners(self, version: int, names: list[str]) -> bytes:
        """The owner of each key, as an index; asked in pieces."""
        pieces = []
        for first in range(0, KEYS, CHUNK):
            status, told, owners = self.part(version, first, CHUNK)
            assert status == 200, owners
            assert told == ",".join(names)
            pieces.append(owners)
        return b"".join(pieces)


class Member(Agent):
    """A member as others: it reports a bound of 40 and serves the ring to the command line."""

    def __init__(self, stack: ExitStack, directory: Path, redis: int) -> None:
        ring = agent.ring("agent", f"slots = {SLOTS}", "dead_band = 0", 'lease = "4s"')
        service = agent.service(40, 'identities = ["queries/agent"]')
        super().__init__(stack, directory, "agent", agent.redis(redis) + service + ring, period="100ms")
        self.start()

    def has(self, version: int) -> bool:
        return answers(f"{self.url}/v1/ring") and self.json("/v1/ring")["version"] == version

    def owners(self, names: list[str], keys: Path) -> bytes:
        """The owner of each key, as an index, by the Rust library in the command line."""
        command = [programs.agent(), "ring", "owner", "--url", self.url, "--stdin"]
        with keys.open("rb") as lines:
            out = subprocess.run(command, stdin=lines, capture_output=True, check=True).stdout
        index = {name.encode(): i for i, name in enumerate(names)}
        return bytes(index[line.rpartition(b"\t")[2]] for line in out[:-1].split(b"\n"))


@pytest.fixture
def parts(stack, tmp_path, own_redis: Redis) -> tuple[Cluster, Member, list[Owners]]:
    own_redis.start().load()
    member = Member(stack, tmp_path / "agent", own_redis.port)
    proxies = [Owners(stack, tmp_path / f"lb{n}", f"lb{n}", own_redis.port) for n in (1, 2)]
    return Cluster(own_redis.client), member, proxies


@pytest.mark.timeout(600)
def test_all_keys_have_one_owner_everywhere(parts, tmp_path):
    cluster, member, proxies = parts
    eventually("the agent's ring", lambda: cluster.ring_or_none() == ["agent"])
    keys = [key_of(n) for n in range(KEYS)]
    lines = tmp_path / "keys"
    lines.write_bytes(b"\n".join(keys))
    hashes = np.array([xxhash.xxh32_intdigest(key) for key in keys], dtype=np.uint32)
    slots = (hashes.astype(np.uint64) * np.uint64(SLOTS)) >> np.uint64(32)
    bounds, before = {"agent": 40.0}, None
    for change in CHANGES:
        for node, bound in change.items():
            if bound is None:
                cluster.report(node, bounds.pop(node), slots=SLOTS, dead_band=0, lease=0)
            else:
                bounds[node] = bound
                # Longer than the test takes on a slow machine.
                cluster.report(node, bound, slots=SLOTS, dead_band=0, lease=3_600_000)
        wait_shares(cluster, proxies, bounds)
        version, _, names, table = cluster.ring()
        for follower in (*proxies, member):
            eventually(f"version {version}", lambda f=follower, v=version: f.has(v))
        with ThreadPoolExecutor() as pool:
            asked = [pool.submit(proxy.owners, version, names) for proxy in proxies]
            by_rust = member.owners(names, lines)
            first, second = (answer.result() for answer in asked)
        assert len(by_rust) == KEYS
        assert first == second
        assert first == by_rust
        # What all of them said is what Redis has.
        owners = np.frombuffer(table, dtype=np.uint8)
        assert np.array_equal(np.frombuffer(first, dtype=np.uint8), owners[slots])

        total = sum(bounds.values())
        for name, bound in bounds.items():
            # An error of a share of at most 1/H.
            assert abs(np.count_nonzero(owners == names.index(name)) - SLOTS * bound / total) <= 1
        if before is not None:
            check_moves(*before, names, owners, slots)
        before = names, owners


def wait_shares(cluster: Cluster, proxies: list[Owners], nodes: dict[str, float]) -> None:
    """Until each dispatcher knows the nodes: a call comes after the answer to the one before."""
    fields = [f"{node} {proxy.dispatcher}" for proxy in proxies for node in nodes]
    eventually("all shares", lambda: all(cluster.server.hmget(cluster.shares, fields)))
    calls = cluster.server.hgetall(cluster.proxies)
    eventually("one call more", lambda: not calls.items() & cluster.server.hgetall(cluster.proxies).items())


def check_moves(old_names, old_owners, names, owners, slots) -> None:
    """No more moved than had to."""
    everybody = sorted(set(old_names) | set(names))
    old = np.array([everybody.index(name) for name in old_names])[old_owners]
    new = np.array([everybody.index(name) for name in names])[owners]
    sizes = [np.bincount(table, minlength=len(everybody)) for table in (old, new)]
    surplus = int(np.maximum(sizes[0] - sizes[1], 0).sum())
    moved = old != new
    assert np.count_nonzero(moved) == surplus > 0
    # Of the keys, whose number in a slot varies.
    assert np.count_nonzero(moved[slots]) <= 1.01 * surplus * KEYS / SLOTS


def kept_and_real(cluster: Cluster, node: str) -> tuple[float | None, float]:
    """What is held of a node's bound by all together: as it is kept, and added up."""
    kept = cluster.server.hget(cluster.observations, node)
    shares = cluster.server.hgetall(cluster.shares)
    real = [text for field, text in shares.items() if field.startswith(node.encode() + b" ")]
    return struct.unpack("<dd", kept)[0] if kept else None, sum(float(text.split()[0]) for text in real)


def test_the_kept_sums_are_those_of_the_shares(cluster):
    """Bounds jump by fifteen orders, proxies come, leave and start again."""
    draw = random.Random(3)
    nodes = ["node1", "node2", "node3"]
    for _ in range(600):
        for node in draw.choices(nodes, k=draw.randrange(2)):
            cluster.report(node, draw.choice([0, draw.uniform(1, 1000), 1e15]))
        asked = [(node, draw.choice([0, draw.uniform(0, 5000)]), "") for node in nodes]
        leaves = draw.random() < 0.03
        instance = f"p{draw.random() < 0.03}"
        cluster.call(
            "observe", f"proxy{draw.randrange(5)}", instance, 0 if leaves else 60_000, *sum(asked, ())
        )
        for node in nodes:
            kept, real = kept_and_real(cluster, node)
            # None: to be made anew by the next call.
            assert kept is None or kept == pytest.approx(real, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("pair", [(math.nan, math.nan), (-1, -1), (0, 0), (1e15, 1e15), (math.inf, 1), None])
def test_a_wrong_sum_does_not_last(cluster, pair):
    nodes, proxies = ["node1", "node2", "node3"], ["one", "two", "three"]
    for node in nodes:
        cluster.report(node, 1000, mean_cost=0)
    observe = lambda: [cluster.observe(proxy, [(node, 50, "") for node in nodes]) for proxy in proxies]  # noqa: E731
    for _ in range(3):
        observe()
    for node in nodes:
        cluster.server.hset(cluster.observations, node, struct.pack("<dd", *pair) if pair else "x")

    def mended() -> bool:
        for _, _, shares in observe():
            assert all(0 <= share <= 1000 for share in shares.values())
        sums = [kept_and_real(cluster, node) for node in nodes]
        return all(kept == pytest.approx(real) == pytest.approx(1000) for kept, real in sums)

    eventually("sums that are right, and the whole bound granted", mended)
