"""compose.yaml by the reference loader, and the configurations of its containers by those that read them.
There is no container engine here."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from compose.lab import containers, machine, postgres, topology
from compose.lab.errors import LabError
from compose.lab.processes import Processes, Program, answers, free_ports, wait_until
from compose.lab.topology import ROOT

COMPOSE = ROOT / "compose"
# They do their work and end.
JOBS = {"config", "k6-haproxy", "k6-envoy"}


def load(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / ".tools" / "bin" / "compose-check")]
    return subprocess.run(command, cwd=COMPOSE, env=environment, capture_output=True, text=True, check=False)


def services(**environment: str) -> dict[str, Any]:
    loaded = load(**environment)
    assert loaded.returncode == 0, loaded.stderr
    return json.loads(loaded.stdout)["services"]


@pytest.fixture(scope="module")
def full() -> dict[str, Any]:
    return services(COMPOSE_PROFILES="full")


@pytest.fixture(scope="module")
def on_postgres() -> dict[str, Any]:
    return services(COMPOSE_PROFILES="full,postgres", DB="postgres")


@pytest.mark.parametrize(
    ("profile", "absent"),
    [("haproxy", {"envoy", "k6-envoy"}), ("envoy", {"haproxy", "k6-haproxy"}), ("full", set())],
)
def test_a_profile_has_its_proxies(full, profile, absent):
    assert full.keys() - services(COMPOSE_PROFILES=profile).keys() == absent


def test_up_alone_starts_a_proxy():
    assert "haproxy" in services()


def test_a_setting_that_is_missing_is_named():
    loaded = load(NODE_FLAGS="")
    assert loaded.returncode != 0
    assert "NODE_FLAGS is missing a value: is in .env" in loaded.stderr


def test_every_service_is_pinned_limited_checked_and_harmless(on_postgres):
    for name, service in on_postgres.items():
        limits = service["deploy"]["resources"]["limits"]
        assert {"cpus", "memory"} <= limits.keys(), name
        assert ("healthcheck" in service) == (name not in JOBS), name
        own = "build" in service
        assert own or re.search(r":v?\d+\.\d+", service["image"]), name
        assert service["read_only"] and service["cap_drop"] == ["ALL"], name
        for port in service.get("ports", []):
            assert port["host_ip"] == "127.0.0.1", name
    assert all(
        need["condition"] in ("service_healthy", "service_completed_successfully")
        for service in on_postgres.values()
        for need in service.get("depends_on", {}).values()
    )
    assert "PASSWORD" not in json.dumps(on_postgres)
    assert not any("ports" in service for name, service in on_postgres.items() if name.startswith("sql-"))


def test_the_nodes_are_those_of_the_topology(full):
    nodes = topology.load("burst")
    for node in nodes.nodes:
        words = full[node.name]["command"]
        given = dict(zip(words[1::2], words[2::2], strict=True))
        wanted = dict(zip(node.arguments()[::2], node.arguments()[1::2], strict=True))
        assert given.items() >= wanted.items(), node.name
        assert (given["--name"], given["--role"]) == (node.name, node.role)
        command = [machine.binary("stocks"), "capacity", "--role", node.role, *node.arguments()]
        if node.role == "slave":
            command += ["--master", given["--master"]]
        subprocess.run(command, check=True, capture_output=True)
    agents = {name for name in full if name.startswith("agent")}
    assert {full[name]["network_mode"] for name in agents} == {
        f"service:{node.name}" for node in nodes.slaves
    }


def test_each_node_has_a_database_at_its_configured_address(full, on_postgres):
    nodes = topology.load("burst").nodes
    assert on_postgres.keys() - full.keys() == {f"sql-{node.name}" for node in nodes}
    for node in nodes:
        sql = on_postgres[f"sql-{node.name}"]
        at = sql["networks"]["lab"]["ipv4_address"]
        words = on_postgres[node.name]["command"]
        extra = [
            *("--database", f"host={at} user=stocks dbname=stocks"),
            *("--database-password-file", "/secrets/stocks"),
        ]
        assert words == [*full[node.name]["command"], *extra]
        primary = on_postgres["sql-master"]["networks"]["lab"]["ipv4_address"]
        role = ["primary"] if node.role == "master" else ["standby", node.name, primary]
        assert sql["command"] == role
        command = [machine.binary("stocks"), "capacity", *words[1:]]
        command[-1] = os.devnull
        subprocess.run(command, check=True, capture_output=True)


def test_addresses_are_those_of_the_network(full):
    slaves = topology.load("burst").slaves
    at = {
        name: service["networks"]["lab"]["ipv4_address"]
        for name, service in full.items()
        if (service.get("networks", {}).get("lab") or {}).get("ipv4_address")
    }
    moved = containers.addresses(len(slaves))
    assert (at["redis"], at["master"]) == (moved[6379][0], moved[8100][0])
    for index, node in enumerate(slaves):
        assert {moved[port + index][0] for port in containers.NODE_PORTS} == {at[node.name]}
    found = yaml.safe_load((COMPOSE / "images" / "prometheus.yaml").read_text())
    targets = [
        (target, group["labels"])
        for job in found["scrape_configs"]
        for group in job["static_configs"]
        for target in group["targets"]
    ]
    for target, labels in targets:
        assert target.split(":")[0] == at[labels["instance"]], target
    assert {full["k6-haproxy"]["environment"]["TARGETS"], full["k6-envoy"]["environment"]["TARGETS"]} == {
        f"http://{at[proxy]}:8080" for proxy in ("haproxy", "envoy")
    }


@pytest.fixture
def place() -> Iterator[Path]:
    """Directory accessible to PostgreSQL's user, with its containers' files."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-sql-", dir="/tmp") as name:
        path = Path(name)
        shutil.copytree(COMPOSE / "postgres", path / "setup")
        (path / "secrets").mkdir()
        containers.make_passwords(path / "secrets")
        (path / "log").mkdir()
        for role in ("master", "node1"):
            (path / role).mkdir()
            if owner := postgres.user():
                shutil.chown(path / role, owner, owner)
        path.chmod(0o755)
        yield path


