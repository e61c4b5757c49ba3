"""The function library on a real Redis."""

import math
import random
import time

import pytest
import redis

from lua.redis import library
from tests.harness import ROOT
from tests.harness.functions import NOBODY

HOSTILE = ["nan", "-nan", "inf", "-inf", "-1", "1e16", "", "x", "0x", "1 2"]


def test_a_node_that_is_out_owns_nothing_and_does_not_count_in_the_mean(cluster):
    cluster.report("node1", 64, capacity=300)
    cluster.report("node2", 64, capacity=-1)
    cluster.report("node3", 0, capacity=9000)
    assert cluster.sizes() == {"node1": 500, "node2": 500, "node3": 0}


def test_agents_of_the_version_before_count_by_their_bounds(cluster):
    """They report no capacity, read nodes of seven words, and may have written records before."""
    cluster.report("new", 5, capacity=3000)
    cluster.report("old", 1000)
    assert cluster.sizes() == {"new": 750, "old": 250}
    seconds, _ = cluster.server.time()
    end = (seconds + 60) * 1000
    record = f"2000 25 80 5 0.4 {end} 60000 0 a1"
    cluster.server.hset(cluster.nodes, "older", f"{record} 192.0.2.1:8001")
    cluster.server.hset(cluster.nodes, "oldest", record)
    cluster.report("new", 5, capacity=3000)
    assert cluster.sizes() == {"new": 375, "old": 125, "older": 250, "oldest": 250}
    seen = cluster.live_nodes()[1]
    assert seen["older"] == ["192.0.2.1:8001", "2000", "25", "80", "5", "0.4"]
    assert seen["oldest"][0] == seen["new"][0] == ""


def test_noise_within_the_dead_band_moves_no_key(cluster):
    for node in ("node1", "node2"):
        cluster.report(node, 1000)
    before = cluster.ring()
    for bound in (960, 1040, 1000):
        cluster.report("node1", bound)
    assert cluster.ring() == before
    version, *_ = cluster.report("node1", 800)
    assert version == before[0] + 1
    assert cluster.sizes() == {"node1": 444, "node2": 556}


def test_a_change_is_published_with_what_moved(cluster):
    cluster.report("node1", 1000)
    _, _, _, before = cluster.ring()
    listener = cluster.server.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(cluster.ring_key)
    listener.get_message(timeout=1)
    version, *_ = cluster.report("node2", 1000)
    message = None
    deadline = time.monotonic() + 5
    while message is None and time.monotonic() < deadline:
        message = listener.get_message(timeout=0.1)
    since, to, names, moves = message["data"].decode().split(" ")
    assert (int(since), int(to)) == (version - 1, version)
    assert names == "0=node1,1=node2"
    owners = bytearray(before)
    for run in moves.split(","):
        first, count, owner = map(int, run.split(":"))
        owners[first : first + count] = bytes([owner]) * count
    assert bytes(owners) == cluster.ring()[3]


def test_a_node_leaves_after_its_lease_and_other_keys_stay(cluster):
    for node in ("node1", "node2", "node3"):
        cluster.report(node, 1000, lease=60_000 if node != "node2" else 100)
    _, _, names, before = cluster.ring()
    gone = names.index("node2")
    deadline = time.monotonic() + 5
    while "node2" in cluster.sizes() and time.monotonic() < deadline:
        cluster.report("node1", 1000)
    assert set(cluster.sizes()) == {"node1", "node3"}
    after = cluster.ring()[3]
    assert all(old == new for old, new in zip(before, after, strict=True) if old != gone)


def test_a_node_that_says_goodbye_leaves_at_once(cluster):
    cluster.report("node1", 1000)
    cluster.report("node2", 1000)
    cluster.report("node2", 1000, lease=0)
    assert cluster.sizes() == {"node1": 1000}


def test_the_last_node_leaves_a_ring_of_nobody(cluster):
    cluster.report("node1", 1000)
    cluster.report("node1", 1000, lease=0)
    version, slots, names, owners = cluster.ring()
    assert (slots, names, set(owners)) == (1000, [""], {NOBODY})
    assert cluster.report("node1", 1000)[0] == version + 1


def test_a_freed_index_goes_to_the_next_node(cluster):
    for node in ("node1", "node2", "node3"):
        cluster.report(node, 1000)
    cluster.report("node1", 1000, lease=0)
    cluster.report("node9", 1000)
    assert cluster.ring()[2] == ["node9", "node2", "node3"]


def test_two_agents_of_one_name_are_told(cluster):
    cluster.report("node1", 1000, instance="a1")
    with pytest.raises(redis.ResponseError, match=r"CONFLICT.*node1.*a1"):
        cluster.report("node1", 9000, instance="a2")
    assert cluster.sizes() == {"node1": 1000}
    cluster.report("node1", 1000, instance="a1", lease=0)
    cluster.report("node1", 1000, instance="a2")


