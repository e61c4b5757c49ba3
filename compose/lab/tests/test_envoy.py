"""Envoy's configurations come whole from the project's own files; Envoy's view ends up in the records."""

import dataclasses
import re
import subprocess
import tomllib

import pytest
import yaml

from compose.lab import envoy, machine, render, stack
from compose.lab.errors import LabError
from compose.lab.processes import TIED, free_ports
from compose.lab.tests.ports import PORTS
from compose.lab.topology import load
from tests.harness import programs
from tests.harness.eventually import eventually

POLICIES = [
    policy for policy in render.policies(render.default_names("envoy", "burst")) if policy.proxy == "envoy"
]
EXAMPLE = """\
node: { id: a }
static_resources:
  listeners:
    - name: stocks
      routes: [{ name: queries, route: { timeout: 60s } }]
  clusters:
    - name: queries
      circuit_breakers: { thresholds: [{ max_requests: 8000 }] }
      load_assignment:
        endpoints:
          - lb_endpoints:
              - endpoint:
                  hostname: node1
                  address: { socket_address: { address: 127.0.0.1, port_value: 8101 } }
"""


@pytest.fixture
def example(tmp_path):
    path = tmp_path / "example.yaml"
    path.write_text(EXAMPLE)
    return path


def ports_of(cluster: dict) -> list[int]:
    groups = cluster["load_assignment"]["endpoints"]
    entries = [entry["endpoint"] for group in groups for entry in group["lb_endpoints"]]
    return [entry["address"]["socket_address"]["port_value"] for entry in entries]


def need_module(policy: render.Policy) -> None:
    text = policy.example.read_text()
    if not programs.are_found(*(find for name, find in envoy.BUILT.items() if name in text)):
        pytest.skip("needs `make build`")


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_rendered_example_is_accepted_with_every_setting(policy, tmp_path):
    need_module(policy)
    settings = policy.settings | {name: values[-1] for name, values in policy.sweep.items()}
    made = envoy.prepare(policy.example, PORTS, tmp_path, "lb2", settings, 2)
    text = (tmp_path / "lb2.yaml").read_text()
    config = yaml.safe_load(text)
    assert config["node"]["id"] == "lb2"
    clusters = {cluster["name"]: cluster for cluster in config["static_resources"]["clusters"]}
    wanted = {"queries": PORTS.slaves} if "load_assignment" in clusters["queries"] else {}
    if "plimsoll_agents" in clusters:
        wanted["plimsoll_agents"] = PORTS.agents
    assert wanted
    for cluster, ports in wanted.items():
        assert ports_of(clusters[cluster]) == ports
    assert re.search(r"\b(8080|810\d|9901|960\d)\b", text) is None
    assert (made.frontend, made.admin) == (PORTS.frontend, PORTS.stats)
    assert made.nodes[PORTS.slaves[6]] == "node7"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node: [", "example.yaml: while parsing"),
        ("- a", "example.yaml: has no"),
        ("node: {}\n", "example.yaml: has no 'static_resources'"),
        (
            "node: {}\nstatic_resources: { clusters: [{ name: queries, load_assignment: {} }] }\n",
            "'endpoints'",
        ),
    ],
)
def test_an_example_the_lab_cannot_use_is_named(example, text, words):
    example.write_text(text)
    with pytest.raises(LabError, match=words):
        envoy.render(example, PORTS, "lb1", {})


def test_configuration_that_envoy_refuses_is_named(example, tmp_path):
    example.write_text(EXAMPLE.replace("routes:", "rotes:"))
    with pytest.raises(LabError, match=r"(?s)Envoy refuses .*example\.yaml.*rotes"):
        envoy.prepare(example, PORTS, tmp_path, "lb1", {}, 2)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("routes.queries.route.timeout", ["listeners", 0, "routes", 0, "route", "timeout"]),
        ("max_requests.x", None),
        (
            "clusters.queries.circuit_breakers.thresholds.max_requests",
            ["clusters", 0, "circuit_breakers", "thresholds", 0, "max_requests"],
        ),
        ("clusters.queries.common_lb_config.x", ["clusters", 0, "common_lb_config", "x"]),
        ("clusters.nobody.x", None),
        ("routes.queries.name.x", None),
        ("name.x", None),
        ("absent.x", None),
        ("clusters", None),
    ],
)
def test_a_setting_is_put_where_its_path_leads(example, path, place):
    if place is None:
        with pytest.raises(LabError, match=f"example.yaml: {path}: "):
            envoy.render(example, PORTS, "lb1", {path: 7})
        return
    found = yaml.safe_load(envoy.render(example, PORTS, "lb1", {path: 7}))["static_resources"]
    for step in place:
        found = found[step]
    assert found == 7


def test_a_setting_within_json_in_a_text(example):
    example.write_text(EXAMPLE + 'filter: { value: \'{"policy": "a", "period": 1}\' }\n')
    config = yaml.safe_load(envoy.render(example, PORTS, "lb1", {"filter.value.policy": "b"}))
    assert config["filter"]["value"] == '{"policy": "b", "period": 1}'


