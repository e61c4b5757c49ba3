"""The function library against others who write to its keys, take its rights away or set its clock."""

import contextlib
import re
import time
from pathlib import Path

import pytest
import redis

from lua.redis import library
from tests.harness.functions import Placement

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "redis.md"
NODES = ("node1", "node2", "node3")


def now_ms(server: redis.Redis) -> int:
    seconds, micros = server.time()
    return seconds * 1000 + micros // 1000


def shift_clock(cluster, by: int) -> None:
    """As if Redis' clock had been set forward by so many ms: all that it wrote is that much older."""
    server = cluster.server
    for name, record in server.hgetall(cluster.nodes).items():
        words = record.split(b" ")
        words[5] = b"%d" % (int(words[5]) - by)
        server.hset(cluster.nodes, name, b" ".join(words))
    for name, record in server.hgetall(cluster.proxies).items():
        end, rest = record.split(b" ", 1)
        server.hset(cluster.proxies, name, b"%d %s" % (int(end) - by, rest))
    for field in ("seen", "since"):
        server.hset(cluster.ring_key, field, int(server.hget(cluster.ring_key, field)) - by)


@pytest.mark.parametrize("by", [3_000, 600_000, -600_000])
def test_a_silence_or_a_set_clock_moves_no_key_and_frees_no_share(cluster, by):
    for node in NODES:
        cluster.report(node, 1000, lease=2000)
    held = {}
    for _ in range(3):
        for proxy in ("one", "two"):
            _, _, shares = cluster.observe(proxy, [("node1", 500, "")], lease=2000)
            held[proxy] = shares["node1"]
    before = cluster.ring()
    shift_clock(cluster, by)
    cluster.report("node1", 1000, lease=2000)
    assert cluster.ring() == before
    _, count, shares = cluster.observe("one", [("node1", 5000, "")], lease=2000)
    assert count == 2
    assert held["two"] >= 400
    assert shares["node1"] <= (1000 - held["two"]) * (1 + 1e-9)
    # Until the next round begins, and beyond.
    for _ in range(2):
        assert set(cluster.live_nodes()[1]) == set(NODES)
        cluster.report("node1", 1000, lease=2000)
    ends = [int(record.split()[5]) for record in cluster.server.hvals(cluster.nodes)]
    assert all(0 < end - now_ms(cluster.server) <= 2000 for end in ends)


def test_a_lone_survivor_does_not_keep_the_dead(cluster):
    """It is silent for its own period between any two calls."""
    cluster.report("node1", 1000, lease=300)
    cluster.report("node2", 1000, lease=300)
    deadline = time.monotonic() + 5
    calls = 0
    while "node2" in cluster.sizes():
        assert time.monotonic() < deadline
        time.sleep(0.1)
        cluster.report("node1", 1000, lease=300)
        calls += 1
    assert calls <= 6, "300 ms, and what of them did not count"


def test_a_caller_with_a_tiny_lease_does_not_keep_dead_nodes(cluster):
    cluster.report("node1", 1000, lease=300)
    cluster.report("dead", 1000, lease=300)
    calls = 0
    while "dead" in cluster.sizes():
        calls += 1
        assert calls < 30, "300 ms are long over"
        time.sleep(0.05)
        with contextlib.suppress(redis.ResponseError):
            cluster.observe("one", [], lease=1)
        cluster.report("node1", 1000, lease=300)
    for lease in (1, 99):
        with pytest.raises(redis.ResponseError, match="lease_ms must be 0, or a whole number within 100"):
            cluster.observe("one", [], lease=lease)


def test_a_caller_with_a_long_lease_does_not_end_those_of_others_after_a_silence(cluster):
    for node in NODES:
        cluster.report(node, 1000, lease=2000)
    cluster.observe("one", [("node1", 500, "")], lease=2000)
    before = cluster.ring()
    shift_clock(cluster, 60_000)
    assert cluster.observe("long", [("node1", 500, "")], lease=3_600_000)[1] == 2
    cluster.report("node1", 1000, lease=3_600_000)
    assert cluster.ring() == before


