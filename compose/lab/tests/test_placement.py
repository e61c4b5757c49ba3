"""The best fixed placement, its configuration, and the table's records."""

import gzip
import itertools
import json
import random
import tomllib
import urllib.request

import pytest

from compose.lab import machine, placement, render, run, stack, topology
from compose.lab.collector import Collector
from compose.lab.errors import LabError
from compose.lab.placement import Sets, Watch, best
from compose.lab.processes import Processes, free_ports, wait_until
from compose.lab.scenarios.base import Comparison
from compose.lab.scenarios.burst import Burst
from compose.lab.scenarios.placement import Placement, PlacementEven
from compose.lab.tests.ports import PORTS


def fullest(loads: dict[str, float], capacities: dict[str, float], placed: dict[str, str]) -> float:
    full = dict.fromkeys(capacities, 0.0)
    for name, node in placed.items():
        full[node] += loads[name]
    return max(full[node] / capacities[node] for node in capacities)


def test_shares_fall_and_sum_to_one():
    shares = list(Sets().shares().values())
    assert sum(shares) == pytest.approx(1)
    assert shares == sorted(shares, reverse=True)
    # A set that is more than a node's share could not be placed evenly.
    assert shares[0] < 1 / 5
    assert Sets(2, 1.0).shares() == pytest.approx({"G00": 2 / 3, "G01": 1 / 3})
    assert set(Sets(4, 0.0).shares().values()) == {0.25}


def test_evenly_placed_sets_are_as_many_at_every_node():
    shares = Sets(evenly=True).shares()
    assert set(shares.values()) == {1 / placement.RESTS}
    rests = [placement.rest_of(name) for name in shares]
    assert sorted(rests) == list(range(placement.RESTS))
    # As the agents and proxies have it.
    vectors = json.loads((topology.ROOT / "agent" / "core" / "vectors" / "placement.json").read_text())
    steps = [step for part in vectors["cases"] for step in part["steps"] if "rest" in step]
    assert steps
    for step in steps:
        assert placement.rest_of(step["name"]) == step["rest"]


def test_the_scenarios_best_placement_is_even():
    capacities = {f"node{n}": 4000.0 for n in range(1, 6)}
    shares = Sets().shares()
    placed = best(shares, capacities)
    assert placed.keys() == shares.keys()
    assert fullest(shares, capacities, placed) == pytest.approx(0.2 / 4000, rel=0.005)


def test_never_far_from_every_placement_there_is():
    drawn = random.Random(5)
    for _ in range(20):
        loads = {f"G{n}": drawn.uniform(1, 10) for n in range(7)}
        capacities = {"a": 1.0, "b": drawn.uniform(0.5, 2), "c": 1.0}
        every = itertools.product(capacities, repeat=len(loads))
        least = min(fullest(loads, capacities, dict(zip(loads, nodes, strict=True))) for nodes in every)
        assert fullest(loads, capacities, best(loads, capacities)) <= 1.06 * least


def test_a_slower_node_gets_less():
    loads = {f"G{n}": 1.0 for n in range(12)}
    placed = list(best(loads, {"fast": 3.0, "slow": 1.0}).values())
    assert (placed.count("fast"), placed.count("slow")) == (9, 3)


@pytest.mark.parametrize("capacities", [{}, {"a": 1.0, "b": 0.0}])
def test_nodes_without_capacity_are_refused(capacities):
    with pytest.raises(LabError, match="capacity above 0"):
        best({"G00": 1.0}, capacities)


def options(scenario: Comparison) -> run.Options:
    found = scenario.plan(quick=True)
    return run.Options(found, topology.load(scenario.name), 1, True, 10, 1, run.RESULTS)


def test_agent_configuration_has_the_pinned_sets(tmp_path):
    policies = {
        policy.name: policy for policy in render.policies(["placement-fixed", "placement-none", "rr"])
    }
    told = run.agents_placement(policies["placement-fixed"], options(Placement()))
    assert told["cluster"] == "stocks"
    assert told["pins"].keys() == {f"={name}" for name in Sets().shares()}
    assert set(told["pins"].values()) == {f"node{n}" for n in range(1, 6)}
    node = topology.load("placement").slaves[0]
    text = render.agent(policies["placement-fixed"], node, 0, PORTS, tmp_path, told)
    assert tomllib.loads(text)["placement"] == told
    assert run.agents_placement(policies["placement-none"], options(Placement()))["moves"] is False
    assert run.agents_placement(policies["rr"], options(Placement())) is None
    with pytest.raises(LabError, match="placement-fixed: only scenario placement"):
        run.agents_placement(policies["placement-fixed"], options(Burst()))