def test_the_filter_and_the_agents_are_found_where_this_lab_has_them(example, tmp_path, monkeypatch):
    agents = EXAMPLE[EXAMPLE.index("    - name: queries\n      circuit") :].replace(
        "queries", "plimsoll_agents"
    )
    nodes = '{"nodes": {"node3": "127.0.0.1:8103"}}'
    example.write_text(
        f"{EXAMPLE}{agents.replace('8101', '9601')}"
        f"x: {{ filename: /usr/lib/plimsoll/envoy_wasm.wasm, value: '{nodes}' }}\n"
    )
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path))
    with pytest.raises(LabError, match=r"envoy_wasm\.wasm is not there; run `make build`"):
        envoy.render(example, PORTS, "lb1", {})
    module = tmp_path / "wasm32-wasip1" / "release" / "envoy_wasm.wasm"
    module.parent.mkdir(parents=True)
    module.touch()
    config = yaml.safe_load(envoy.render(example, PORTS, "lb1", {}))
    assert config["x"] == {"filename": str(module), "value": '{"nodes": {"node3": "127.0.0.1:20103"}}'}
    assert ports_of(config["static_resources"]["clusters"][1]) == PORTS.agents


def test_endpoints_of_a_priority_each_stay_so(example):
    second = EXAMPLE[EXAMPLE.index("          - lb_endpoints") :]
    example.write_text(EXAMPLE + second)
    cluster = yaml.safe_load(envoy.render(example, PORTS, "lb1", {}))["static_resources"]["clusters"][0]
    assert ports_of(cluster) == PORTS.slaves
    assert [group["priority"] for group in cluster["load_assignment"]["endpoints"]] == list(range(7))


def test_hosts_are_known_by_their_ports():
    def host(port: int, weight: int, **health: object) -> dict:
        address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
        return {
            "address": address,
            "weight": weight,
            "health_status": {"eds_health_status": "HEALTHY", **health},
        }

    hosts = [
        host(1, 7),
        host(2, 1, failed_active_health_check=True),
        host(3, 1, eds_health_status="DRAINING"),
    ]
    view = {
        "cluster_statuses": [
            {"name": "queries", "host_statuses": [*hosts, host(9, 1)]},
            {"name": "transactions", "host_statuses": [host(1, 3)]},
            {"name": "empty"},
        ]
    }
    found = envoy.servers(view, {1: "node1", 2: "node2", 3: "node3"})
    assert {name: (server.up, server.weight) for name, server in found.items()} == {
        **{"node1": (True, "7"), "node2": (False, "1"), "node3": (False, "1")}
    }


def test_a_silent_envoy_has_no_servers():
    assert envoy.Envoy(0, [], free_ports(1)[0], {}).servers() == {}


def test_nodes_that_do_not_answer_are_down(tmp_path):
    ports = stack.make_ports(2)
    made = envoy.prepare(render.policies(["envoy-rr"])[0].example, ports, tmp_path, "lb1", {}, 1)
    with subprocess.Popen([*TIED, *made.command], stderr=subprocess.DEVNULL) as process:
        try:
            eventually("two are down", lambda: [s.up for s in made.servers().values()] == [False] * 2)
        finally:
            process.kill()


def test_as_many_workers_as_haproxy_has_threads(tmp_path):
    plan = stack.plan(render.policies(["envoy-rr"])[0], load("burst"), 1, {}, tmp_path, proxies=2)
    for name in ("envoy-lb1", "envoy-lb2"):
        command = plan.programs[name]
        assert command[command.index("--concurrency") + 1] == str(machine.cores())
    assert len({proxy.frontend for proxy in plan.proxies.values()}) == 2


def test_nodes_have_addresses_of_their_own_where_envoy_asks_all_at_one_port(example, tmp_path):
    ports = dataclasses.replace(PORTS, orca=20701)
    example.write_text(EXAMPLE + "oob_reporting_config: { port_value: 9701 }\n")
    config = yaml.safe_load(envoy.render(example, ports, "lb1", {}))
    assert config["oob_reporting_config"] == {"port_value": 20701}
    group = config["static_resources"]["clusters"][0]["load_assignment"]["endpoints"][0]
    found = [entry["endpoint"]["address"]["socket_address"] for entry in group["lb_endpoints"]]
    assert found[1] == {"address": "127.0.0.3", "port_value": 20102}
    policy = render.policies(["fc-prop"])[0]
    agent = tomllib.loads(render.agent(policy, load("burst").slaves[1], 1, ports, tmp_path))
    assert agent["envoy"] == {"orca_listen": "127.0.0.3:20701"}
    assert agent["service"][0]["address"] == "127.0.0.3:20102"
    assert agent["service"][0]["source"]["url"] == "http://127.0.0.3:20102/metrics"


def test_agents_know_each_other_where_envoy_asks_one_for_all(tmp_path):
    nodes = load("burst").slaves
    for name, known in (("envoy-eds-fc-prop", 7), ("wasm-fc-hash", 0), ("fc-prop", 0)):
        text = render.agent(render.policies([name])[0], nodes[0], 0, PORTS, tmp_path)
        assert len(tomllib.loads(text).get("envoy", {}).get("peers", [])) == known