@pytest.mark.parametrize(
    "field",
    ["bound", "bound_jobs", "mean_cost", "jobs", "load", "lease", "slots", "dead_band", "settle"],
)
@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_reports_are_refused_and_nothing_is_lost(cluster, field, value):
    cluster.report("node1", 1000)
    before = cluster.ring()
    with pytest.raises(redis.ResponseError, match="plimsoll: "):
        cluster.report("node1", **({"bound": 1000} | {field: value}))
    assert cluster.ring() == before


def test_hostile_capacities_are_refused(cluster):
    for value in [*HOSTILE, "-0.5", "-2"]:
        if value == "-1":
            continue
        with pytest.raises(redis.ResponseError, match="plimsoll: capacity must be -1"):
            cluster.report("node1", 1000, capacity=value)
    with pytest.raises(redis.ResponseError, match="plimsoll: nodes takes the word capacity"):
        cluster.server.fcall_ro("plimsoll_nodes", 5, *cluster.keys, "x")


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "x" * 129, "é", "a,b", "a=b"])
def test_hostile_names_are_refused(cluster, name):
    with pytest.raises(redis.ResponseError, match="name must be"):
        cluster.report(name, 1000)
    with pytest.raises(redis.ResponseError, match="name must be"):
        cluster.observe(name, [])
    with pytest.raises(redis.ResponseError, match="name must be"):
        cluster.observe("proxy1", [(name, 1, "")])


def test_hostile_records_are_dropped(cluster):
    """Somebody else writes to the keys."""
    far = int(time.time() * 1000) + 60_000
    for n, record in enumerate(
        [
            *("", "x", f"nan 1 1 1 1 {far} 60000 0 i", f"-5 1 1 1 1 {far} 60000 0 i"),
            *(f"1e300 1 1 1 1 {far} 60000 0 i", f"1 1 1 1 1 {far}999 60000 0 i", "1 1 1 1 1 1 60000 0 i"),
            *(f"1 1 1 1 1 {far} {lease} 0 i" for lease in ("", "0", "99", "3600001", "nan")),
        ]
    ):
        cluster.server.hset(cluster.nodes, f"bad{n}", record)
    for n in range(10_000):
        cluster.server.hset(cluster.nodes, f"many{n}", "nan nan nan nan nan")
    cluster.report("node1", 1000)
    assert cluster.sizes() == {"node1": 1000}
    assert cluster.server.hkeys(cluster.nodes) == [b"node1"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", "nan"),
        ("slots", "-4"),
        ("slots", "999"),
        ("owners", b"\xff"),
        ("names", "a b"),
        ("names", "x\ny\nz"),
        ("sizes", "1000,1000"),
        ("sizes", "nan"),
    ],
)
def test_a_damaged_ring_is_made_again(cluster, field, value):
    cluster.report("node1", 1000)
    cluster.server.hset(cluster.ring_key, field, value)
    assert cluster.report("node1", 1000)[0] >= 1
    assert cluster.sizes() == {"node1": 1000}


def test_a_follower_restores_the_table_of_an_emptied_redis(cluster):
    for node, bound in (("node1", 3000), ("node2", 1000), ("node3", 2000), ("node1", 500)):
        cluster.report(node, bound)
    version, slots, names, owners = cluster.ring()
    cluster.server.flushdb()
    assert cluster.call("restore", version, slots, "\n".join(names), owners, 60_000) == version
    assert cluster.call("restore", version - 1, slots, "x", bytes(slots), 0) == version
    # The others have not reported yet: the first report must not take their slots.
    assert cluster.report("node1", 500)[0] == version
    assert cluster.ring() == (version, slots, names, owners)


def test_a_ring_from_nothing_waits_for_the_other_nodes(cluster):
    for node in ("node1", "node2"):
        assert cluster.report(node, 1000, settle=60_000) == [0]
    # The wait is over.
    cluster.server.hset(cluster.ring_key, "settle_until", "1")
    assert cluster.report("node1", 1000, settle=60_000) == [1]
    assert cluster.sizes() == {"node1": 500, "node2": 500}


def test_an_absurd_wait_does_not_hold_the_ring_forever(cluster):
    cluster.report("node1", 1000)
    for value in ("nan", "1e300", "x"):
        cluster.server.hset(cluster.ring_key, "settle_until", value)
        bound = 1000 + len(value)
        cluster.report("node2", bound)
        assert "node2" in cluster.sizes()
        cluster.report("node2", bound, lease=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("0", 4, "a", b"\0\0\0\0"), "version"),
        (("1", 4, "a", b"\0\0\0"), "one byte a slot"),
        (("1", 4, "a", b"\0\0\0\1"), "without a name"),
        (("1", 4, "a b", b"\0\0\0\0"), "name must be"),
        (("1", 4, "a\n\n\na", b"\0\0\0\3"), "node a is there twice"),
        (("1", 4, "a", b"\0\0\0\xff"), "every slot or none"),
    ],
)
def test_a_table_that_cannot_be_is_not_restored(cluster, arguments, message):
    with pytest.raises(redis.ResponseError, match=message):
        cluster.call("restore", *arguments, 0)
    assert cluster.server.fcall_ro("plimsoll_ring", 5, *cluster.keys) == []