def test_the_databases_start_as_in_their_containers_and_start_again(place):
    sql_port, standby_port, master_port, node_port = free_ports(4)
    path = f"{Path(machine.postgres('postgres')).parent}:{os.environ['PATH']}"

    def sql(name: str, port: int, *words: str) -> Program:
        home = place / name
        given = {"PATH": path, "PGPORT": port, "PGDATA": home / "data", "RUN": home}
        given |= {"SECRETS": place / "secrets", "LISTEN": "127.0.0.1"}
        command = ["env", "-C", str(home), *(f"{key}={value}" for key, value in given.items())]
        return Program([*command, str(place / "setup" / "start"), *words], postgres.END, postgres.user())

    def stocks(name: str, role: str, port: int, sql_port: int, password: str = "stocks") -> list[str]:
        command = [machine.binary("stocks"), "serve", "--name", name, "--role", role]
        command += ["--listen", f"127.0.0.1:{port}", "--symbols", "50", "--accounts", "20"]
        command += ["--database", f"host=127.0.0.1 port={sql_port} user=stocks dbname=stocks"]
        return [*command, "--database-password-file", str(place / "secrets" / password)]

    def ready(port: int, processes: Processes) -> None:
        wait_until(str(port), lambda: answers(f"http://127.0.0.1:{port}/readyz"), 30, processes.check)

    def ask(port: int, path: str, body: str | None = None) -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body and body.encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def run(number: int, programs: dict[str, list[str] | Program]) -> Processes:
        (place / f"run{number}").mkdir()
        return Processes(programs, place / f"run{number}", place / "log")

    (other,) = free_ports(1)
    primary = {
        "sql-master": sql("master", sql_port, "primary"),
        "master": stocks("master", "master", master_port, sql_port),
    }
    standby = {
        "sql-node1": sql("node1", standby_port, "standby", "node1", f"127.0.0.1 port={sql_port}"),
        "node1": stocks("node1", "slave", node_port, standby_port),
    }
    wrong = {"other": stocks("other", "slave", other, standby_port, "replicator")}
    with run(1, primary) as masters:
        ready(master_port, masters)
        with run(2, standby | wrong) as slaves:
            ready(node_port, slaves)
            made = ask(master_port, "/purchase", '{"account":3,"symbol":"S0007","shares":2}')
            assert ask(node_port, "/portfolio/3?items=1")["rows"][0]["cash_cents"] == made["cash_after"]
            log = place / "log" / "other.log"
            refused = lambda: "password authentication failed" in log.read_text()  # noqa: E731
            wait_until("the refusal", refused, 10, slaves.check)
    with run(3, primary | standby) as all_of_them:
        ready(node_port, all_of_them)
        assert ask(node_port, "/portfolio/3?items=1")["rows"][0]["cash_cents"] == made["cash_after"]


