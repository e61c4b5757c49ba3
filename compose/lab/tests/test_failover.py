"""Start of scenario master-failover's programs; `make lab` runs the scenario, which takes two minutes."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from compose.lab import failover, patroni
from compose.lab.processes import free_ports
from tests.harness import programs


@pytest.fixture
def cluster(tmp_path: Path):
    with patroni.cluster(list(failover.NODES), free_ports(8), tmp_path) as made:
        yield made


def test_secrets_are_for_patroni_alone(cluster) -> None:
    for member in cluster.members:
        path = member.directory / "patroni.yaml"
        assert path.stat().st_mode & 0o077 == 0
        told = json.loads(path.read_text())
        passwords = {role["password"] for role in told["postgresql"]["authentication"].values()}
        assert len(passwords) == 2
        for command in cluster.programs.values():
            assert not any(password in word for password in passwords for word in command)
    assert not any(" trust" in rule for rule in told["postgresql"]["pg_hba"])


def test_the_times_are_those_that_patroni_asks_for() -> None:
    times = patroni.TIMES
    assert times["ttl"] >= 20
    assert times["loop_wait"] + 2 * times["retry_timeout"] <= times["ttl"]


def _ports() -> failover.Ports:
    frontend, admin, *rest = free_ports(11)
    return failover.Ports(frontend, rest[:3], rest[3:6], rest[6:], admin)


@programs.needs(programs.stocks, programs.agent)
@pytest.mark.parametrize(("proxy", "only_check"), [("haproxy", ["-c"]), ("envoy", ["--mode", "validate"])])
def test_the_proxy_and_the_agents_take_their_configurations(
    cluster, tmp_path: Path, proxy: str, only_check: list[str]
) -> None:
    programs = failover.programs(cluster, _ports(), tmp_path, proxy)
    checks = [[*programs[proxy], *only_check]]
    checks += [[*programs[f"{name}-agent"], "--check-config"] for name in failover.NODES]
    for check in checks:
        done = subprocess.run(check, capture_output=True, text=True, check=False, env=os.environ)
        assert done.returncode == 0, done.stderr


def test_haproxy_has_the_addresses_of_all_nodes(tmp_path: Path) -> None:
    ports = _ports()
    failover.haproxy(ports, tmp_path)
    text = (tmp_path / "lb1.cfg").read_text()
    for index, name in enumerate(failover.NODES):
        where = f"server {name} 127.0.0.1:{ports.nodes[index]}"
        assert f"{where} port {ports.agents[index]}\n" in text
        assert f'{where} agent-port {ports.checks[index]} agent-send "reads/{name}\\n"' in text


def test_envoy_has_the_addresses_of_all_nodes(tmp_path: Path) -> None:
    ports = _ports()
    failover.envoy(ports, tmp_path)
    static = yaml.safe_load((tmp_path / "lb1.yaml").read_text())["static_resources"]
    (writes,) = [cluster for cluster in static["clusters"] if cluster["name"] == "writes"]
    found = [entry["endpoint"] for entry in writes["load_assignment"]["endpoints"][0]["lb_endpoints"]]
    for index, endpoint in enumerate(found):
        address = {"address": "127.0.0.1", "port_value": ports.nodes[index]}
        assert endpoint["address"]["socket_address"] == address
        assert endpoint["health_check_config"] == {"port_value": ports.agents[index]}
    assert len(found) == len(failover.NODES)
