"""Programs of scenario master-failover: PostgreSQL under Patroni, its nodes with their agents, a proxy."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from compose.lab import machine, patroni, proxy, render
from compose.lab.envoy import foreground, relocated
from compose.lab.patroni import Cluster, Member
from compose.lab.processes import Program, answers

EXAMPLES = {"haproxy": patroni.SETUP / "haproxy.cfg", "envoy": render.ENVOY_EXAMPLES / "eds-role.yaml"}
NODES = ("node1", "node2", "node3")
# Settings of each agent: sampling period, and maximum lag of reads.
PERIOD = "500ms"
MAX_LAG_S = 5.0


@dataclass(frozen=True)
class Ports:
    frontend: int
    nodes: list[int]
    agents: list[int]
    checks: list[int]
    admin: int


def envoy(ports: Ports, run: Path) -> list[str]:
    """The example with this lab's addresses."""
    moved = {8080: ports.frontend, 9901: ports.admin}
    moved |= {8101 + index: port for index, port in enumerate(ports.nodes)}
    moved |= {9601 + index: port for index, port in enumerate(ports.agents)}
    example = yaml.safe_load(EXAMPLES["envoy"].read_text())
    made = relocated(example, {old: ("127.0.0.1", new) for old, new in moved.items()})
    config = run / "lb1.yaml"
    config.write_text(yaml.safe_dump(made, sort_keys=False))
    return foreground(config, machine.cores())


def haproxy(ports: Ports, run: Path) -> list[str]:
    """The example with this lab's addresses; each line of node1 stands for all nodes."""

    def servers(line: str) -> list[str]:
        each = zip(ports.nodes, ports.checks, ports.agents, strict=True)
        return [
            render.server(line, index, f"127.0.0.1:{node}", check).replace("port 9464", f"port {agent}")
            for index, (node, check, agent) in enumerate(each)
        ]

    text = EXAMPLES["haproxy"].read_text().replace("127.0.0.1:8080", f"127.0.0.1:{ports.frontend}")
    config = run / "lb1.cfg"
    moved = text.replace("/run/haproxy/plimsoll.sock", str(run / "lb1.sock"))
    config.write_text(render.expanded(moved, servers))
    return proxy.foreground(config)


def agent(member: Member, index: int, ports: Ports, run: Path, proxy: str) -> list[str]:
    node = f"127.0.0.1:{ports.nodes[index]}"
    config = {"agent": {"period": PERIOD}} | render.listens(ports.agents[index], ports.checks[index])
    if proxy == "envoy":
        config["envoy"] = {"peers": [f"http://127.0.0.1:{port}" for port in ports.agents]}
    service = {
        "name": "ledger",
        "identities": [f"reads/{member.name}"],
        "address": node,
        "sla": {"delay": "1s"},
        "bound": {"nominal": 64.0},
        "source": {
            "kind": "prometheus",
            "url": f"http://{node}/metrics",
            "histogram": "ledger_request_duration_seconds",
            "failed": "ledger_requests_failed_total",
        },
        "role": {
            "address": f"unix://{member.socket}",
            "user": "plimsoll",
            "lock_url": f"http://127.0.0.1:{member.rest}/primary",
            "max_lag": f"{MAX_LAG_S:g}s",
            "without_primary": f"{patroni.TTL + 10}s",
        },
    }
    path = run / f"{member.name}.agent.toml"
    path.write_text(render.with_service(config, service))
    return [machine.binary("plimsoll"), "agent", "--config", str(path)]


def programs(cluster: Cluster, ports: Ports, run: Path, proxy: str) -> dict[str, list[str] | Program]:
    """Those that need a database that is set up."""
    begun_by = {"haproxy": haproxy, "envoy": envoy}[proxy]
    found: dict[str, list[str] | Program] = {proxy: begun_by(ports, run)}
    for index, member in enumerate(cluster.members):
        serve = [machine.binary("stocks"), "ledger", "--name", member.name]
        serve += ["--listen", f"127.0.0.1:{ports.nodes[index]}", "--database", member.connection("ledger")]
        found[member.name] = serve
        found[f"{member.name}-agent"] = agent(member, index, ports, run, proxy)
    return found


def takes(ports: Ports, what: str) -> list[bool]:
    return [answers(f"http://127.0.0.1:{port}/v1/role?takes={what}") for port in ports.agents]