def test_small_forward_steps_of_the_clock_together_drop_nobody(cluster):
    """Four of less than a third of a lease, while each of the others calls once."""
    for node in ("late", *NODES):
        cluster.report(node, 1000, lease=3000)
    for proxy in ("late", "one"):
        cluster.observe(proxy, [("node1", 500, "")], lease=3000)
    before = cluster.ring()
    for node in NODES:
        shift_clock(cluster, 990)
        cluster.report(node, 1000, lease=3000)
    shift_clock(cluster, 990)
    assert cluster.observe("one", [("node1", 500, "")], lease=3000)[1] == 2
    assert cluster.report("late", 1000, lease=3000)[0] == before[0]
    assert cluster.ring() == before


@pytest.mark.parametrize("back", [1000, 600_000, 7_200_000])
def test_a_clock_set_back_after_a_long_silence_ends_no_lease_and_prolongs_none(cluster, back):
    """Redis was away for longer than the leases, and the server that took over has an earlier clock."""
    for node in NODES:
        cluster.report(node, 1000, lease=2000)
    before = cluster.ring()
    shift_clock(cluster, 10_000)
    # Its first call since: the round of before goes on, and the leases of the others are in it.
    cluster.report("node1", 1000, lease=2000)
    shift_clock(cluster, -back)
    cluster.report("node1", 1000, lease=2000)
    assert cluster.ring() == before
    # The others are dead: of each round a third of their leases counts.
    for _ in range(3):
        shift_clock(cluster, 1000)
        cluster.report("node1", 1000, lease=2000)
    assert set(cluster.sizes()) == {"node1"}


@pytest.mark.parametrize("how", ["leave", "lapse"])
def test_nothing_stays_of_nodes_that_came_and_went(cluster, how):
    cluster.report("stays", 1000)
    for n in range(30):
        name = f"node{n}"
        cluster.report(name, 1000)
        for proxy in ("one", "two", "three"):
            cluster.observe(proxy, [("stays", 1, "x"), (name, 1, "x")])
        if how == "leave":
            cluster.report(name, 1000, lease=0)
        else:
            cluster.server.hset(cluster.nodes, name, "x")
    cluster.report("stays", 1000)
    for proxy in ("one", "two", "three"):
        cluster.observe(proxy, [("stays", 1, "x")])
    kept = [cluster.server.hlen(key) for key in (cluster.nodes, cluster.shares, cluster.observations)]
    # Of each proxy, and the sum.
    assert kept == [1, 3, 3 + 1]


@pytest.mark.parametrize("seen", ["nan", "-1", "0", "1e300", "x", "1", "1" + "0" * 14, "9" * 400])
def test_a_garbled_time_of_the_last_call_changes_nothing(cluster, seen):
    for node in NODES:
        cluster.report(node, 1000)
    before = cluster.ring()
    cluster.server.hset(cluster.ring_key, "seen", seen)
    cluster.report("node1", 1000)
    assert cluster.ring() == before
    assert cluster.server.hlen(cluster.nodes) == 3


def test_nodes_that_are_lost_together_get_time_to_report(cluster):
    for node in NODES:
        cluster.report(node, 1000)
    before = cluster.ring()
    cluster.server.delete(cluster.nodes)
    for node in NODES:
        assert cluster.report(node, 1000, settle=60_000)[0] == before[0]
    # The wait is over.
    cluster.server.hset(cluster.ring_key, "settle_until", 1)
    cluster.report("node1", 1000)
    assert cluster.ring() == before


@pytest.mark.parametrize("part", ["nodes", "ring_key", "proxies", "shares", "observations"])
@pytest.mark.parametrize("kind", ["string", "list", "zset"])
def test_a_key_of_another_type_is_named_and_left_alone(cluster, part, kind):
    key = getattr(cluster, part)
    server = cluster.server
    write = {
        "string": lambda: server.set(key, "x"),
        "list": lambda: server.rpush(key, "x"),
        "zset": lambda: server.zadd(key, {"x": 1}),
    }
    write[kind]()
    owners = b"\0" * 1000
    calls = [
        lambda: cluster.report("node1", 1000),
        lambda: cluster.observe("one", [("node1", 1, "")]),
        lambda: cluster.call("restore", 1, 1000, "node1", owners, 0),
        cluster.ring,
    ]
    for call in calls:
        with pytest.raises(redis.ResponseError, match=f"key {re.escape(key)} holds a {kind}.*delete it"):
            call()
    assert server.keys() == [key.encode()], "nothing else was written"
    server.delete(key)
    cluster.report("node1", 1000)
    assert cluster.sizes() == {"node1": 1000}


