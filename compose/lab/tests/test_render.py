"""Configurations for the lab come whole from the project's own files."""

import dataclasses
import re
import subprocess
import tomllib

import pytest

from compose.lab import machine, render, stack, swept, topology
from compose.lab.errors import LabError
from compose.lab.tests.ports import PORTS

POLICIES = [
    *("rr", "leastconn", "random2", "static-maxconn", "prop"),
    *("fc-prop", "fc-prop-mean", "fc-hash", "lua-fc-hash", "lua-job-informed-on-access", "placement"),
]


@pytest.mark.parametrize("name", POLICIES)
def test_rendered_example_is_accepted_without_a_warning(name, tmp_path):
    policy = render.policies([name])[0]
    limit = 77 if policy.sweep else None
    text = render.haproxy(policy.example.read_text(), PORTS, tmp_path / "s.sock", limit)
    (tmp_path / "s.lua").write_text(render.lua(policy, PORTS, "lb1"))
    config = tmp_path / "haproxy.cfg"
    config.write_text(text)
    done = subprocess.run(
        [machine.haproxy(), "-c", "-f", config], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr + done.stdout
    servers = re.findall(r"server (node\d+) 127\.0\.0\.1:(\d+)", text)
    expected = [(f"node{n + 1}", str(20101 + n)) for n in range(7)]
    # With writes at the nodes, in both backends.
    assert servers == expected * (2 if policy.placement else 1)
    assert re.search(r"127\.0\.0\.1:8\d\d\d\b|agent-port 9\d", text) is None
    assert ("agent-check" in text) == (policy.service is not None)
    if limit:
        assert "maxconn 77" in text


@pytest.mark.parametrize("name", POLICIES)
def test_every_other_line_of_the_example_is_kept(name, tmp_path):
    policy = render.policies([name])[0]
    original = policy.example.read_text()
    text = render.haproxy(original, PORTS, tmp_path / "s.sock")
    numbers = re.compile(r"\d{4,5}|/\S+\.sock|/\S+/(?=lua/)|/\S+/\w+\.lua")

    def others(config: str) -> list[str]:
        return [
            numbers.sub("N", line) for line in config.splitlines() if not re.match(r"\s+server node", line)
        ]

    assert others(text) == others(original)


def test_agent_configuration_names_its_own_node(tmp_path):
    policy = render.policies(["fc-prop"])[0]
    node = topology.load("burst").slaves[2]
    config = tomllib.loads(render.agent(policy, node, 2, PORTS, tmp_path))
    service = config["service"][0]
    assert service["identities"] == ["queries/node3"]
    assert service["source"]["url"] == "http://127.0.0.1:20103/metrics"
    assert config["agent_check"]["listen"] == "127.0.0.1:20203"
    assert service["sla"] == {"delay": "1s", "objective": "p95"}
    assert service["controller"]["kind"] == "pi"


def test_agent_with_updates_gets_their_address_and_limits(tmp_path):
    policy = render.policies(["fc-prop-updates"])[0].promising(2.0)
    node = topology.load("updates").slaves[0]
    service = tomllib.loads(render.agent(policy, node, 0, PORTS, tmp_path))["service"][0]
    assert service["sla"]["delay"] == "2s"
    assert service["updates"] == {
        "url": "http://127.0.0.1:20101/accesses",
        "update_cost": 1.875,
        "longest": "5s",
    }
    assert stack.feed(policy, 20301) == ["--feed-periods", "http://127.0.0.1:20301/v1/updates"]
    assert stack.feed(render.policies(["fc-prop"])[0], 20301) == []


def test_merging_leaves_its_inputs_alone():
    base, over = {"a": {"b": 1, "c": 2}}, {"a": {"c": 3}, "d": 4}
    assert render.merged(base, over) == {"a": {"b": 1, "c": 3}, "d": 4}
    assert base == {"a": {"b": 1, "c": 2}}


def test_toml_round_trips():
    table = {
        "s": 'a "quoted" word',
        "n": 1,
        "x": 0.5,
        "b": True,
        "l": ["a", "b"],
        "t": {"k": "v", "u": {"w": 2}, "=x y": {"*0": "z"}},
    }
    assert tomllib.loads(render.toml(table)) == table


def test_a_scenario_without_a_sweep_says_how_to_make_one(tmp_path):
    policy = render.policies(["static-maxconn"])[0]
    with pytest.raises(LabError, match='make sweep SCENARIO=burst POLICIES="static-maxconn"'):
        swept.best(policy, "burst", tmp_path / "none.json")
    swept.save("static-maxconn", "mix", {"best": {"maxconn": 3}}, tmp_path / "some.json")
    with pytest.raises(LabError, match="make sweep SCENARIO=burst"):
        swept.best(policy, "burst", tmp_path / "some.json")
    assert swept.best(policy, "mix", tmp_path / "some.json") == {"maxconn": 3}
    assert swept.best(render.policies(["rr"])[0], "burst", tmp_path / "none.json") == {}


def test_damaged_sweeps_are_named(tmp_path):
    path = tmp_path / "swept.json"
    path.write_text("{")
    with pytest.raises(LabError, match=r"swept\.json: Expecting"):
        swept.load(path)


def test_an_example_without_node1_is_refused(tmp_path):
    with pytest.raises(LabError, match="server node1"):
        render.haproxy("backend queries\n", PORTS, tmp_path / "s.sock")


def test_write_timeout_is_the_agents_request_limit(tmp_path):
    example = render.policies(["placement"])[0].example.read_text()
    text = render.haproxy(example, PORTS, tmp_path / "s.sock", request_limit="5s")
    changed = [line.strip() for line in text.splitlines() if line.strip().startswith("timeout server")]
    # Those of the queries, then those of the transactions.
    assert changed == ["timeout server 60s", "timeout server 5s"]


def test_a_policys_settings_take_the_place_of_the_lua_examples_or_join_them():
    news = {"update": "continuous", "phase": 2.5}
    policy = render.policies(["lua-fc-hash"])[0]
    policy = dataclasses.replace(policy, lua={"policy": "job_informed", "news": news})
    text = render.lua(policy, PORTS, "lb1")
    assert text.count("policy = ") == 1
    assert '  policy = "job_informed",\n' in text
    assert '  news = { update = "continuous", phase = 2.5 },\n' in text
    assert '  proxy = "lb1",\n' in text
    assert 'cluster = "stocks"' in text


def test_a_scenario_may_have_policies_of_its_own(tmp_path):
    path = tmp_path / "policies.toml"
    path.write_text('[defaults]\nhaproxy = ["rr"]\n[defaults.scenario.phases]\nhaproxy = ["leastconn"]\n')
    assert render.default_names("haproxy", "burst", path) == ["rr"]
    assert render.default_names("haproxy", "phases", path) == ["leastconn"]
    with pytest.raises(LabError, match="scenario phases has policies for haproxy only"):
        render.default_names("envoy", "phases", path)


def test_every_default_policy_is_there():
    defaults = render.table()["defaults"]
    for names in [
        defaults["haproxy"],
        defaults["envoy"],
        *(n for s in defaults["scenario"].values() for n in s.values()),
    ]:
        assert [policy.name for policy in render.policies(names)] == names
