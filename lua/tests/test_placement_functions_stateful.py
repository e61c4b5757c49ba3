"""Placement's functions, called in any order by anybody: the table is whole, there is one keeper, nobody acts
for another."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

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
from lua.tests.malformed import MAX_LEASE_MS
from tests.harness.functions import Placement, told

TERM_VERSIONS = 16_384
MAX_VERSION = 2**53 - 1
MAX_AHEAD = 2**40
LOGGED = 32
# Of a table without names, its log and what is kept of the keeper.
MAX_BYTES = 24_000
# What is usual comes first, and is drawn the most: or else little ever comes about.
AGENTS = st.sampled_from(["k1", "k1", "k1", "k2"])
STALE = st.sampled_from([False, False, False, False, True])
LEASES_MS = st.sampled_from([10_000, MAX_LEASE_MS, 100, 1])
IDS = st.sampled_from(["lb1/1#a", "lb2/1#a", "lb1/1#b"])
SETS = st.sampled_from(["*0", "*63", "=A", "=" + "x" * 128])
STATES = st.sampled_from(["node1", "node2", ">node1"])
ENTRIES = st.dictionaries(SETS, STATES | st.just("-"), min_size=1, max_size=3).map(
    lambda entries: {
        name: "node1" if state == "-" and name[0] == "*" else state for name, state in entries.items()
    }
)
PASSED_MS = st.sampled_from([0, 1, 100, 1000, 11_000, MAX_LEASE_MS])
RESTS = {f"*{rest}": f"node{rest % 2 + 1}" for rest in range(64)}
HEAD = {
    *(
        "generation",
        "version",
        "opens_at",
        "lasts",
        "sure",
        "epoch",
        "keeper",
        "keeper_end",
        "server",
        "lease",
    ),
    *("request_limit", "when_lost", "margin", "members", "ahead", "wishes", "plan", "clock", "seen"),
}
REFUSED = re.compile(r"^(ERR |UNKNOWN |FENCED |BEHIND )?plimsoll: ")


@dataclass
class Dispatcher:
    # What it told last.
    version: int
    lease_ms: int
    holds: bool
    # By the keeper's clock; None: since it read last.
    heard_ms: int | None = None
    busy: str = ""
    # What it has: a table, where it was told one, at this version.
    table: dict[str, str] | None = None
    has: int = 0


@dataclass
class Table:
    generation: str
    version: int
    entries: dict[str, str]
    opens_at_ms: int
    # The last version of each term before.
    lasts: dict[int, int] = field(default_factory=dict)
    # Written by the keeper of this epoch.
    epoch: int = 0
    ahead: int = 0

    def has_been(self, version: int) -> bool:
        term = version // TERM_VERSIONS
        if not 1 <= version <= self.version:
            return False
        return term == self.version // TERM_VERSIONS or version <= self.lasts.get(term, -1)


class PlacementCalls(RuleBasedStateMachine):
    def __init__(self, server: redis.Redis, clock: Clock) -> None:
        super().__init__()
        server.flushdb()
        self.server, self.clock = server, clock
        self.calls = Placement(server)
        self.now_ms = self.seen_ms = START_MS
        clock.stop_at(self.now_ms)
        self.keeper, self.epoch, self.left_ms = "", 0, 0
        self.told_lease_ms, self.limit_ms, self.margin_ms, self.when_lost = 0, 0, 2 * MAX_LEASE_MS, "serve"
        self.same_server = ""
        self.clock_ms = 0
        self.table: Table | None = None
        self.generations = 0
        self.dispatchers: dict[str, Dispatcher] = {}
        self.gone: dict[str, int | None] = {}
        self.loads: dict[str, float] = {}
        self.wishes = 0

    @initialize(when_lost=st.sampled_from(["serve", "hold"]))
    def first_table(self, when_lost) -> None:
        self.claim("k1", MAX_LEASE_MS, 10_000, 60_000, when_lost, 1000, "s1")
        self.settle("k1", False, "s1")
        self.open("k1", False, False, 1, 0, [], {"=A": "node1"})
        self.join("lb1/1#a")

    # The keeper.

    @rule(
        agent=AGENTS, lease=LEASES_MS, told_lease=LEASES_MS, limit=PASSED_MS,
        when_lost=st.sampled_from(["serve", "hold"]), margin=st.sampled_from([1000, 6000]),
        server=st.sampled_from(["s1", "s2"]),
    )  # fmt: skip
    def claim(self, agent, lease, told_lease, limit, when_lost, margin, server) -> None:
        self.pass_time()
        answer = self.calls.call("claim", agent, lease, told_lease, limit, when_lost, margin, server)
        if self.keeper not in ("", agent) and self.left_ms > 0:
            assert answer == ["other", self.keeper, self.left_ms]
            return
        assert answer == ["keeper", self.epoch + 1, int(server == self.same_server)]
        for known in self.dispatchers.values():
            known.heard_ms = None
        if self.table and self.when_lost == "hold" and server != self.same_server:
            lease_ms = max(told_lease, self.told_lease_ms)
            self.dispatchers[f"former-server#{server}"] = Dispatcher(0, lease_ms, True)
        self.keeper, self.epoch, self.left_ms = agent, self.epoch + 1, lease
        self.told_lease_ms, self.limit_ms, self.margin_ms, self.when_lost = (
            told_lease,
            limit,
            margin,
            when_lost,
        )
        self.loads = {}

    @rule(agent=AGENTS, stale=STALE)
    def resign(self, agent, stale) -> None:
        self.pass_time()
        epoch = max(0, self.epoch - stale)
        assert self.calls.call("resign", agent, epoch) == int(self.is_keeper(agent, epoch))
        if self.is_keeper(agent, epoch):
            self.left_ms = 0

    @rule(agent=AGENTS, stale=STALE, lease=LEASES_MS, limit=PASSED_MS, passed=PASSED_MS, loads=st.booleans())
    def read(self, agent, stale, lease, limit, passed, loads) -> None:
        with self.fenced(agent, stale) as epoch:
            self.calls.epoch = epoch
            seen = self.calls.read(passed, lease, limit, int(loads), "plan", agent)
            self.clock_ms += passed
            self.left_ms = lease
            for id_, known in list(self.dispatchers.items()):
                silent_ms = 0 if known.heard_ms is None else self.clock_ms - known.heard_ms
                if known.holds and silent_ms > known.lease_ms + self.margin_ms:
                    self.remove(id_)
                elif known.heard_ms is None:
                    known.heard_ms = self.clock_ms
            self.gone = {id_: self.clock_ms if went is None else went for id_, went in self.gone.items()}
            self.gone = {id_: went for id_, went in self.gone.items() if self.clock_ms - went <= limit}
            assert (seen["generation"], seen["version"]) == self.head()
            assert seen["open_in"] == (max(0, self.table.opens_at_ms - self.clock_ms) if self.table else 0)
            assert seen["ahead"] == (self.table.ahead if self.table else 0)
            assert len(seen["wishes"].split()) == 2 * self.wishes
            assert seen["gone"] == {id_: self.clock_ms - went for id_, went in self.gone.items()}
            assert {
                id_: (it["age"], it["version"], it["busy"]) for id_, it in seen["dispatchers"].items()
            } == {
                id_: (self.clock_ms - it.heard_ms, it.version, it.busy)
                for id_, it in self.dispatchers.items()
            }
            self.wishes = 0
            if loads:
                assert seen["loads"] == pytest.approx(self.loads, rel=1e-6)
                self.loads = {}

    @rule(
        agent=AGENTS, stale=STALE, again=st.booleans(), more=st.sampled_from([1, 3, TERM_VERSIONS]),
        wait=st.sampled_from([0, 0, 1000]), ids=st.lists(IDS, max_size=2), named=ENTRIES,
    )  # fmt: skip
    def open(self, agent, stale, again, more, wait, ids, named) -> None:
        generation = self.table.generation if again and self.table else f"g{self.generations + 1}"
        version = (self.table.version if self.table else 0) + more
        entries = RESTS | {name: state for name, state in named.items() if state != "-"}
        text = " ".join(f"{name} {state}" for name, state in entries.items())
        with self.fenced(agent, stale) as epoch:
            arguments = (epoch, generation, version, wait, " ".join(ids), text)
            if self.is_keeper(agent, epoch) and self.table and generation == self.table.generation:
                with pytest.raises(redis.ResponseError, match="has been: a table that does not go on"):
                    self.calls.call("open", agent, *arguments)
                return
            assert self.calls.call("open", agent, *arguments) == 1
            self.generations += 1
            self.table = Table(generation, version, entries, self.clock_ms + wait, epoch=self.epoch)
            self.loads, self.wishes = {}, 0
            for id_ in ids:
                if id_ not in self.gone:
                    holds = self.when_lost == "hold"
                    self.dispatchers.setdefault(id_, Dispatcher(0, self.told_lease_ms, holds))
            for known in self.dispatchers.values():
                known.version, known.busy, known.table, known.has = 0, "", None, 0

    @precondition(lambda self: self.table)
    @rule(
        agent=AGENTS, stale=STALE, behind=st.sampled_from([0, 0, 0, 1, -1]),
        more=st.sampled_from([1, 1, 1, 2, TERM_VERSIONS]), entries=ENTRIES,
    )  # fmt: skip
    def publish(self, agent, stale, behind, more, entries) -> None:
        since = max(1, self.table.version + behind)
        words = " ".join(f"{name} {state}" for name, state in entries.items())
        delta = f"{since} {since + more} {words}"
        with self.fenced(agent, stale) as epoch:
            arguments = (epoch, self.table.generation, delta)
            is_sure = self.table.epoch == self.epoch
            is_behind = since != self.table.version or (self.table.ahead > 0 and not is_sure)
            if self.is_keeper(agent, epoch) and is_behind:
                with pytest.raises(redis.ResponseError, match=r"^BEHIND"):
                    self.calls.call("publish", agent, *arguments)
                return
            assert self.calls.call("publish", agent, *arguments) == since + more
            if since // TERM_VERSIONS != (since + more) // TERM_VERSIONS:
                self.table.lasts[since // TERM_VERSIONS] = since
            self.table.version, self.table.epoch = since + more, self.epoch
            apply(self.table.entries, entries)

    @rule(agent=AGENTS, stale=STALE)
    def heed(self, agent, stale) -> None:
        with self.fenced(agent, stale) as epoch:
            assert self.calls.call("heed", agent, epoch) == 1
            if self.table:
                self.table.ahead = 0

    @rule(agent=AGENTS, stale=STALE, server=st.sampled_from(["s1", "s2"]))
    def settle(self, agent, stale, server) -> None:
        with self.fenced(agent, stale) as epoch:
            assert self.calls.call("settle", agent, epoch, server) == 1
            self.same_server = server

    # Dispatchers, agents and people.

    @rule(id_=IDS)
    def join(self, id_) -> None:
        self.pass_time()
        if not self.table or (self.table.ahead and self.table.epoch != self.epoch):
            assert self.calls.join(id_)[0] == "wait"
        elif self.table.opens_at_ms > self.clock_ms:
            assert self.calls.join(id_) == ["wait", self.table.opens_at_ms - self.clock_ms]
        elif id_ in self.dispatchers or id_ in self.gone:
            with pytest.raises(redis.ResponseError, match="an id is never used twice"):
                self.calls.join(id_)
        else:
            answer = self.calls.join(id_)
            assert answer[:6] == ["open", *self.head(), self.told_lease_ms, self.limit_ms, self.when_lost]
            assert pairs(answer[6:]) == self.table.entries
            for other in [other for other in self.dispatchers if name_of(other) == name_of(id_)]:
                self.remove(other)
            self.dispatchers[id_] = Dispatcher(
                self.table.version,
                self.told_lease_ms,
                self.when_lost == "hold",
                table=pairs(answer[6:]),
                has=self.table.version,
            )

    @rule(
        id_=IDS, told_version=st.sampled_from(["own", "own", "own", 0, 1, 2, "next", 2**45]),
        busy=st.lists(SETS, max_size=2, unique=True),
        loads=st.dictionaries(SETS | st.just("*7:hot"), st.sampled_from([0.0, 0.25, 3.0, 1e12]), max_size=3),
        other_generation=st.sampled_from([False, False, False, True]),
    )  # fmt: skip
    def report(self, id_, told_version, busy, loads, other_generation) -> None:
        self.pass_time()
        known = self.dispatchers.get(id_)
        version = {"own": known.has if known else 1, "next": self.head()[1] + 1}.get(
            told_version, told_version
        )
        generation = "g0" if other_generation or not self.table else self.table.generation
        costs = " ".join(f"{name} {cost!r}" for name, cost in loads.items())
        arguments = (id_, version, " ".join(busy) or "-", costs or "-", generation)
        if not known or generation == "g0" or not self.table.has_been(version):
            with pytest.raises(redis.ResponseError, match=r"^UNKNOWN plimsoll: .*join anew"):
                self.calls.report(*arguments)
            if known and generation != "g0":
                self.note_ahead(version)
                self.remove(id_)
            return
        answer = self.calls.report(*arguments)
        known.heard_ms, known.version, known.busy = None, version, " ".join(busy)
        for name, cost in loads.items():
            self.loads[name] = self.loads.get(name, 0) + cost
        if answer[0] == "table":
            assert answer[1:3] == [*self.head()]
            known.table, known.has = pairs(answer[3:]), self.table.version
        else:
            assert answer[:2] == ["ok", self.table.version]
            if told_version != "own":
                return
            for delta in answer[2:]:
                known.has, entries = follow(known.has, delta)
                apply(known.table, entries)
        assert (known.has, known.table) == (self.table.version, self.table.entries)

    @rule(id_=IDS, idle=st.booleans())
    def leave(self, id_, idle) -> None:
        self.pass_time()
        assert self.calls.call("leave", id_, int(idle)) == int(id_ in self.dispatchers)
        self.remove(id_, idle)

    @rule(id_=IDS)
    def forget(self, id_) -> None:
        self.pass_time()
        assert self.calls.call("forget", id_) == int(id_ in self.dispatchers)
        self.remove(id_)

    @rule(version=st.sampled_from([0, 1, "current", "next", 2**45]))
    def follow(self, version) -> None:
        self.pass_time()
        version = {"current": self.head()[1], "next": self.head()[1] + 1}.get(version, version)
        answer = self.calls.call("follow", self.head()[0] or "-", version, 0)
        if not self.table:
            assert answer == ["none"]
        elif not self.table.has_been(version) and self.table.epoch != self.epoch:
            assert answer == ["ok", 0, "", self.table.version]
            self.note_ahead(version)
        elif answer[0] == "table":
            assert answer[3:5] == [*self.head()]
            assert pairs(answer[5:]) == self.table.entries
        else:
            assert answer[3] == self.table.version
            assert self.table.has_been(version)

    @rule(set_=SETS, node=st.sampled_from(["node1", "node2"]))
    def wish(self, set_, node) -> None:
        self.pass_time()
        if self.wishes == 64:
            with pytest.raises(redis.ResponseError, match="64 moves wait"):
                self.calls.call("wish", set_, node)
            return
        self.wishes += 1
        assert self.calls.call("wish", set_, node) == self.wishes

    @rule()
    def status(self) -> None:
        before = self.everything()
        generation, version, _, keeper, epoch, *_ = self.calls.status()
        assert (generation, version, keeper, epoch) == (*self.head(), self.keeper, self.epoch)
        assert self.everything() == before

    @rule(by_ms=st.sampled_from([1, 33, 100, 3400, 60_000, MAX_LEASE_MS, -1, -10_000, -2 * MAX_LEASE_MS]))
    def clock_is_set(self, by_ms) -> None:
        self.now_ms += by_ms
        self.clock.stop_at(self.now_ms)

    @rule(data=st.data())
    def malformed_call(self, data) -> None:
        function = data.draw(st.sampled_from(sorted(malformed.PLACEMENT)))
        good, bad = malformed.PLACEMENT[function]
        arguments, keys = list(good), list(self.calls.keys)
        how = data.draw(st.sampled_from(["one is bad", "some are missing", "a key is missing"]))
        if how == "one is bad":
            position = data.draw(st.integers(0, len(bad) - 1))
            arguments[position] = data.draw(bad[position])
        elif how == "some are missing":
            del arguments[data.draw(st.integers(0, len(arguments) - 1)) :]
        else:
            del keys[data.draw(st.integers(0, len(keys) - 1))]
        before = self.everything()
        with pytest.raises(redis.ResponseError) as refused:
            self.server.fcall(f"plimsoll_placement_{function}", len(keys), *keys, *arguments)
        assert REFUSED.match(str(refused.value)), (function, arguments)
        assert self.everything() == before

    @precondition(lambda self: self.table)
    @rule()
    def everybody_goes(self) -> None:
        """Names lose their entries, and dispatchers are forgotten, until all doubt is over."""
        agent = self.keeper
        self.claim(agent, MAX_LEASE_MS, 1, 0, "serve", 1000, self.same_server or "s1")
        self.heed(agent, False)
        for id_ in list(self.dispatchers):
            self.calls.call("forget", id_)
            self.pass_time()
            self.remove(id_)
        names = {name: "-" for name in self.table.entries if name[0] == "="}
        self.publish(agent, False, 0, 1, names | {"*0": "node1"})
        for _ in range(2):
            self.read(agent, False, MAX_LEASE_MS, 0, 1, True)
        assert (self.dispatchers, self.gone, self.loads) == ({}, {}, {})
        assert set(self.server.keys()) <= {key.encode() for key in self.calls.keys[:3]}
        assert sum(map(self.server.memory_usage, self.server.keys())) < MAX_BYTES

    # What the model has.

    def head(self) -> tuple[str, int]:
        return (self.table.generation, self.table.version) if self.table else ("", 0)

    def pass_time(self) -> None:
        """For a call: of a silence no more than a third of a dispatcher's lease counts."""
        passed_ms, self.seen_ms = self.now_ms - self.seen_ms, self.now_ms
        self.left_ms = max(0, self.left_ms - min(max(0, passed_ms), self.told_lease_ms // 3))

    def remove(self, id_: str, idle: bool = False) -> None:
        if self.dispatchers.pop(id_, None) and not idle:
            self.gone[id_] = None

    def note_ahead(self, version: int) -> None:
        if self.table.ahead < version <= self.table.version + MAX_AHEAD:
            self.table.ahead = version

    def is_keeper(self, agent: str, epoch: int) -> bool:
        return (agent, epoch) == (self.keeper, self.epoch)

    @contextlib.contextmanager
    def fenced(self, agent: str, stale: bool) -> Iterator[int]:
        """The epoch to call with; where it is not the keeper's newest, what is called is refused."""
        self.pass_time()
        epoch = max(0, self.epoch - stale)
        if self.is_keeper(agent, epoch):
            yield epoch
            return
        with pytest.raises(redis.ResponseError, match=r"^FENCED plimsoll: "):
            yield epoch

    def everything(self) -> list:
        with self.server.pipeline(transaction=False) as pipeline:
            for i, key in enumerate(self.calls.keys):
                pipeline.lrange(key, 0, -1) if i == 2 else pipeline.hgetall(key)
            return pipeline.execute()

    def check_invariants(self, *args, **kwargs) -> None:
        super().check_invariants(*args, **kwargs)
        head, table, log, dispatchers, busy, loads, gone = map(texts, self.everything())
        assert set(head) <= HEAD
        assert (head.get("keeper", ""), int(head.get("epoch", 0))) == (self.keeper, self.epoch)
        assert (head.get("generation", ""), int(head.get("version", 0))) == self.head()
        assert table == (self.table.entries if self.table else {})
        assert RESTS.keys() <= table.keys() or not table
        assert len(log) <= LOGGED
        assert dispatchers.keys() == self.dispatchers.keys()
        assert gone.keys() == self.gone.keys()
        assert busy == {id_: known.busy for id_, known in self.dispatchers.items() if known.busy}
        assert {name: float(cost) for name, cost in loads.items()} == pytest.approx(self.loads, rel=1e-6)


def pairs(entries: list[str]) -> dict[str, str]:
    return dict(zip(entries[::2], entries[1::2], strict=True))


def apply(table: dict[str, str], entries: dict[str, str]) -> None:
    for name, state in entries.items():
        if state == "-":
            table.pop(name, None)
        else:
            table[name] = state


def follow(version: int, delta: str) -> tuple[int, dict[str, str]]:
    since, to, *words = delta.split()
    assert int(since) == version < int(to)
    return int(to), pairs(words)


def name_of(id_: str) -> str:
    return id_.partition("#")[0]


def texts(reply: dict | list) -> dict | list:
    return (
        dict(zip(told(list(reply)), told(list(reply.values())), strict=True))
        if isinstance(reply, dict)
        else reply
    )


def test_placements_promises_hold_whoever_calls(set_redis):
    run_state_machine_as_test(lambda: PlacementCalls(*set_redis))