def test_ten_thousand_hostile_proxies_are_dropped_at_once(cluster):
    cluster.report("node1", 1000)
    server = cluster.server
    for first in range(0, 10_000, 1000):
        names = [f"p{n}" for n in range(first, first + 1000)]
        server.hset(cluster.proxies, mapping=dict.fromkeys(names, "nan i"))
        for key in (cluster.shares, cluster.observations):
            server.hset(key, mapping={f"node1 {name}": "1e308 nan" for name in names})
    server.hset(cluster.proxies, mapping={"a b": "1 i", "x" * 1000: "1 i", "long": "9" * 1_000_000})
    began = time.monotonic()
    assert cluster.observe("one", [("node1", 1, "")])[1] == 1
    assert time.monotonic() - began < 1, "one pass over the shares, and not one a proxy"
    assert server.hkeys(cluster.proxies) == [b"one"]
    assert server.hlen(cluster.shares) == 1


def test_ten_thousand_hostile_proxies_do_not_slow_reports_down_for_long(cluster):
    for first in range(0, 10_000, 1000):
        names = [f"p{n}" for n in range(first, first + 1000)]
        cluster.server.hset(cluster.proxies, mapping=dict.fromkeys(names, "nan i"))
    cluster.report("node1", 1000)
    assert cluster.server.hlen(cluster.proxies) == 0


@pytest.mark.parametrize("sum_", ["nan nan", "-5 -5", "1e308 1e308", "inf inf", "x", "", "1", "9" * 9999])
def test_a_garbled_sum_of_shares_grants_nothing_twice(cluster, sum_):
    for node in NODES:
        cluster.report(node, 1000)
    granted = {}
    asked = [(node, 500, "") for node in NODES]
    for _ in range(3):
        for proxy in ("one", "two"):
            granted[proxy] = cluster.observe(proxy, asked)[2]
    for node in NODES:
        cluster.server.hset(cluster.observations, node, sum_)
    granted["new"] = cluster.observe("new", asked)[2]
    for node in NODES:
        assert sum(shares[node] for shares in granted.values()) <= 1000 * (1 + 1e-9), node


@pytest.mark.parametrize("record", ["{bound} 1 1 1 1 {end} 60000 0 i", "1 {bound} 1 1 1 {end} 60000 0 i"])
@pytest.mark.parametrize("bound", ["nan", "-nan", "inf", "-1", "1e308", "1e16", "x", "9" * 500, ""])
def test_a_node_that_cannot_be_is_no_node(cluster, record, bound):
    end = now_ms(cluster.server) + 60_000
    cluster.server.hset(cluster.nodes, "bad", record.format(bound=bound, end=end))
    cluster.report("node1", 1000)
    assert cluster.sizes() == {"node1": 1000}
    assert cluster.observe("one", [("bad", 1, "")])[2] == {}
    assert cluster.server.hkeys(cluster.nodes) == [b"node1"]


@pytest.mark.parametrize("instance", ["a,b", "x" * 200, "é"])
def test_a_node_of_an_instance_that_cannot_be_is_no_conflict(cluster, instance):
    end = now_ms(cluster.server) + 60_000
    cluster.server.hset(cluster.nodes, "node1", f"1 1 1 1 1 {end} 60000 0 {instance}")
    cluster.report("node1", 1000)
    assert cluster.sizes() == {"node1": 1000}


@pytest.mark.parametrize("address", ["a b", "a\nb", " ", "x" * 256, "\0", "é", "\x7f:1"])
def test_an_address_that_cannot_be_is_dropped_and_its_node_is_not(cluster, address):
    cluster.report("node1", 1000, address=address)
    assert cluster.live_nodes()[1]["node1"][0] == ""
    end = now_ms(cluster.server) + 60_000
    cluster.server.hset(cluster.nodes, "node2", f"1 1 1 1 1 {end} 60000 0 i {address}")
    assert cluster.live_nodes()[1]["node2"] == ["", "1", "1", "1", "1", "1"]
    cluster.report("node1", 1000, address="x" * 255)
    assert cluster.live_nodes()[1]["node1"][0] == "x" * 255