def test_shares_follow_demand_and_never_exceed_the_bound(cluster):
    """Whatever the order of the calls, what is granted together stays within the bound."""
    draw = random.Random(2)
    cluster.report("node1", 1000, mean_cost=0)
    granted: dict[str, float] = {}
    # A part of what was granted is in flight still.
    held: dict[str, float] = {}
    for _ in range(400):
        proxy = f"proxy{draw.randrange(4)}"
        demand = draw.choice([0, draw.uniform(0, 5000)])
        backlog = held.get(proxy, 0) * draw.choice([0, draw.random(), 1])
        _, _, shares = cluster.observe(proxy, [("node1", f"{demand}/{backlog}", "")])
        granted[proxy] = shares["node1"]
        held[proxy] = max(granted[proxy], backlog)
        assert sum(held.values()) <= 1000 * (1 + 1e-9)
    for _ in range(3):
        for n in range(4):
            demand = 3000 if n == 0 else 1000
            granted[f"proxy{n}"] = cluster.observe(f"proxy{n}", [("node1", demand, "")])[2]["node1"]
    assert sum(granted.values()) == pytest.approx(1000)
    # 0.05 of an even share is everybody's: (3000 + 75) / (6000 + 300).
    assert granted["proxy0"] == pytest.approx(1000 * 3075 / 6300)


def test_an_absurd_demand_of_one_dispatcher_leaves_the_others_their_part(cluster):
    """Somebody asked it for a cost of 1e9."""
    cluster.report("node1", 1000, mean_cost=1)
    for _ in range(3):
        cluster.observe("one", [("node1", 1e9, "")])
        share = cluster.observe("two", [("node1", 300, "")])[2]["node1"]
    # Of four parts in five, and 0.05 of an even share: (300 + 37.5) / (1500 + 75).
    assert share == pytest.approx(1000 * 337.5 / 1575, abs=1)


@pytest.mark.parametrize("prefix", ["proxy", "lb-a/", "h", "edge.example:"])
def test_shares_are_whole_requests_and_at_any_time_nearly_the_bound(cluster, prefix):
    """A dispatcher can do nothing with 2.6 requests, and eight would leave a fifth of the bound unused.

    Rounded each by itself, as the names happen to fall, they would at times leave as much.
    """
    cluster.report("node1", 20.8, mean_cost=1)
    names = [f"{prefix}{n}" for n in range(8)]
    shares = {name: [] for name in names}
    for _ in range(300):
        for name in names:
            shares[name].append(cluster.observe(name, [("node1", 100, "")])[2]["node1"])
    # All but the first, when they came.
    late = [granted for name in names for granted in shares[name][50:]]
    # Whole ones, or what the others left, which is less than one.
    assert all(granted < 1 or granted == pytest.approx(round(granted)) for granted in late)
    assert sum(map(int, late)) / 250 > 0.9 * 20.8
    assert sum(late) / 250 <= 20.8 * (1 + 1e-9)


@pytest.mark.parametrize("mean_cost", [5e-324, 1e-300, 1e15])
def test_an_absurd_mean_cost_breaks_no_bound(cluster, mean_cost):
    cluster.report("node1", 20.8, mean_cost=mean_cost)
    for _ in range(3):
        shares = [cluster.observe(f"proxy{n}", [("node1", 100, "")])[2]["node1"] for n in range(8)]
    assert min(shares) > 0
    assert sum(shares) <= 20.8 * (1 + 1e-9)


def test_less_than_a_request_is_granted_as_it_is(cluster):
    cluster.report("node1", 0.8, mean_cost=1)
    for _ in range(3):
        shares = [cluster.observe(f"proxy{n}", [("node1", 100, "")])[2]["node1"] for n in range(8)]
    assert shares == pytest.approx([0.1] * 8)


def test_what_is_in_flight_of_a_share_that_falls_is_held(cluster):
    cluster.report("node1", 1000, mean_cost=1)

    def granted(proxy: str, demand: str) -> float:
        return cluster.observe(proxy, [("node1", demand, "")])[2]["node1"]

    for _ in range(3):
        granted("two", "0")
        full = granted("one", "500/0")
    assert full > 900
    assert granted("two", "500") < 100
    assert granted("one", "0/700") < 100
    # No more than was held, whatever it claims.
    assert granted("two", "500/1e15") == pytest.approx(1000 - 700)
    assert granted("one", "0/200") < 100
    assert granted("two", "500/300") == pytest.approx(1000 - 200)
    assert granted("one", "0/0") < 100
    assert granted("two", "500") > 900


