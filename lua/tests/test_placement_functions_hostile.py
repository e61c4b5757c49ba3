"""Placement's functions, and what no agent or proxy would send, or Redis keep."""

import re

import pytest
import redis

HOSTILE = ["nan", "-nan", "inf", "-inf", "-1", "1e16", "", "x", "0x", "1 2"]
ONE, TWO = "lb1/1#a", "lb2/1#b"


@pytest.mark.parametrize("field", ["seen", "clock"])
@pytest.mark.parametrize("text", ["nan", "-1", "0", "1e300", "x", "1", "9" * 400])
def test_a_garbled_time_loses_nobody(placement, field, text):
    placement.start(when_lost="hold")
    placement.join(ONE)
    placement.read()
    placement.read(passed=10_000)
    placement.server.hset(placement.meta, field, text)
    assert list(placement.read()["dispatchers"]) == [ONE]


# Hostile input.


@pytest.mark.parametrize("id_", ["", "a", "a#", "#a", "a#b#c", "a b#c", "a#b\n", "x" * 199 + "#a", "é#a"])
def test_hostile_ids_are_refused(placement, id_):
    placement.start()
    for call in (
        lambda: placement.join(id_),
        lambda: placement.report(id_, 1),
        lambda: placement.call("leave", id_, 1),
        lambda: placement.call("forget", id_),
    ):
        with pytest.raises(redis.ResponseError, match="id must be NAME#INSTANCE"):
            call()
    if id_.strip() == id_ != "":
        with pytest.raises(redis.ResponseError, match="id must be NAME#INSTANCE"):
            placement.open(generation="g2", ids=id_)


@pytest.mark.parametrize(
    "set_", ["a", "=", "*64", "*-1", "*01", "*1.0", "*nan", "=" + "x" * 129, "=é", "*0:a"]
)
def test_hostile_object_sets_are_refused(placement, set_):
    placement.start()
    placement.join(ONE)
    for call in (
        lambda: placement.report(ONE, 1, busy=set_),
        lambda: placement.publish(f"1 2 {set_} node1"),
        lambda: placement.call("wish", set_, "node1"),
    ):
        with pytest.raises(redis.ResponseError, match="an object set is =NAME or"):
            call()
    if set_ != "*0:a":
        with pytest.raises(redis.ResponseError, match="loads must be"):
            placement.report(ONE, 1, loads=f"{set_} 1")
    assert placement.read(loads=1) | {"dispatchers": {}} == placement.read(loads=1) | {"dispatchers": {}}


@pytest.mark.parametrize("state", ["", ">", "-", ">-", "a,b", ">>a", "x" * 129, "é"])
def test_hostile_states_are_refused(placement, state):
    placement.start()
    with pytest.raises(redis.ResponseError, match="state"):
        placement.publish(f"1 2 *0 {state}")
    assert placement.read()["version"] == 1


@pytest.mark.parametrize(
    "delta", ["", "1", "1 2", "1 1 *0 a", "2 1 *0 a", "x y *0 a", "1 1e3 *0 a", "1 2 *0 a *1"]
)
def test_changes_that_cannot_be_are_refused(placement, delta):
    placement.start()
    with pytest.raises(redis.ResponseError, match="plimsoll: "):
        placement.publish(delta)
    assert placement.read()["version"] == 1


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_numbers_are_refused_and_nothing_is_lost(placement, value):
    placement.start()
    placement.join(ONE)
    agent = ("keeper", placement.epoch)
    for call in (
        lambda: placement.report(ONE, value),
        lambda: placement.report(ONE, 1, loads=f"*0 {value}"),
        lambda: placement.call("leave", ONE, value),
        lambda: placement.call("claim", "keeper", value, 1000, 1000, "serve", 1000, "s1"),
        lambda: placement.call("claim", "keeper", 1000, value, 1000, "serve", 1000, "s1"),
        lambda: placement.call("claim", "keeper", 1000, 1000, value, "serve", 1000, "s1"),
        lambda: placement.call("claim", "keeper", 1000, 1000, 1000, value, 1000, "s1"),
        lambda: placement.call("claim", "keeper", 1000, 1000, 1000, "serve", value, "s1"),
        lambda: placement.call("claim", "keeper", 1000, 1000, 1000, "serve", 1000, value + "#"),
        lambda: placement.call("settle", *agent, value + "#"),
        lambda: placement.call("read", "keeper", value, 1000, 1000, 0, "", 0),
        lambda: placement.call("read", *agent, value, 1000, 0, "", 0),
        lambda: placement.call("read", *agent, 1000, value, 0, "", 0),
        lambda: placement.call("read", *agent, 1000, 1000, value, "", 0),
        lambda: placement.call("read", *agent, 1000, 1000, 0, "", value),
        lambda: placement.open(generation="g2", version=value),
        lambda: placement.open(generation="g2", wait=value),
        lambda: placement.call("follow", "g1", value, 0),
        lambda: placement.call("follow", "g1", 1, value),
    ):
        with pytest.raises(redis.ResponseError, match="plimsoll: "):
            call()
    assert placement.report(ONE, 1) == ["ok", 1]
    seen = placement.read(loads=1)
    assert (seen["version"], seen["ahead"], seen["loads"]) == (1, 0, {})