@pytest.mark.parametrize("end", ["- x", "- nan", "- -5", "- 1e16", "a:1 5 6", "-", " 5", "- 5 ", "- "])
def test_a_capacity_that_cannot_be_is_dropped_and_its_node_is_not(cluster, end):
    times = f"{now_ms(cluster.server) + 60_000} 60000 0 i"
    cluster.server.hset(cluster.nodes, "node2", f"3000 1 1 1 1 {times} {end}")
    cluster.report("node1", 1000, capacity=1000)
    assert cluster.sizes() == {"node1": 250, "node2": 750}
    assert cluster.live_nodes()[1]["node2"] == ["", "3000", "1", "1", "1", "1"]


def test_a_silence_shifts_the_lease_of_a_node_with_an_address(cluster):
    cluster.report("node1", 1000, address="127.0.0.1:8101", lease=3000)
    cluster.report("node2", 1000, lease=3000)
    shift_clock(cluster, 10_000)
    cluster.report("node2", 1000, lease=3000)
    assert cluster.live_nodes()[1]["node1"][0] == "127.0.0.1:8101"


@pytest.mark.parametrize("name", ["a b", "a\nb", "", "x" * 129, "\0", "a=b,c"])
def test_nodes_of_names_that_cannot_be_are_dropped(cluster, name):
    end = now_ms(cluster.server) + 60_000
    cluster.server.hset(cluster.nodes, name, f"1 1 1 1 1 {end} 60000 0 i")
    cluster.report("node1", 1000)
    assert cluster.server.hkeys(cluster.nodes) == [b"node1"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("owners", b"\1" * 1000),
        ("owners", b"\xff" * 1000),
        ("owners", b"\0" * 1000),
        ("names", "\n" * 5_000_000),
        ("names", "x" * 5_000_000),
        ("sizes", "," * 5_000_000),
        ("version", "1e308"),
        ("version", "-3"),
        ("version", "1.5"),
        ("slots", "1e308"),
        ("check", "x"),
    ],
)
def test_a_damaged_ring_is_not_shown_and_can_be_restored(cluster, field, value):
    for node in ("node1", "node2"):
        cluster.report(node, 1000)
    version, slots, names, owners = cluster.ring()
    cluster.server.hset(cluster.ring_key, field, value)
    assert cluster.server.fcall_ro("plimsoll_ring", 5, *cluster.keys) == []
    assert cluster.call("restore", version, slots, "\n".join(names), owners, 0) == version
    assert cluster.ring() == (version, slots, names, owners)


def test_a_damaged_table_is_no_ground_to_move_from(cluster):
    for node in ("node1", "node2"):
        cluster.report(node, 1000)
    before = cluster.ring()
    cluster.server.hset(cluster.ring_key, "owners", b"\0" * 1000)
    # Node 2's bound asks for a change: followers are asked for the table first.
    assert cluster.report("node2", 3000, settle=60_000) == [0]
    assert cluster.call("restore", before[0], 1000, "\n".join(before[2]), before[3], 0) == before[0]
    assert cluster.report("node2", 3000)[0] == before[0] + 1
    moved = sum(old != new for old, new in zip(before[3], cluster.ring()[3], strict=True))
    assert moved == 250


def test_a_ring_lost_long_after_it_was_made_waits_for_its_followers(cluster):
    cluster.report("node1", 1000, settle=1)
    deadline = time.monotonic() + 5
    while cluster.report("node1", 1000, settle=1)[0] == 0:
        assert time.monotonic() < deadline
    cluster.report("node1", 1000)
    cluster.server.hset(cluster.ring_key, "version", "x")
    assert cluster.report("node1", 1000, settle=60_000) == [0]


def test_the_version_after_the_last_is_the_first(cluster):
    cluster.report("node1", 1000)
    cluster.server.hset(cluster.ring_key, "version", 10**15)
    assert cluster.report("node2", 1000)[0] == 1
    assert cluster.sizes() == {"node1": 500, "node2": 500}


