"""Topology and scenarios: what the files say, and clear words where they are wrong."""

import pytest

from compose.lab import topology
from compose.lab.errors import LabError
from compose.lab.scenario import SCENARIOS, scenario


def test_the_slow_node_is_slow_in_its_scenario_only():
    assert "slowdown" not in topology.load("burst").slaves[0].flags
    nodes = topology.load("heterogeneous").slaves
    assert nodes[0].capacity(1.0) == pytest.approx(nodes[1].capacity(1.0) / 5)


def test_more_slaves_than_the_file_has_are_copies():
    nodes = topology.load("burst", 8).slaves
    assert [node.name for node in nodes] == [f"node{n}" for n in range(1, 9)]
    assert len(topology.load("burst", 2).slaves) == 2


def test_capacity_follows_the_flags():
    flags = {"workers": 4, "process-latency": "1ms", "read-latency": "500us", "slowdown": 2.0}
    node = topology.Node("n", "slave", flags)
    assert node.capacity(1.0) == pytest.approx(2000)
    assert node.capacity(0.0) == pytest.approx(4 / 1.5e-3 / 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[node]]\nname = "a"\nrole = "boss"', "node 1.*boss"),
        ('[[node]]\nname = "a"', "role.*missing"),
        ('[[node]]\nname = "a"\nrole = "master"', "at least one of role slave"),
        ("[[node", "t.toml"),
    ],
)
def test_a_wrong_topology_is_named(tmp_path, text, message):
    path = tmp_path / "t.toml"
    path.write_text(text)
    with pytest.raises(LabError, match=message):
        topology.load("burst", path=path)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", SCENARIOS)
def test_events_lie_within_the_run(name, quick):
    chosen = scenario(name, quick)
    assert 0 < chosen.warmup < chosen.event < chosen.duration
    assert chosen.duration + chosen.drain <= (45 if quick else 130)
    assert (chosen.removal is not None) == (name == "removal")
    assert (chosen.long_share > 0) == (name == "mix")


def test_a_run_that_ends_before_its_event_is_refused():
    with pytest.raises(LabError, match="--duration 3"):
        scenario("burst", True, duration=3)
