"""The ring's functions, called in any order by anybody: what docs/redis.md promises holds after each call."""

import re

import pytest
import redis
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lua.tests import malformed
from lua.tests.clock import START_MS, Clock
from lua.tests.leases import Leases
from lua.tests.malformed import MAX_LEASE_MS
from tests.harness.functions import NOBODY, Cluster

NODES = st.sampled_from(["node1", "node2"])
PROXIES = st.sampled_from(["one", "two", "three"])
# What is usual comes first, and is drawn the most: or else little is ever held at once.
INSTANCES = st.sampled_from("aaaab")
LEASES_MS = st.sampled_from([MAX_LEASE_MS, MAX_LEASE_MS, 3000, 301, 100])
AMOUNTS = st.one_of(
    st.sampled_from([1000.0, 20.8, 500.0, 0.8, 0.0]),
    st.floats(0, 2000),
    st.sampled_from([5e-324, 1e9, 1e15]),
)
# Of a bound: sums drift by less.
TOLERANCE = 1e-6
RING_FIELDS = {
    *(b"version", b"slots", b"owners", b"check", b"names", b"sizes"),
    *(b"settle_until", b"seen", b"round", b"since"),
}
# Names of a ring, of which one is none.
BAD_LISTS = malformed.words(malformed.NAME_CHARACTERS + "\n", 128).filter(lambda text: text not in ("", b""))
REFUSED = re.compile(r"^(ERR|CONFLICT)? ?plimsoll: ")