def test_nodes_that_take_writes_watch_each_other(tmp_path):
    policy = render.policies(["rr"])[0]
    planned = stack.plan(policy, topology.load("placement", 2), 1, {}, tmp_path)
    for name in ("master", "node1", "node2"):
        command = planned.programs[name]
        assert command[command.index("--witness-directory") + 1] == str(tmp_path / "claims")
    planned = stack.plan(policy, topology.load("burst", 2), 1, {}, tmp_path)
    assert "--witness-directory" not in planned.programs["node1"]


def test_generator_gets_the_object_sets():
    assert run.written(None) == {}
    told = run.written(Sets(2, 0.0))
    assert told == {"TRANSACTION_SHARE": "1", "SETS": "G00 0.5,G01 0.5"}


def test_only_that_redis_is_away_is_an_event():
    assert PlacementEven().plan(quick=True).work.sets.evenly
    found = Placement().plan(quick=True)
    assert not found.has_event(True)
    assert found.events(True) == {}
    away = Placement().plan(quick=True, redis_away=5)
    assert away.has_event(True) and not away.has_event(False)
    assert away.event_text(True) == "Redis is away for 5 s"
    assert set(away.events(True)) == {"Redis away", "Redis back"}


def test_writes_of_object_sets_have_records_of_their_own(tmp_path):
    path = tmp_path / "writes.csv.gz"
    with Collector(tmp_path / "requests.csv.gz", 1.0, {"127.0.0.1:8102": "node2"}, writes=path) as collector:
        body = (
            "1.0\n0.5,0.2,200,transaction,ok,80,127.0.0.1:8102,,G00\n"
            "0.6,0.1,503,transaction,refused,80,,,G01\n0.7,0.1,200,query,ok,80,node1,0.5"
        )
        request = urllib.request.Request(f"{collector.url}/records", body.encode(), method="POST")
        urllib.request.urlopen(request, timeout=5).close()
        assert collector.counts == {"ok": 2, "refused": 1}
        assert (collector.unit, collector.timely(0, 1)) == ("transactions", 1)
    with gzip.open(path, "rt") as file:
        assert file.read().splitlines() == [
            "t_s,delay_s,outcome,node,set",
            "0.5,0.2,ok,node2,G00",
            "0.6,0.1,refused,,G01",
        ]
    with gzip.open(tmp_path / "requests.csv.gz", "rt") as file:
        assert {line.count(",") for line in file.read().splitlines()} == {7}


def test_where_each_set_is_is_written(tmp_path):
    port = free_ports(1)[0]
    command = [
        machine.redis(),
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
        str(tmp_path),
    ]
    path = tmp_path / "placement.csv"
    with Processes({"redis": command}, tmp_path, tmp_path) as processes:
        redis = placement.client(port)
        wait_until("redis", lambda: answers(redis), 10, processes.check)

        def write(version: int, **states: str) -> None:
            with redis.pipeline(transaction=True) as both:
                both.hset(placement.KEY, "version", version)
                both.delete(f"{placement.KEY}:table")
                both.hset(f"{placement.KEY}:table", mapping=states)
                both.execute()

        shared = f"*{placement.rest_of('G00')}"
        rests = {f"*{rest}": "node1" for rest in range(placement.RESTS)}
        assert not placement.joined(port, 1)
        write(1, **rests)
        assert not placement.joined(port, 1)
        redis.hset(f"{placement.KEY}:dispatchers", "lb1/1#x", "1 1 1 1 serve")
        assert placement.joined(port, 1) and not placement.joined(port, 2)
        with Watch(path, port, ["G00", "G01"], lambda: 3.0):

            def seen(line: str) -> None:
                wait_until(line, lambda: line in path.read_text().splitlines(), 10, processes.check)

            # The entry that it shares leaves, so that it gets one of its own.
            write(2, **rests | {shared: ">node1"})
            seen("3.0,2,G00,>node1")
            write(3, **rests | {"=G00": "node2", "=other": "node3"})
            seen("3.0,3,G00,node2")
            write(4, **rests)
            seen("3.0,4,G00,node1")
    assert path.read_text().splitlines() == [
        "t_s,version,set,state",
        *("3.0,1,G00,node1", "3.0,1,G01,node1"),
        *("3.0,2,G00,>node1", "3.0,3,G00,node2", "3.0,4,G00,node1"),
    ]


def answers(redis) -> bool:
    try:
        return redis.ping()
    except placement.redis.RedisError:
        return False


def test_without_redis_nothing_has_joined():
    assert not placement.joined(free_ports(1)[0], 1)