def test_a_proxy_that_vanishes_gives_its_share_back(cluster):
    cluster.report("node1", 1000)
    for _ in range(3):
        for proxy, lease in (("one", 60_000), ("two", 200)):
            cluster.observe(proxy, [("node1", 500, "")], lease=lease)
    deadline = time.monotonic() + 5
    shares = {"node1": 0.0}
    while shares["node1"] < 999 and time.monotonic() < deadline:
        _, count, shares = cluster.observe("one", [("node1", 500, "")])
    assert count == 1
    assert shares["node1"] == pytest.approx(1000)
    assert not any(b"two" in field for field in cluster.server.hkeys(cluster.shares))


def test_a_restarted_proxy_starts_without_its_old_share(cluster):
    cluster.report("node1", 1000)
    cluster.observe("one", [("node1", 500, "old")], instance="p1")
    _, count, shares = cluster.observe("one", [("node1", 500, "new")], instance="p2")
    # Half of what is free, for a new one is seldom alone.
    assert (count, shares["node1"]) == (1, pytest.approx(500))


def test_observations_reach_the_agent_of_their_node(cluster):
    cluster.report("node1", 1000)
    cluster.report("node2", 1000)
    cluster.observe("one", [("node1", 1, "12 3.5"), ("node2", 1, "9 9")])
    cluster.observe("two", [("node1", 1, "4 0.1")])
    _, *seen = cluster.report("node1", 1000)
    assert dict(zip(seen[::2], seen[1::2], strict=True)) == {
        b"one": b"12 3.5",
        b"two": b"4 0.1",
    }


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_demand_is_refused(cluster, value):
    cluster.report("node1", 1000)
    for text in (value, f"{value}/1", f"1/{value}", "1/1/1", "/"):
        with pytest.raises(redis.ResponseError, match="demand"):
            cluster.observe("one", [("node1", text, "")])


def test_hostile_shares_of_others_do_not_count(cluster):
    cluster.report("node1", 1000)
    for other in ("two", "three"):
        cluster.observe(other, [("node1", 0, "")])
    cluster.server.hset(cluster.shares, "node1 two", "nan nan")
    cluster.server.hset(cluster.shares, "node1 three", "-1e300 inf")
    share = cluster.observe("one", [("node1", 500, "")])[2]["node1"]
    assert math.isfinite(share)
    assert 0 <= share <= 1000


def test_too_much_is_refused(cluster):
    with pytest.raises(redis.ResponseError, match="255 nodes"):
        cluster.observe("one", [(f"n{n}", 1, "") for n in range(256)])
    with pytest.raises(redis.ResponseError, match="2048 bytes"):
        cluster.observe("one", [("node1", 1, "x" * 2049)])


def test_all_live_nodes_are_listed(cluster):
    assert cluster.live_nodes() == (0, {})
    version = cluster.report("node1", 1000, address="127.0.0.1:8101")[0]
    cluster.report("node2", 0, bound_jobs=0, address="[2001:db8::1]:80", lease=60_000)
    cluster.report("node3", 1000, lease=0)
    version, nodes = cluster.live_nodes()
    assert version == cluster.ring()[0]
    assert nodes == {
        "node1": ["127.0.0.1:8101", "1000", "64", "80", "5", "0.40000000000000002"],
        "node2": ["[2001:db8::1]:80", "0", "0", "80", "5", "0.40000000000000002"],
    }
    cluster.report("node1", 1000)
    assert cluster.live_nodes()[1]["node1"][0] == ""


def test_a_node_whose_lease_is_over_is_not_listed_and_not_dropped_by_looking(cluster):
    cluster.report("node1", 1000, lease=100)
    deadline = time.monotonic() + 5
    while cluster.live_nodes()[1] and time.monotonic() < deadline:
        pass
    assert cluster.live_nodes()[1] == {}
    assert cluster.server.hkeys(cluster.nodes) == [b"node1"]


def test_agents_of_before_may_leave_the_address_out(cluster):
    words = ["node1", "a1", 1000, 64, 80, 5, 0.4, 60_000, 1000, 0.05, 0]
    assert cluster.call("report", *words)[0] == 1
    assert cluster.live_nodes()[1]["node1"][0] == ""


def test_the_library_tells_its_version(cluster):
    told = library.version("plimsoll")
    assert cluster.server.fcall_ro("plimsoll_version", 0) == told
    assert f"LIBRARY_VERSION = {told}" in (ROOT / "lua/plimsoll/follower.lua").read_text()
