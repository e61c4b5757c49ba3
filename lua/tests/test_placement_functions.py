"""The function library of placement on a real Redis."""

import itertools
import time

import pytest
import redis

from lua.redis import library
from tests.harness.functions import Placement

ONE, TWO = "lb1/1#a", "lb2/1#b"


def end_lease(placement: Placement) -> None:
    """Of the keeper, as if it had not read for long."""
    placement.server.hset(placement.meta, "keeper_end", "1")


def table_of(entries: list[str]) -> dict[str, str]:
    return dict(zip(entries[::2], entries[1::2], strict=True))


# Who joins, reports and leaves.


def test_without_a_table_nobody_is_let_in(placement):
    word, wait = placement.join(ONE)
    assert word == "wait"
    assert wait > 0
    placement.claim()
    assert placement.join(ONE)[0] == "wait"
    assert not placement.server.exists(placement.dispatchers)


def test_who_joins_gets_the_table_and_what_to_keep_to(placement):
    placement.claim(told_lease=7000, limit=30_000, when_lost="hold")
    placement.open(A17="node3", B=">node1")
    word, generation, version, lease, limit, when_lost, *entries = placement.join(ONE)
    assert (word, generation, version, lease, limit, when_lost) == ("open", "g1", 1, 7000, 30_000, "hold")
    table = table_of(entries)
    assert len(table) == 66
    assert (table["=A17"], table["=B"], table["*0"], table["*63"]) == ("node3", ">node1", "node1", "node2")


def test_a_report_is_answered_with_what_is_missing(placement):
    placement.start()
    placement.join(ONE)
    assert placement.report(ONE, 1) == ["ok", 1]
    assert placement.publish("1 2 *0 >node1") == 2
    assert placement.publish("2 3 *0 node2 =A node1") == 3
    assert placement.report(ONE, 1) == ["ok", 3, "1 2 *0 >node1", "2 3 *0 node2 =A node1"]
    assert placement.report(ONE, 2) == ["ok", 3, "2 3 *0 node2 =A node1"]
    assert placement.report(ONE, 3) == ["ok", 3]
    placement.publish("3 4 =A -")
    for version in range(4, 40):
        placement.publish(f"{version} {version + 1} *1 node{version % 2 + 1}")
    word, generation, version, *entries = placement.report(ONE, 3)
    assert (word, generation, version) == ("table", "g1", 40)
    table = table_of(entries)
    assert table["*0"] == "node2"
    assert "=A" not in table
    assert placement.server.llen(placement.log) == 32


def test_a_long_change_is_read_as_a_table(placement):
    placement.start()
    placement.join(ONE)
    listener = placement.server.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(placement.meta)
    listener.get_message(timeout=1)
    names = [f"={n:0>100}" for n in range(1000)]
    placement.publish("1 2 " + " ".join(f"{name} node1" for name in names))
    placement.publish("2 3 *0  >node1")
    told = []
    deadline = time.monotonic() + 5
    while len(told) < 2 and time.monotonic() < deadline:
        message = listener.get_message(timeout=0.1)
        told += [message["data"].decode()] if message else []
    assert told == ["g1 2 full", "g1 2 3 *0 >node1"]
    assert placement.report(ONE, 1)[0] == "table"
    assert placement.report(ONE, 2) == ["ok", 3, "2 3 *0 >node1"]


def test_who_was_forgotten_or_is_of_another_table_joins_anew(placement):
    placement.start()
    with pytest.raises(redis.ResponseError, match=r"^UNKNOWN plimsoll: dispatcher lb1/1#a has not joined"):
        placement.report(ONE, 1)
    placement.join(ONE)
    with pytest.raises(redis.ResponseError, match=r"^UNKNOWN.*generation g0"):
        placement.report(ONE, 1, generation="g0")
    assert placement.call("forget", ONE) == 1
    assert placement.call("forget", ONE) == 0
    with pytest.raises(redis.ResponseError, match=r"^UNKNOWN"):
        placement.report(ONE, 1)
    with pytest.raises(redis.ResponseError, match="never used twice"):
        placement.join(ONE)
    assert placement.join("lb1/1#a2")[0] == "open"
    assert list(placement.read()["gone"]) == [ONE]


def test_an_id_is_never_used_twice(placement):
    placement.start()
    placement.join(ONE)
    with pytest.raises(redis.ResponseError, match="never used twice"):
        placement.join(ONE)
    assert list(placement.read()["dispatchers"]) == [ONE]


def test_a_successor_of_the_same_name_says_that_the_one_before_is_dead(placement):
    placement.start()
    placement.join(ONE)
    placement.join(TWO)
    placement.report(ONE, 1, busy="*0")
    placement.join("lb1/1#next")
    seen = placement.read()
    assert set(seen["dispatchers"]) == {TWO, "lb1/1#next"}
    assert list(seen["gone"]) == [ONE]
    assert not placement.server.hexists(placement.busy, ONE)


