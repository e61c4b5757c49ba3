"""Wrong arguments and files end with a message that names them."""

import subprocess
import sys
from pathlib import Path

import pytest

from compose.lab import topology
from compose.lab.errors import LabError
from compose.lab.scenarios import registry
from compose.lab.scenarios.base import Comparison


def lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "compose.lab", *arguments],
        cwd=topology.ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--scenario", "flood"], ["--scenario flood", "burst"]),
        (["run", "--policies", "rr fastest"], ["--policies fastest", "fc-prop"]),
        (["run", "--policies", ""], ["--policies"]),
        (["run", "--seed", "-1"], ["--seed"]),
        (["run", "--clients", "0"], ["--clients", "1..18000"]),
        (["run", "--nodes", "51"], ["--nodes", "1..50"]),
        (["run", "--scenario", "removal", "--nodes", "1"], ["--nodes 1", "at least 2"]),
        (["run", "--scenario", "rejoin", "--nodes", "1"], ["--nodes 1", "rejoin", "at least 2"]),
        (["run", "--scenario", "rejoin", "--duration", "70"], ["--duration 70", "at least 71 s"]),
        (["run", "--scenario", "balancer-failover", "--proxies", "1"], ["--proxies 1", "at least 2"]),
        (["run", "--scenario", "redis-failover", "--policies", "rr"], ["--policies rr", "without Redis"]),
        (["run", "--scenario", "master-failover"], ["--database sqlite", "master-failover", "postgres"]),
        (
            ["run", "--scenario", "master-failover", "--database", "postgres", "--nodes", "5"],
            ["--nodes", "its own"],
        ),
        (
            ["run", "--scenario", "master-failover", "--database", "postgres", "--proxy", "nginx"],
            ["--proxy nginx", "haproxy, envoy"],
        ),
        (["sweep", "--scenario", "master-failover"], ["master-failover", "nothing to sweep"]),
        (["run", "--scenario", "mix", "--mix", "7:1"], ["--mix 7:1", "25:1"]),
        (["run", "--scenario", "updates", "--database", "postgres"], ["--database postgres", "own prices"]),
        (["run", "--scenario", "updates", "--duration", "60"], ["--duration 60", "at least 91 s"]),
        (["run", "--duration", "3"], ["--duration 3"]),
        (["run", "--redis-away", "0"], ["--redis-away", "1..3600"]),
        (["run", "--redis-away", "81"], ["--redis-away 81", "at most 80 s"]),
        (["run", "--redis-away", "60", "--policies", "rr fc-prop"], ["--redis-away", "rr, fc-prop"]),
        (["run", "--observe", "80"], ["--observe", "1024..65535"]),
        (["run", "--bin-dir", "/nonexistent"], ["/nonexistent/stocks", "make build"]),
        (["run", "--database", "mysql"], ["--database", "sqlite", "postgres"]),
        (
            ["run", "--scenario", "placement", "--database", "postgres"],
            ["--database postgres", "SQLite"],
        ),
        (["run", "--policies", "placement-fixed"], ["--policies placement-fixed", "scenario placement"]),
        (["run", "--proxy", "nginx"], ["--proxy nginx", "haproxy, envoy"]),
        (["sweep", "--limits", "48 many"], ["--limits", "positive"]),
        (["sweep", "--policies", "rr"], ["--policies rr", "no settings to sweep"]),
        (
            ["sweep", "--policies", "envoy-adaptive-concurrency-swept", "--limits", "3"],
            ["--limits", "several settings", "sample_aggregate_percentile"],
        ),
    ],
)
def test_bad_arguments(arguments: list[str], words: list[str]) -> None:
    done = lab(*arguments)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--policies", "rr"], "1 run of 110 s, about 5 s to start and stop: about 2 min"),
        (
            ["run", "--scenario", "rejoin", "--quick", "--policies", "rr fc-prop fc-hash"],
            "3 runs of 38 s, about 5 s each to start and stop: about 3 min",
        ),
        # Every combination is a run.
        (
            ["sweep", "--policies", "static-maxconn envoy-adaptive-concurrency-swept", "--duration", "50"],
            "15 runs of 50 s, about 5 s each to start and stop: about 14 min",
        ),
    ],
)
def test_how_long_it_will_take_is_said_first(tmp_path: Path, arguments: list[str], words: str) -> None:
    # Nothing can start.
    done = lab(*arguments, "--bin-dir", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == words


def test_a_scenario_overrides_one_nodes_flags() -> None:
    slaves = topology.load("heterogeneous").slaves
    assert [node.flags.get("slowdown", 1.0) for node in slaves] == [5.0, 1.0, 1.0, 1.0, 1.0]
    assert slaves[1].capacity(1.0) == pytest.approx(10_000)
    assert slaves[0].capacity(1.0) == pytest.approx(2_000)


def test_a_scenario_overrides_all_nodes_flags_and_then_one_nodes() -> None:
    nodes = topology.load("updates")
    assert {node.flags["symbols"] for node in nodes.nodes} == {1000}
    assert nodes.master.flags["update-latency"] == "0s"
    slave = nodes.slaves[0]
    # 2,000 updates a second keep three of six workers busy.
    assert slave.capacity(1.0) == pytest.approx(7_500)
    assert slave.capacity(1.0, 2000) == pytest.approx(3_750)
    assert slave.capacity(1.0, 1e9) == 0
    assert slave.update_cost() == pytest.approx(1.875)


def test_a_scenario_overrides_the_flags_of_a_role() -> None:
    found = topology.load("placement", 6)
    assert "--primary" not in found.master.arguments()
    for node in found.slaves:
        words = node.arguments()
        # A flag without a value.
        assert words[words.index("--primary") + 1].startswith("--")
        assert node.flags["slowdown"] == 2.0


def test_more_nodes_than_the_file_has() -> None:
    slaves = topology.load("burst", 12).slaves
    assert [node.name for node in slaves] == [f"node{n}" for n in range(1, 13)]
    assert slaves[11].flags == slaves[4].flags


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[node]]\nname = "a"\nrole = "king"\n', "king"),
        ('[[node]]\nname = "a"\n', "role"),
        ('[[node]]\nname = "a"\nrole = "slave"\n', "one node of role master"),
        ("nodes = [", "topology.toml"),
    ],
)
def test_a_wrong_topology(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "topology.toml"
    path.write_text(text)
    with pytest.raises(LabError, match=words):
        topology.load("burst", path=path)


def test_quick_is_short_and_keeps_the_order_of_things() -> None:
    for scenario in (one for one in registry.SCENARIOS if isinstance(one, Comparison)):
        for quick in (True, False):
            made = scenario.plan(quick)
            times = made.times
            assert times.warmup < times.burst <= times.event < times.duration
            longest = (75, 135) if times.calm else (45, 120)
            assert times.duration + made.drain <= longest[not quick]
            assert (made.fault is None) == (times.kill is None)
            if times.back:
                assert times.event < times.back < times.duration
            if times.calm:
                # Long enough to see what comes back within 30 s.
                assert times.event < times.calm <= times.duration - 30