def test_too_much_at_once_is_refused(placement):
    placement.start()
    placement.join(ONE)
    sets = [f"={n}" for n in range(1025)]
    with pytest.raises(redis.ResponseError, match="at most 1024 sets"):
        placement.report(ONE, 1, busy=" ".join(sets))
    with pytest.raises(redis.ResponseError, match="at most 1024 pairs"):
        placement.report(ONE, 1, loads=" ".join(f"{name} 1" for name in sets))
    with pytest.raises(redis.ResponseError, match="loads must be"):
        placement.report(ONE, 1, loads="*0 1 *1")
    placement.report(ONE, 1, busy=" ".join(sets[1:]), loads=" ".join(f"{name} 1" for name in sets[1:]))


def test_names_beyond_the_room_for_loads_count_for_their_rests(placement):
    placement.start()
    placement.join(ONE)
    for first in range(0, 33_792, 1024):
        names = (f"*{n % 64}:{n}" for n in range(first, first + 1024))
        placement.report(ONE, 1, loads=" ".join(f"{name} 1" for name in names))
    assert placement.server.hlen(placement.loads) <= 32_768 + 64
    assert sum(placement.read(loads=1)["loads"].values()) == 33_792


def test_a_cluster_has_so_many_dispatchers(placement):
    placement.start()
    record = "- 1 1 10000 serve"
    placement.server.hset(placement.dispatchers, mapping={f"p{n}/1#a": record for n in range(4096)})
    with pytest.raises(redis.ResponseError, match="4096 dispatchers"):
        placement.join(ONE)
    # A successor is no new one.
    assert placement.join("p7/1#b")[0] == "open"


def test_a_proxy_that_crashes_again_and_again_costs_bounded_memory(placement):
    placement.start()
    for n in range(300):
        placement.join(f"lb1/1#{n}")
    assert placement.server.hlen(placement.gone) == 256
    assert "lb1/1#298" in placement.read()["gone"]


def test_hostile_records_are_dropped_and_leave_doubt_where_somebody_may_serve(placement):
    placement.start()
    placement.join(ONE)
    server = placement.server
    for n, record in enumerate(
        ("", "x", "1 2 3", "nan 1 1 1 serve", "9" * 2_000_000, "1 1 1 99999999 serve")
    ):
        server.hset(placement.dispatchers, f"bad/{n}#a", record)
    server.hset(placement.dispatchers, "no id", "x")
    server.hset(placement.gone, mapping={"lb9/1#x": "nan", "lb8/1#x": "9" * 300, "x" * 1000: "1"})
    server.hset(placement.loads, mapping={"*0": "nan", "x": "1", "=" + "x" * 500: "1", "*1": "-5", "*2": "3"})
    server.hset(placement.busy, ONE, "x" * 1_000_000)
    seen = placement.read(loads=1)
    assert list(seen["dispatchers"]) == [ONE]
    assert seen["dispatchers"][ONE]["busy"] == ""
    assert set(seen["gone"]) == {f"bad/{n}#a" for n in range(6)} | {"lb9/1#x", "lb8/1#x"}
    assert seen["loads"] == {"*2": 3}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("generation", "a b"),
        ("generation", "x" * 100),
        ("version", "nan"),
        ("version", "0"),
        ("opens_at", "x"),
        ("lease", "0"),
        ("request_limit", "-1"),
        ("when_lost", "panic"),
    ],
)
def test_a_damaged_head_is_no_table(placement, field, value):
    placement.start()
    placement.join(ONE)
    placement.server.hset(placement.meta, field, value)
    assert placement.join(TWO)[0] == "wait"
    with pytest.raises(redis.ResponseError, match="UNKNOWN"):
        placement.report(ONE, 1)
    assert placement.read()["generation"] == ""


@pytest.mark.parametrize("damage", [("*5", None), ("*5", "a,b"), ("=A", "x")])
def test_a_damaged_table_is_not_handed_out_and_the_keeper_hears_of_it(placement, damage):
    placement.start()
    placement.join(ONE)
    name, state = damage
    if state is None:
        placement.server.hdel(placement.table, name)
    else:
        placement.server.hset(placement.table, name, state)
    if name == "=A":
        assert placement.join(TWO)[0] == "open"
        return
    with pytest.raises(
        redis.ResponseError, match=r"damaged: somebody else wrote to plimsoll:\{test\}:placement:table"
    ):
        placement.join(TWO)
    assert placement.read()["ahead"] == 2
    placement.open(generation="g2", version=2)
    assert placement.join(TWO)[0] == "open"


@pytest.mark.parametrize("part", ["meta", "table", "log", "dispatchers", "busy", "loads", "gone"])
def test_a_key_of_another_type_is_named_and_left_alone(placement, part):
    key = getattr(placement, part)
    placement.server.set(key, "x")
    wanted = "list" if part == "log" else "hash"
    for call in (lambda: placement.join(ONE), placement.claim, placement.status):
        with pytest.raises(redis.ResponseError, match=f"{re.escape(key)} holds a string and not a {wanted}"):
            call()
    assert placement.server.keys() == [key.encode()]