@pytest.mark.parametrize("idle", [0, 1])
def test_who_leaves_idle_leaves_no_doubt(placement, idle):
    placement.start()
    placement.join(ONE)
    assert placement.call("leave", ONE, idle) == 1
    assert placement.call("leave", ONE, idle) == 0
    seen = placement.read()
    assert seen["dispatchers"] == {}
    assert list(seen["gone"]) == ([] if idle else [ONE])


def test_what_is_busy_and_asked_for_is_what_was_told_last(placement):
    placement.start()
    for id_ in (ONE, TWO):
        placement.join(id_)
    placement.report(ONE, 1, busy="*0 =A", loads="*0 10 *0:hot 2.5 =A 1")
    placement.report(TWO, 1, loads="*0 1 *0:hot 0.5")
    placement.report(ONE, 1, busy="=A", loads="=A 2")
    seen = placement.read(loads=1)
    assert {id_: known["busy"] for id_, known in seen["dispatchers"].items()} == {ONE: "=A", TWO: ""}
    assert seen["loads"] == {"*0": 11, "*0:hot": 3, "=A": 3}
    assert placement.read(loads=1)["loads"] == {}
    placement.report(ONE, 1, loads="*0 0.25")
    assert placement.read()["loads"] == {}
    assert placement.read(loads=1)["loads"] == {"*0": 0.25}


# The keeper.


def test_there_is_one_keeper_and_the_one_before_is_refused(placement):
    assert placement.claim("one")[:2] == ("keeper", 1)
    word, keeper, left = placement.claim("two")
    assert (word, keeper) == ("other", "one")
    assert 0 < left <= 60_000
    placement.open(agent="one")
    placement.join(ONE)
    end_lease(placement)
    assert placement.claim("two")[:2] == ("keeper", 2)
    for call in (
        lambda: placement.call("publish", "one", 1, "g1", "1 2 *0 >node1"),
        lambda: placement.call("publish", "one", 2, "g1", "1 2 *0 >node1"),
        lambda: placement.call("read", "one", 1, 60_000, 60_000, 1, "", 0),
        lambda: placement.call("heed", "one", 1),
        lambda: placement.call("settle", "one", 1, "s1"),
        lambda: placement.call(
            "open", "one", 1, "g2", 2, 0, "", " ".join(f"*{rest} n" for rest in range(64))
        ),
    ):
        with pytest.raises(redis.ResponseError, match=r"^FENCED.*the keeper is two with epoch 2"):
            call()
    assert placement.report(ONE, 1) == ["ok", 1]
    assert placement.publish("1 2 *0 >node1", agent="two") == 2


def test_a_keeper_that_claims_again_is_another(placement):
    placement.claim()
    placement.open()
    assert placement.claim()[:2] == ("keeper", 2)
    with pytest.raises(redis.ResponseError, match=r"^FENCED"):
        placement.call("publish", "keeper", 1, "g1", "1 2 *0 >node1")


def test_a_keeper_that_resigns_is_followed_at_once(placement):
    placement.claim("one")
    assert placement.call("resign", "two", 1) == 0
    assert placement.call("resign", "one", 1) == 1
    assert placement.claim("two")[:2] == ("keeper", 2)


def test_a_change_goes_on_from_the_table_or_is_refused(placement):
    placement.start()
    for delta in ("2 3 *0 node2", "7 8 *0 node2"):
        with pytest.raises(redis.ResponseError, match=r"^BEHIND.*g1 1"):
            placement.publish(delta)
    with pytest.raises(redis.ResponseError, match=r"^BEHIND"):
        placement.publish("1 2 *0 node2", generation="g2")
    assert placement.read()["version"] == 1


def test_a_version_that_is_not_says_that_redis_lost_some(placement):
    placement.start()
    placement.join(ONE)
    # It has published nothing yet, and does not know what was published before.
    placement.claim()
    with pytest.raises(redis.ResponseError, match=r"^UNKNOWN.*version 5 is not known here"):
        placement.report(ONE, 5)
    seen = placement.read()
    assert (seen["ahead"], list(seen["gone"])) == (5, [ONE])
    # Until the keeper has looked nobody is let in and nothing moves.
    assert placement.join(TWO)[0] == "wait"
    with pytest.raises(redis.ResponseError, match=r"^BEHIND.*somebody knows version 5"):
        placement.publish("1 2 *0 node2")
    placement.call("heed", "keeper", placement.epoch)
    assert placement.join(TWO)[0] == "open"
    assert placement.call("follow", "g1", 9, 0)[0] == "ok"
    assert placement.read()["ahead"] == 9
    placement.open(generation="g2", version=10)
    assert placement.read()["ahead"] == 0