class Ring(RuleBasedStateMachine):
    def __init__(self, server: redis.Redis, clock: Clock) -> None:
        super().__init__()
        server.flushdb()
        self.server, self.clock = server, clock
        self.cluster = Cluster(server)
        self.now_ms = START_MS
        clock.stop_at(self.now_ms)
        self.leases = Leases()
        self.bounds: dict[str, float] = {}
        # What each proxy may have in flight at each node.
        self.held: dict[tuple[str, str], float] = {}
        self.version = 0
        self.slots = 1
        # Newest last, as followers keep them.
        self.tables: list[tuple[int, int, bytes, bytes]] = []
        self.changes = server.pubsub(ignore_subscribe_messages=True)
        self.changes.subscribe(self.cluster.ring_key)
        self.changes.get_message(timeout=1)

    def teardown(self) -> None:
        self.changes.close()

    @initialize(slots=st.sampled_from([300, 5, 1]), bound=AMOUNTS)
    def first_node(self, slots: int, bound: float) -> None:
        self.slots = slots
        self.report("node1", "a", bound, 1.0, MAX_LEASE_MS, 0, 0, None)

    @rule(
        node=NODES,
        instance=INSTANCES,
        bound=AMOUNTS,
        mean_cost=AMOUNTS,
        lease=LEASES_MS | st.sampled_from([MAX_LEASE_MS, 0]),
        dead_band=st.sampled_from([0, 0.05, 1]),
        settle=st.sampled_from([0, 0, 5000]),
        capacity=st.none() | st.just(-1) | AMOUNTS,
    )
    def report(self, node, instance, bound, mean_cost, lease, dead_band, settle, capacity) -> None:
        others = self.records()
        who = ("node", node)
        self.leases.called(who, instance, self.now_ms)
        self.forget_nodes(self.leases.drop("node"))
        known = self.leases.of.get(who)
        told = (repr(bound), 64, repr(mean_cost), 5, 0.4)
        given = [node, instance, *told, lease, self.slots, dead_band, settle, ""]
        if known and known.instance != instance:
            with pytest.raises(
                redis.ResponseError, match=rf"^CONFLICT plimsoll: node {node} is reported by another"
            ):
                self.cluster.call("report", *given)
            self.check(others)
            return
        version, *seen = self.cluster.call("report", *given, *([] if capacity is None else [repr(capacity)]))
        if lease == 0:
            if known:
                self.leases.end(who)
            self.forget_nodes({node})
        else:
            self.leases.renew(who, instance, lease)
            self.bounds[node] = bound
        assert {name.decode() for name in seen[::2]} <= self.leases.names("proxy")
        self.check(others, who)
        self.check_ring(version)

    @rule(
        proxy=PROXIES, instance=INSTANCES, lease=LEASES_MS | st.sampled_from([MAX_LEASE_MS, 0]),
        wishes=st.lists(st.tuples(NODES, AMOUNTS, AMOUNTS, st.binary(max_size=30)), min_size=1, max_size=3,
                        unique_by=lambda wish: wish[0]),
    )  # fmt: skip
    def observe(self, proxy, instance, lease, wishes) -> None:
        others = self.records()
        who = ("proxy", proxy)
        self.leases.called(who, instance, self.now_ms)
        gone = self.leases.drop("proxy")
        known = self.leases.of.get(who)
        if known and (known.instance != instance or lease == 0):
            self.leases.end(who)
            gone.add(proxy)
        self.forget_proxies(gone)
        flat = [word for node, demand, held, seen in wishes for word in (node, f"{demand!r}/{held!r}", seen)]
        version, count, *rest = self.cluster.call("observe", proxy, instance, lease, *flat)
        assert version == self.version
        if lease:
            self.leases.renew(who, instance, lease)
            self.forget_nodes(self.leases.drop("node"))
        assert count == len(self.leases.names("proxy"))
        names = [name.decode() for name in rest[::6]]
        assert names == [wish[0] for wish in wishes if wish[0] in self.bounds and lease]
        claimed = {node: held for node, _, held, _ in wishes}
        for node, granted in zip(names, map(float, rest[1::6]), strict=True):
            bound = self.bounds[node]
            elsewhere = sum(held for at, held in self.held.items() if at[0] == node and at[1] != proxy)
            assert 0 <= granted <= max(0, bound - elsewhere) + TOLERANCE * bound
            before = self.held.get((node, proxy), 0)
            self.held[node, proxy] = max(granted, min(claimed[node], before))
        self.check(others, who)

    @rule(by_ms=st.sampled_from([1, 33, 34, 100, 1000, 2900, 60_000, MAX_LEASE_MS]))
    def time_passes(self, by_ms: int) -> None:
        self.set_clock(by_ms)

    @rule(by_ms=st.integers(-7_200_000, -1))
    def clock_is_set_back(self, by_ms: int) -> None:
        self.set_clock(by_ms)

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), newer=st.sampled_from([0, 0, 1, 5]))
    def follower_restores(self, data, newer: int) -> None:
        version, slots, names, owners = data.draw(st.sampled_from(self.tables))
        before = self.ring_fields()
        found = self.cluster.call("restore", version + newer, slots, names, owners, 0)
        assert found == max(self.version, version + newer)
        if version + newer > self.version:
            self.version = found
            self.tables = [(found, slots, names, owners)]
            assert self.table() == self.tables[-1]
            self.next_change()
        else:
            assert self.ring_fields() == before

    @precondition(lambda self: self.tables)
    @rule()
    def ring_is_lost(self) -> None:
        self.server.hdel(self.cluster.ring_key, "version", "slots", "names", "sizes", "owners", "check")
        self.version = 0

    @rule(data=st.data())
    def malformed_call(self, data) -> None:
        kinds = {
            "report": ["name", "name", *["number"] * 5, "lease", "whole", "number", "whole"],
            "observe": ["name", "name", "lease", "name", "demand"],
            "restore": ["whole", "whole", "names"],
        }
        good = {
            "report": ["node1", "a", 1, 1, 1, 1, 1, 100, self.slots, 0, 0, "", 1],
            "observe": ["one", "a", 100, "node1", 1, b""],
            "restore": [10**14, 1, "node1", b"\0", 0],
        }
        bad = {
            "name": malformed.NAMES, "number": malformed.NUMBERS, "whole": malformed.WHOLES,
            "lease": malformed.WHOLES | st.sampled_from([1, 99, MAX_LEASE_MS + 1]),
            "names": BAD_LISTS.map(lambda it: b"node1\n" + as_bytes(it)),
            "demand": malformed.NUMBERS | malformed.NUMBERS.map(lambda it: b"1/" + as_bytes(it)),
        }  # fmt: skip
        function = data.draw(st.sampled_from(sorted(kinds)))
        arguments, keys = list(good[function]), list(self.cluster.keys)
        how = data.draw(st.sampled_from(["one is bad", "one is bad", "some are missing", "a key is missing"]))
        if how == "one is bad":
            position = data.draw(st.integers(0, len(kinds[function]) - 1))
            arguments[position] = data.draw(bad[kinds[function][position]])
        elif how == "some are missing":
            del arguments[data.draw(st.integers(0, 2)) :]
        else:
            del keys[data.draw(st.integers(0, 4))]
        before = self.everything()
        with pytest.raises(redis.ResponseError) as refused:
            self.server.fcall(f"plimsoll_{function}", len(keys), *keys, *arguments)
        assert REFUSED.match(str(refused.value)), (function, arguments)
        assert self.everything() == before

    @precondition(lambda self: self.leases.of)
    @rule()
    def everybody_goes(self) -> None:
        """All but one who calls on, and then that one."""
        rounds = 0
        while self.leases.names("node") | self.leases.names("proxy") != {"last"}:
            rounds += 1
            # The first may be under way.
            assert rounds <= 5, "a round counts for a third of a lease"
            self.set_clock(MAX_LEASE_MS)
            self.report("last", "a", 1, 1, 100, 0, 0, None)
            self.observe("last", "a", 100, [("last", 1, 0, b"")])
        self.observe("last", "a", 0, [])
        self.report("last", "a", 1, 1, 0, 0, 0, None)
        assert not self.held
        left = self.server.keys()
        assert left == [self.cluster.ring_key.encode()]
        assert self.server.memory_usage(left[0]) < self.slots + 1000

    def set_clock(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.clock.stop_at(self.now_ms)

    def forget_nodes(self, names: set[str]) -> None:
        for name in names:
            self.bounds.pop(name, None)
        self.held = {at: held for at, held in self.held.items() if at[0] not in names}

    def forget_proxies(self, names: set[str]) -> None:
        self.held = {at: held for at, held in self.held.items() if at[1] not in names}

    def records(self) -> dict[bytes, list[bytes]]:
        """What nodes and proxies told, and the lengths of their leases: not when these end, nor the round."""
        nodes, _, proxies, *_ = self.everything()
        told = {}
        for name, record in (nodes | proxies).items():
            *before, _, lease, _, instance = record.split(b" ")[: 9 if name in nodes else 4]
            told[name] = [*before, lease, instance]
        return told

    def everything(self) -> list[dict[bytes, bytes]]:
        with self.server.pipeline(transaction=False) as pipeline:
            for key in self.cluster.keys:
                pipeline.hgetall(key)
            return pipeline.execute()

    def ring_fields(self) -> dict[bytes, bytes]:
        return self.server.hgetall(self.cluster.ring_key)

    def table(self) -> tuple[int, int, bytes, bytes] | None:
        return tuple(self.cluster.call("ring")) or None

    def check(self, before: dict[bytes, list[bytes]], caller: tuple[str, str] | None = None) -> None:
        nodes, ring, proxies, shares, observations = found = self.everything()
        assert {name.decode() for name in nodes} == self.leases.names("node")
        assert {name.decode() for name in proxies} == self.leases.names("proxy")
        # Nobody but the caller is told otherwise than before.
        for name, record in self.records().items():
            if caller is None or name != caller[1].encode():
                assert record == before[name]
        assert set(ring) <= RING_FIELDS
        pairs = {b"%s %s" % (node, proxy) for node in nodes for proxy in proxies}
        assert set(shares) <= pairs
        assert set(observations) <= pairs | set(nodes)
        assert found[4].keys() - set(nodes) <= set(shares)
        for (node, proxy), held in self.held.items():
            assert float(shares[f"{node} {proxy}".encode()].split()[0]) == pytest.approx(held, rel=1e-9)

    def check_ring(self, version: int) -> None:
        """After a report that was answered with this version."""
        table = self.table()
        assert version == (table[0] if table else 0)
        assert version >= self.version
        if version == self.version:
            assert table is None or not self.tables or self.version == 0 or table == self.tables[-1]
            return
        assert version == self.version + 1
        names, sizes = self.shape(table)
        assert {name for name in names if name} == self.leases.names("node")
        wanted = [name for name in names if name and self.bounds[name] > 0]
        if 0 < len(wanted) <= self.slots:
            assert {name for name, size in zip(names, sizes, strict=True) if size} == set(wanted)
        else:
            assert not any(sizes)
        self.follow(table)
        self.version = version
        self.tables = [*self.tables[-3:], table]

    def shape(self, table) -> tuple[list[str], list[int]]:
        _, slots, text, owners = table
        assert len(owners) == slots == self.slots
        names = text.decode().split("\n") if text else []
        sizes = [owners.count(i) for i in range(len(names))]
        assert sum(sizes) + owners.count(NOBODY) == slots
        assert sum(sizes) in (0, slots)
        given = [name for name in names if name]
        assert len(given) == len(set(given))
        return names, sizes

    def next_change(self) -> tuple[int, int, str, str]:
        message = self.changes.get_message(timeout=5)
        since, to, names, moves = message["data"].decode().split(" ")
        return int(since), int(to), names, moves

    def follow(self, table: tuple[int, int, bytes, bytes]) -> None:
        """The change leads from the table before to this one."""
        since, to, names, moves = self.next_change()
        assert (since, to) == (self.version, table[0])
        told = dict(pair.split("=") for pair in names.split(",")) if names != "-" else {}
        listed = table[2].decode().split("\n")
        assert told == {str(i): name for i, name in enumerate(listed) if name}
        if moves == "full":
            return
        owners = bytearray(self.tables[-1][3] if self.version else bytes([NOBODY]) * self.slots)
        for first, count, owner in (map(int, run.split(":")) for run in moves.split(",") if run != "-"):
            owners[first : first + count] = bytes([owner]) * count
        assert bytes(owners) == table[3]


def as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def test_the_rings_promises_hold_whoever_calls(set_redis):
    run_state_machine_as_test(lambda: Ring(*set_redis))
