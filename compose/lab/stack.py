"""The programs of one policy: data nodes, agents, proxies."""

import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import redis

from compose.lab import envoy, gather, machine, placement, render
from compose.lab.errors import LabError
from compose.lab.postgres import Cluster
from compose.lab.processes import Processes, Program, answers, free_ports, wait_until
from compose.lab.proxy import HAProxy, Proxy
from compose.lab.topology import Node, Topology


@dataclass(frozen=True)
class Plan:
    """Everything that is needed to start a policy's programs."""

    programs: dict[str, list[str] | Program]
    ports: render.Ports
    has_agents: bool
    proxies: dict[str, Proxy]
    has_updates: bool = False
    # The agents' [placement].
    placing: dict[str, Any] | None = None


SENTINELS = 3
SENTINEL = f"""\
bind 127.0.0.1
port {{port}}
dir {{run}}
sentinel monitor {render.SENTINELS_NAME} 127.0.0.1 {{master}} 2
sentinel down-after-milliseconds {render.SENTINELS_NAME} 1000
sentinel failover-timeout {render.SENTINELS_NAME} 10000
"""


def make_ports(
    slaves: int, has_orca: bool = False, has_sentinels: bool = False, gathers: int = 0
) -> render.Ports:
    redis, orca, *ports = free_ports(6 + 3 * slaves)
    rest = ports[4:]
    each = rest[:slaves], rest[slaves : 2 * slaves], rest[2 * slaves :]
    made = render.Ports(*ports[:4], *each, redis, orca if has_orca else None)
    if gathers:
        made = replace(made, gathers=tuple(free_ports(gathers)))
    if not has_sentinels:
        return made
    replica, *sentinels = free_ports(1 + SENTINELS)
    return replace(made, replica=replica, sentinels=tuple(sentinels))