def test_an_observation_that_is_too_long_is_not_handed_on(cluster):
    cluster.report("node1", 1000)
    cluster.observe("one", [("node1", 1, "fine")])
    cluster.observe("two", [("node1", 1, "x")])
    cluster.server.hset(cluster.observations, "node1 two", "x" * 1_000_000)
    assert cluster.report("node1", 1000)[1:] == [b"one", b"fine"]


def rule(user: str) -> list[str]:
    line = re.search(rf"^ACL SETUSER {user} (.*)$", DOCUMENT.read_text(), re.MULTILINE)
    assert line, f"docs/redis.md has no rule of user {user}"
    return line[1].split()


def as_agents(cluster, admin) -> None:
    """All that agents do, and each way through it."""
    cluster.server.execute_command("ROLE")
    cluster.server.function_load(library.text("plimsoll"), replace=True)
    cluster.server.fcall("plimsoll_version", 1, cluster.nodes)
    for node in ("node1", "node2"):
        cluster.report(node, 1000)
    version, slots, names, owners = cluster.ring_by_fcall()
    admin.hset(cluster.ring_key, "owners", b"\0" * 1000)
    cluster.report("node2", 3000, settle=60_000)
    cluster.call("restore", version, slots, names, owners, 0)
    cluster.report("node2", 1000, lease=0)
    cluster.server.function_load(library.text("plimsoll_placement"), replace=True)
    placement = Placement(cluster.server)
    placement.server.fcall_ro = placement.server.fcall
    placement.start()
    placement.join("lb1/1#a")
    placement.call("follow", "-", 0, 0)
    placement.call("wish", "*0", "node2")
    placement.read(loads=1)
    placement.publish("1 2 *0 >node1 =A node1")
    placement.publish("2 3 *0 node2 =A -")
    placement.report("lb1/1#a", 2)
    placement.call("heed", "keeper", placement.epoch)
    placement.call("settle", "keeper", placement.epoch, "s1")
    cluster.server.info("replication")
    cluster.server.wait(0, 1)
    placement.status()
    placement.call("forget", "lb1/1#a")
    placement.call("resign", "keeper", placement.epoch)


def as_proxies(cluster, admin) -> None:
    server = cluster.server
    server.fcall_ro("plimsoll_version", 0)
    server.fcall_ro("plimsoll_ring", 5, *cluster.keys)
    for proxy in ("one", "two"):
        cluster.observe(proxy, [("node1", 1, "x")])
    cluster.observe("one", [("node1", 1, "x")], lease=0)
    with server.pubsub() as changes:
        changes.subscribe(cluster.ring_key)
        changes.parse_response(timeout=5)
        changes.ping()
        changes.parse_response(timeout=5)
    keeper, placement = Placement(admin), Placement(server)
    keeper.start()
    assert server.fcall_ro("plimsoll_placement_version", 0)
    placement.join("lb1/1#a")
    keeper.publish("1 2 *0 >node1")
    placement.report("lb1/1#a", 1, busy="*0", loads="*0 1")
    placement.join("lb1/1#b")
    placement.call("leave", "lb1/1#b", 0)


def visit(cluster, user: str, words: list[str], doing) -> None:
    admin = cluster.server
    admin.execute_command("ACL", "SETUSER", user, "reset", *words)
    admin.flushdb()
    cluster.report("node1", 1000)
    port = admin.connection_pool.connection_kwargs["port"]
    visitor = redis.Redis(port=port, username=user, password="PASSWORD")
    there = type(cluster)(visitor)
    there.ring_by_fcall = lambda: there.call("ring")
    try:
        doing(there, admin)
    finally:
        visitor.close()
        admin.execute_command("ACL", "DELUSER", user)


RULES = {"plimsoll": as_agents, "haproxy": as_proxies}


@pytest.mark.parametrize("user", RULES)
def test_the_documented_rights_are_enough(cluster, user):
    visit(cluster, user, rule(user), RULES[user])


@pytest.mark.parametrize(
    ("user", "word"),
    [(user, word) for user in RULES for word in rule(user) if word[0] in "+&~"],
)
def test_none_of_the_documented_rights_is_idle(cluster, user, word):
    fewer = [other for other in rule(user) if other != word]
    with pytest.raises(
        redis.ResponseError, match=r"(?i)permission|can't run|can't publish|NOPERM|No permissions"
    ):
        visit(cluster, user, fewer, RULES[user])
