"""Ten thousand names come to Redis and go, by leave or by lapse: what they took is given back."""

import pytest
import redis

from lua.tests.clock import START_MS
from tests.harness.functions import Cluster, Placement

HOUR_MS = 3_600_000
BATCHES = 100
# Of each batch; half of them lapse.
NODES, PROXIES, DISPATCHERS, SETS = 10, 90, 50, 50
# Of keys that stay: their numbers have more digits, and their tables some room.
MORE_BYTES = 256
# Of all data as Redis counts them, with its clients' buffers.
NOISE_BYTES = 100_000


@pytest.fixture
def stopped_redis(set_redis):
    """A Redis whose clock stands still, and what moves it on."""
    server, clock = set_redis
    now_ms = START_MS
    clock.stop_at(now_ms)

    def move_on(ms: int) -> None:
        nonlocal now_ms
        now_ms += ms
        clock.stop_at(now_ms)

    return server, move_on


def taken(server: redis.Redis) -> tuple[dict[bytes, int], int]:
    """Bytes of each key, and of all data as Redis counts them."""
    keys = sorted(server.keys())
    return {key: server.memory_usage(key, samples=0) for key in keys}, server.memory_stats()["dataset.bytes"]


def assert_given_back(before, after) -> None:
    keys_before, data_before = before
    keys_after, data_after = after
    assert keys_after.keys() == keys_before.keys()
    assert {
        key: more for key in keys_after if (more := keys_after[key] - keys_before[key]) > MORE_BYTES
    } == {}
    assert data_after - data_before < NOISE_BYTES


def test_ten_thousand_nodes_and_proxies_that_come_and_go_leave_nothing(stopped_redis):
    server, move_on = stopped_redis
    cluster = Cluster(server)

    def stay() -> None:
        cluster.report("stays", 1000, slots=300)
        cluster.observe("stays", [("stays", 1, "x")])

    def come_and_go(batch: int) -> None:
        nodes = [f"node{batch}/{n}" for n in range(NODES)]
        for n, node in enumerate(nodes):
            cluster.report(node, 1000, slots=300, lease=100 if n % 2 else HOUR_MS)
        proxies = [f"proxy{batch}/{n}" for n in range(PROXIES)]
        wishes = [("stays", 1, "x" * 100), *((node, 1, "x" * 100) for node in nodes[:3])]
        for n, proxy in enumerate(proxies):
            cluster.observe(proxy, wishes, lease=100 if n % 2 else HOUR_MS)
        pairs = len(wishes) * (PROXIES + 1)
        assert server.hlen(cluster.nodes) <= NODES + 1
        assert server.hlen(cluster.proxies) <= PROXIES + 1
        assert server.hlen(cluster.shares) <= pairs
        assert server.hlen(cluster.observations) <= pairs + NODES + 1
        for node in nodes[::2]:
            cluster.report(node, 1000, slots=300, lease=0)
        for proxy in proxies[::2]:
            cluster.observe(proxy, [], lease=0)
        # A round counts for a third of a lease.
        for _ in range(5):
            move_on(1000)
            stay()
        assert [server.hlen(key) for key in (cluster.nodes, cluster.proxies, cluster.shares)] == [1, 1, 1]
        assert server.hlen(cluster.observations) == 2

    come_and_go(0)
    before = taken(server)
    for batch in range(1, BATCHES + 1):
        come_and_go(batch)
    assert_given_back(before, taken(server))


def test_ten_thousand_dispatchers_and_object_sets_that_come_and_go_leave_nothing(stopped_redis):
    server, _ = stopped_redis
    placement = Placement(server)
    version = 100_000
    placement.claim(when_lost="hold")
    placement.open(version=version)

    def publish(entries: str) -> None:
        nonlocal version
        version = placement.publish(f"{version} {version + 1} {entries}")

    def come_and_go(batch: int) -> None:
        sets = [f"={batch:03}/{n:02}" for n in range(SETS)]
        publish(" ".join(f"{name} node1" for name in sets))
        ids = [f"lb{batch:03}/{n:02}#a" for n in range(DISPATCHERS)]
        for n, id_ in enumerate(ids):
            placement.join(id_)
            placement.report(id_, version, busy=sets[n], loads=f"{sets[n]} 1 *0:{batch}/{n} 2")
        assert server.hlen(placement.loads) == 2 * SETS
        for id_ in ids[::2]:
            placement.call("leave", id_, 1)
        publish(" ".join(f"{name} -" for name in sets))
        # Those that hold and are silent are taken for gone, and then their requests are over.
        for passed in (0, 11_001, 60_001):
            placement.read(passed=passed, loads=1)
        assert server.hlen(placement.table) == 64
        assert server.llen(placement.log) <= 32
        assert not server.exists(placement.dispatchers, placement.busy, placement.loads, placement.gone)

    # Until the log is full.
    for batch in range(16):
        come_and_go(batch)
    before = taken(server)
    for batch in range(16, 16 + BATCHES):
        come_and_go(batch)
    assert_given_back(before, taken(server))