def redis_programs(ports: render.Ports, run: Path) -> dict[str, list[str]]:
    """Redis, and where there are sentinels its replica and them."""

    def server(port: int, *more: str) -> list[str]:
        return [machine.redis(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", *more]

    programs = {"redis": server(ports.redis, "--dir", str(run))}
    if ports.replica is not None:
        (run / "replica").mkdir()
        follows = ["--replicaof", f"127.0.0.1 {ports.redis}", "--repl-diskless-load", "on-empty-db"]
        programs["redis-replica"] = server(ports.replica, "--dir", str(run / "replica"), *follows)
    for number, port in enumerate(ports.sentinels):
        # A sentinel writes to its configuration.
        config = run / f"sentinel{number + 1}.conf"
        config.write_text(SENTINEL.format(port=port, run=run, master=ports.redis))
        programs[f"sentinel{number + 1}"] = [machine.redis(), str(config), "--sentinel"]
    return programs


def configure(
    policy: render.Policy, ports: render.Ports, run: Path, number: int, settings: dict[str, Any]
) -> Proxy:
    """Writes one proxy's configuration into `run` and checks it."""
    name = f"lb{number + 1}"
    if policy.proxy == "envoy":
        # As many workers as HAProxy has threads.
        return envoy.prepare(policy.example, ports, run, name, settings, machine.cores())
    limit = (policy.placement or {}).get("request_limit")
    text = render.haproxy(
        policy.example.read_text(), ports, run / f"{name}.sock", settings.get("maxconn"), limit
    )
    (run / f"{name}.lua").write_text(render.lua(policy, ports, name))
    return HAProxy.checked(text, policy.example, ports, run, name)


def feed(policy: render.Policy, agent: int) -> list[str]:
    """Options of a node's price feed for its update periods."""
    return ["--feed-periods", f"http://127.0.0.1:{agent}/v1/updates"] if policy.has_updates else []


def serve(node: Node, listen: str, seed: int, data: list[str]) -> list[str]:
    command = [machine.binary("stocks"), "serve", "--name", node.name, "--role", node.role]
    return [*command, "--listen", listen, "--seed", str(seed), *data, *node.arguments()]


def sqlite(node: Node, run: Path, replication: int) -> list[str]:
    link = "--replication-listen" if node.role == "master" else "--master"
    return ["--data-dir", str(run / "data" / node.name), link, f"127.0.0.1:{replication}"]


def plan(
    policy: render.Policy,
    topology: Topology,
    seed: int,
    settings: dict[str, Any],
    run: Path,
    proxies: int = 1,
    databases: Cluster | None = None,
    placing: dict[str, Any] | None = None,
    has_sentinels: bool = False,
) -> Plan:
    """Writes configurations into `run` and says what to start; without databases nodes have SQLite."""
    slaves = topology.slaves
    ports = make_ports(len(slaves), policy.orca, has_sentinels and policy.has_ring, policy.gathers)
    fronts = [ports]
    for _ in range(proxies - 1):
        frontend, stats = free_ports(2)
        fronts.append(replace(ports, frontend=frontend, stats=stats))
    started = {
        policy.proxy if proxies == 1 else f"{policy.proxy}-lb{number + 1}": configure(
            policy, front, run, number, settings
        )
        for number, front in enumerate(fronts)
    }
    programs: dict[str, list[str] | Program] = {**databases.programs} if databases else {}

    primaries = any(node.flags.get("primary") for node in topology.slaves)

    def data(node: Node) -> list[str]:
        if databases:
            return ["--database", databases.connection(node)]
        witness = ["--witness-directory", str(run / "claims")] if primaries else []
        return [*sqlite(node, run, ports.replication), *witness]

    if policy.has_ring:
        programs |= redis_programs(ports, run)
    master = topology.master
    programs["master"] = serve(master, f"127.0.0.1:{ports.master}", seed, data(master))
    for index, node in enumerate(topology.slaves):
        told = [*data(node), *feed(policy, ports.agents[index])]
        programs[node.name] = serve(node, ports.node(index), seed, told)
        if policy.service is not None:
            path = run / f"{node.name}.agent.toml"
            part = None
            if policy.gathers and databases:
                part = gather.partition(index, len(slaves), databases.servers[node.name])
            path.write_text(render.agent(policy, node, index, ports, run, placing, part))
            programs[f"{node.name}-agent"] = [machine.binary("plimsoll"), "agent", "--config", str(path)]
    for number, port in enumerate(ports.gathers):
        path = run / f"gather{number + 1}.toml"
        config, parts = gather.configuration(port, ports.agents)
        tables = [f"\n[[partition]]\n{render.toml(part)}" for part in parts]
        path.write_text("".join([render.toml(config), *tables]))
        programs[f"gather{number + 1}"] = [machine.binary("plimsoll"), "gather", "--config", str(path)]
    programs |= {name: proxy.command for name, proxy in started.items()}
    return Plan(programs, ports, policy.service is not None, started, policy.has_updates, placing)


def failover_ready(port: int) -> bool:
    """Whether a sentinel knows the other sentinels, and a replica that is up to date."""
    try:
        with redis.Redis(port=port, socket_timeout=1) as client:
            known = client.sentinel_master(render.SENTINELS_NAME)
            replicas = client.sentinel_slaves(render.SENTINELS_NAME)
    except redis.RedisError:
        return False
    level = [one for one in replicas if one["master-link-status"] == "ok"]
    return known["num-other-sentinels"] == SENTINELS - 1 and len(level) == 1


def wait_ready(processes: Processes, ready: Plan) -> None:
    ports = ready.ports
    for number, port in enumerate(ports.sentinels):
        wait_until(f"sentinel{number + 1}", lambda port=port: failover_ready(port), 30, processes.check)
    for address, name in {f"127.0.0.1:{ports.master}": "master", **ports.names()}.items():
        wait_until(name, lambda url=f"http://{address}/readyz": answers(url), 30, processes.check)
    if ready.has_agents:
        for n, port in enumerate(ports.agents):
            url = f"http://127.0.0.1:{port}/readyz"
            wait_until(f"node{n + 1}-agent", lambda url=url: answers(url), 10, processes.check)
    for n, port in enumerate(ports.gathers):
        url = f"http://127.0.0.1:{port}/readyz"
        wait_until(f"gather{n + 1}", lambda url=url: answers(url), 10, processes.check)

    def servers_up(proxy: Proxy) -> bool:
        servers = proxy.servers().values()
        return len(servers) == len(ports.slaves) and all(server.up for server in servers)

    for name, proxy in ready.proxies.items():
        wait_until(name, lambda proxy=proxy: servers_up(proxy), 10, processes.check)
    if ready.placing is not None:
        threads = len(ready.proxies) * machine.cores()
        wait_until("placement", lambda: placement.joined(ports.redis, threads), 40, processes.check)


def static_capacity(node: Node) -> float:
    """Items/s by the flags at uniform access, as the node itself computes it."""
    role = ["--role", node.role, *(["--master", "127.0.0.1:1"] if node.role == "slave" else [])]
    command = [machine.binary("stocks"), "capacity", *role, *node.arguments()]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    figure = re.search(r"\d+(?:\.\d+)?", result.stdout)
    if result.returncode != 0 or not figure:
        raise LabError(f"{' '.join(command)}: {result.stderr.strip() or 'printed no figure'}")
    return float(figure[0])