@pytest.mark.parametrize("lost", [3, 16_384 * 2 + 1, 16_384 * 9])
def test_who_acted_on_a_lost_version_is_found_whatever_its_number(placement, lost):
    placement.start()
    placement.join(ONE)
    placement.join(TWO)
    placement.publish("1 2 *0 >node1")
    # What came after that was lost; the next keeper's term has later numbers.
    placement.claim()
    first = 16_384 * 4
    placement.publish(f"2 {first} *1 >node2")
    with pytest.raises(redis.ResponseError, match=rf"^UNKNOWN.*version {lost} is not known here"):
        placement.report(ONE, lost)
    # Its requests are in doubt; those who were behind are told the rest.
    seen = placement.read()
    assert (seen["ahead"], list(seen["gone"]), list(seen["dispatchers"])) == (lost, [ONE], [TWO])
    assert placement.report(TWO, 1) == ["ok", first, "1 2 *0 >node1", f"2 {first} *1 >node2"]
    # An agent is given the table, and nothing waits, as this keeper knows that there is no later one.
    assert placement.call("follow", "g1", lost, 0)[:1] == ["table"]
    assert placement.publish(f"{first} {first + 1} *1 node1") == first + 1
    assert placement.join("lb3/1#c")[0] == "open"


def test_it_is_known_which_versions_there_were_in_64_terms(placement):
    placement.start()
    for id_ in (ONE, TWO):
        placement.join(id_)
    term = 16_384
    versions = [1, *(term * n for n in range(1, 66))]
    for before, after in itertools.pairwise(versions):
        placement.publish(f"{before} {after} *0 node{after // term % 2 + 1}")
    assert placement.report(ONE, term)[0] == "table"
    with pytest.raises(redis.ResponseError, match=r"^UNKNOWN"):
        placement.report(TWO, 1)


@pytest.mark.parametrize("claimed", ["1e15", str(2**53 - 1), str(2**41)])
def test_one_report_of_a_version_that_cannot_be_stops_nothing(placement, claimed):
    placement.start()
    placement.join(ONE)
    placement.claim()
    for call in (lambda: placement.report(ONE, claimed), lambda: placement.report(ONE, claimed)):
        with pytest.raises(redis.ResponseError, match=r"^UNKNOWN"):
            call()
    assert placement.call("follow", "g1", claimed, 0)[0] == "ok"
    assert placement.read()["ahead"] == 0
    assert placement.join(TWO)[0] == "open"
    assert placement.publish("1 2 *0 node2") == 2


def test_a_table_is_given_back_and_nobody_is_let_in_before_its_time(placement):
    placement.start()
    placement.join(ONE)
    placement.claim()
    placement.open(generation="g2", version=5, wait=60_000, ids=TWO)
    word, wait = placement.join("lb3/1#c")
    assert word == "wait"
    assert 0 < wait <= 60_000
    with pytest.raises(redis.ResponseError, match=r"^UNKNOWN.*generation g1"):
        placement.report(ONE, 1)
    # Both may act on another table for as long as nobody says otherwise.
    seen = placement.read()
    assert {id_: known["version"] for id_, known in seen["dispatchers"].items()} == {ONE: 0, TWO: 0}
    assert 0 < seen["open_in"] <= 60_000
    placement.read(passed=59_999)
    assert placement.join("lb3/1#c") == ["wait", 1]
    placement.read(passed=1)
    assert placement.join("lb3/1#c")[1:3] == ["g2", 5]
    with pytest.raises(redis.ResponseError, match="g2 has been"):
        placement.open(generation="g2")


def test_those_that_hold_are_taken_for_gone_and_those_that_serve_are_not(placement):
    placement.start(when_lost="serve")
    placement.join("serves/1#a")
    placement.claim(when_lost="hold")
    placement.join("holds/1#a")
    placement.read()
    assert set(placement.read(passed=11_000)["dispatchers"]) == {"serves/1#a", "holds/1#a"}
    seen = placement.read(passed=1)
    assert set(seen["dispatchers"]) == {"serves/1#a"}
    assert list(seen["gone"]) == ["holds/1#a"]
    with pytest.raises(redis.ResponseError, match=r"^UNKNOWN"):
        placement.report("holds/1#a", 1)


def test_the_doubt_of_who_has_gone_is_over_after_a_time(placement):
    placement.start()
    placement.join(ONE)
    placement.call("forget", ONE)
    assert placement.read(passed=50_000)["gone"] == {ONE: 0}
    assert placement.read(passed=60_000)["gone"] == {ONE: 60_000}
    assert placement.read(passed=1)["gone"] == {}
    assert not placement.server.exists(placement.gone)


def test_a_new_keeper_starts_with_loads_of_its_own(placement):
    placement.start()
    placement.join(ONE)
    placement.report(ONE, 1, loads="*0 1e9")
    placement.claim()
    assert placement.read(loads=1)["loads"] == {}