@pytest.fixture(scope="module")
def configured(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("config")
    command = [sys.executable, "-m", "compose.lab.containers", "--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=True)
    return out


def accepts(command: list[str]) -> None:
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr + checked.stdout


def test_every_program_accepts_its_configuration(configured, tmp_path):
    for agent in configured.glob("node*.toml"):
        accepts([machine.binary("plimsoll"), "agent", "--check-config", "--config", str(agent)])
    places = {
        "/usr/share/plimsoll/lua": str(ROOT / "lua"),
        "/etc/haproxy/plimsoll.lua": str(configured / "plimsoll.lua"),
        "/run/haproxy": str(tmp_path),
    }
    text = (configured / "haproxy.cfg").read_text()
    for there, here in places.items():
        assert there in text
        text = text.replace(there, here)
    (tmp_path / "haproxy.cfg").write_text(text)
    accepts([machine.haproxy(), "-c", "-f", str(tmp_path / "haproxy.cfg")])
    text = (configured / "envoy.yaml").read_text()
    module = ROOT / "target" / "wasm32-wasip1" / "release" / "envoy_wasm.wasm"
    (tmp_path / "envoy.yaml").write_text(text.replace("/usr/share/plimsoll/envoy_wasm.wasm", str(module)))
    accepts([machine.envoy(), "--mode", "validate", "-c", str(tmp_path / "envoy.yaml")])


@pytest.mark.parametrize("haproxy", ["rr", "fc-prop", "static-maxconn", "lua-fc-hash"])
def test_no_address_of_this_machine_is_left(haproxy):
    for name, text in containers.configurations(haproxy, "envoy-eds-fc-prop").items():
        assert "127.0.0.1" not in text, name


@pytest.mark.parametrize(
    ("haproxy", "on_envoy", "message"),
    [
        ("nobody", "wasm-fc-hash", "nobody"),
        ("envoy-rr", "wasm-fc-hash", "envoy-rr: is a policy of envoy"),
        ("rr", "fc-prop", "fc-prop: is a policy of haproxy"),
        ("rr", "envoy-cswrr", "envoy-cswrr: needs an address for each agent"),
    ],
)
def test_unsupported_policy_is_refused(haproxy, on_envoy, message):
    with pytest.raises(LabError, match=message):
        containers.configurations(haproxy, on_envoy)


def test_grafana_finds_its_dashboards(full, configured):
    environment = full["grafana"]["environment"]
    home = Path(environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (configured / home.relative_to("/config")).exists()
    assert environment["PLIMSOLL_DASHBOARDS"] == str(home.parent)
    wanted = {
        name
        for file in (ROOT / "dashboards" / "provisioning").rglob("*.yaml")
        for name in re.findall(r"\$\{?(PLIMSOLL_\w+)", file.read_text())
    }
    assert wanted
    assert wanted <= environment.keys()


def test_prometheus_accepts_its_configuration(tmp_path):
    text = (COMPOSE / "images" / "prometheus.yaml").read_text()
    (tmp_path / "prometheus.yaml").write_text(
        text.replace("/etc/prometheus/rules", str(ROOT / "dashboards" / "rules"))
    )
    accepts(["promtool", "check", "config", str(tmp_path / "prometheus.yaml")])


def test_the_images_are_made_as_hadolint_wants():
    files = [COMPOSE / "images" / "Dockerfile", ROOT / "packages" / "image" / "Dockerfile"]
    accepts([str(Path(sys.executable).with_name("hadolint")), *map(str, files)])


def test_images_install_the_pinned_versions():
    pins = lambda path: dict(re.findall(r"^([\w-]+)==(\S+)", path.read_text(), re.MULTILINE))  # noqa: E731
    theirs, ours = pins(COMPOSE / "images" / "requirements.txt"), pins(ROOT / "requirements.txt")
    assert theirs
    assert theirs.items() <= ours.items()