def test_an_agent_follows_the_table_and_who_is_there(placement):
    assert placement.call("follow", "-", 0, 0) == ["none"]
    placement.start()
    placement.join(ONE)
    word, members, ids, generation, version, *entries = placement.call("follow", "-", 0, 0)
    assert (word, ids, generation, version, len(entries)) == ("table", ONE, "g1", 1, 128)
    assert placement.call("follow", "g1", 1, members) == ["ok", members, "", 1]
    placement.publish("1 2 *0 node2")
    placement.join(TWO)
    word, later, ids, version, *deltas = placement.call("follow", "g1", 1, members)
    assert (word, version, deltas) == ("ok", 2, ["1 2 *0 node2"])
    assert later > members
    assert set(ids.split()) == {ONE, TWO}


def test_wishes_are_told_once(placement):
    placement.start()
    assert placement.call("wish", "=A17", "node2") == 1
    assert placement.call("wish", "*3", "node1") == 2
    assert placement.read()["wishes"] == "=A17 node2 *3 node1"
    assert placement.read()["wishes"] == ""
    for n in range(64):
        placement.call("wish", f"={n}", "node1")
    with pytest.raises(redis.ResponseError, match="64 moves wait"):
        placement.call("wish", "=more", "node1")


def test_people_are_told_how_it_is(placement):
    assert placement.status()[:4] == ["", 0, 0, ""]
    placement.start()
    placement.join(ONE)
    placement.join(TWO)
    placement.call("forget", TWO)
    placement.read(plan="even")
    generation, version, open_in, keeper, epoch, left, *rest = placement.status()
    assert (generation, version, open_in, keeper, epoch) == ("g1", 1, 0, "keeper", 1)
    assert 0 < left <= 60_000
    assert rest[:6] == [10_000, 60_000, "serve", "even", 1, 1]
    assert (rest[6], rest[8], rest[9]) == (ONE, 1, TWO)


# Time.


def test_forward_steps_of_redis_clock_silence_nobody_and_end_nothing(placement_of_set_clock):
    placement, step = placement_of_set_clock
    placement.start(when_lost="hold")
    for id_ in (ONE, TWO):
        placement.join(id_)
    placement.call("forget", TWO)
    placement.read()
    before = placement.server.time()[0]
    for _ in range(30):
        step(3)
        assert placement.call("follow", "-", 0, 0)[0] == "table"
    assert placement.server.time()[0] >= before + 90
    seen = placement.read(passed=100)
    assert {id_: known["age"] for id_, known in seen["dispatchers"].items()} == {ONE: 100}
    assert seen["gone"] == {TWO: 100}
    placement.open(generation="g2", version=2, wait=60_000)
    for by in (3, 3600, -7200):
        step(by)
        assert placement.join("lb3/1#c") == ["wait", 60_000]
    assert placement.claim("other")[:2] == ("other", "keeper")


def test_a_term_begins_every_silence_anew(placement):
    placement.start(when_lost="hold")
    placement.join(ONE)
    placement.read()
    placement.read(passed=11_000)
    placement.claim(server="s1")
    assert placement.read(passed=5000)["dispatchers"][ONE]["age"] == 0


def test_another_server_waits_for_who_may_be_left_with_the_former(placement):
    placement.start(when_lost="hold", margin=6000)
    placement.call("settle", "keeper", placement.epoch, "s1")
    placement.join(ONE)
    assert placement.claim(when_lost="hold", margin=6000) == ("keeper", 2, 1)
    assert list(placement.read()["dispatchers"]) == [ONE]
    # A replica that took over, and once more before all was settled there.
    for epoch in (3, 4):
        assert placement.claim(when_lost="hold", margin=6000, server="s2") == ("keeper", epoch, 0)
    former = "former-server#s2"
    assert placement.read()["dispatchers"][former] == {"age": 0, "version": 0, "joined": 0, "busy": ""}
    placement.report(ONE, 1)
    assert set(placement.read(passed=16_000)["dispatchers"]) == {ONE, former}
    placement.report(ONE, 1)
    seen = placement.read(passed=1)
    assert (list(seen["dispatchers"]), list(seen["gone"])) == ([ONE], [former])
    placement.call("settle", "keeper", placement.epoch, "s2")
    assert placement.claim(when_lost="hold", server="s2") == ("keeper", 5, 1)


def test_all_seven_keys_are_needed(placement):
    with pytest.raises(redis.ResponseError, match="join needs 7 keys"):
        placement.server.fcall("plimsoll_placement_join", 6, *placement.keys[:6], ONE)


def test_the_library_tells_its_version(placement):
    told = placement.server.fcall_ro("plimsoll_placement_version", 0)
    assert told == library.version("plimsoll_placement")
