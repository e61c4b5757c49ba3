"""Policies, their HAProxy configurations from haproxy/examples, and their agents' configurations."""

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from compose.lab.errors import LabError
from compose.lab.topology import ROOT, Node

POLICIES = ROOT / "loadtests" / "policies.toml"
EXAMPLES = ROOT / "haproxy" / "examples"
ENVOY_EXAMPLES = ROOT / "envoy-wasm" / "examples"
# The kind of proxy follows from the file that it takes; where its examples are.
KINDS = {
    ".cfg": ("haproxy", (EXAMPLES,)),
    ".yaml": ("envoy", (ENVOY_EXAMPLES, ROOT / "envoy-module" / "examples")),
    # Of a library; its folder has the library's name.
    ".json": (None, (ROOT / "loadtests" / "families" / "proxies",)),
}
PROXIES = ("haproxy", "envoy")
# Name of the lab's Redis at the sentinels.
SENTINELS_NAME = "stocks"


@dataclass(frozen=True)
class Policy:
    name: str
    example: Path
    service: dict[str, Any] | None
    # Settings of the example that differ from its own, and those with the values that a sweep tries.
    settings: dict[str, Any] = field(default_factory=dict)
    sweep: dict[str, list[Any]] = field(default_factory=dict)
    # Whether the agents serve Envoy's out-of-band load reports.
    orca: bool = False
    # The agents' [placement]; pins = "best" stands for those of the best fixed placement.
    placement: dict[str, Any] | None = None
    # Aggregators behind the proxy; the agents then have partitions.
    gathers: int = 0
    # Settings of plimsoll.lua that differ from the example's.
    lua: dict[str, Any] = field(default_factory=dict)

    @property
    def proxy(self) -> str:
        return KINDS[self.example.suffix][0] or self.example.parent.name

    @property
    def asks_agents(self) -> bool:
        """Envoy's endpoint discovery asks one agent for all nodes; without Redis they ask each other."""
        return self.example.suffix == ".yaml" and not self.has_ring

    @property
    def has_updates(self) -> bool:
        return self.service is not None and "updates" in self.service

    def promising(self, sla: float) -> "Policy":
        """The same with a scenario's SLA."""
        if self.service is None:
            return self
        return replace(self, service=merged(self.service, {"sla": {"delay": f"{sla:g}s"}}))

    @property
    def has_ring(self) -> bool:
        return self.service is not None and "ring" in self.service


@dataclass(frozen=True)
class Ports:
    frontend: int
    stats: int
    master: int
    replication: int
    slaves: list[int]
    checks: list[int]
    agents: list[int]
    redis: int
    # The same at every node, as Envoy wants it; each node then has an address of its own.
    orca: int | None = None
    # Port of Redis' replica, and of the sentinels that fail over to it.
    replica: int | None = None
    sentinels: tuple[int, ...] = ()
    gathers: tuple[int, ...] = ()

    def host(self, index: int) -> str:
        return "127.0.0.1" if self.orca is None else f"127.0.0.{index + 2}"

    def node(self, index: int) -> str:
        """Address of a slave."""
        return f"{self.host(index)}:{self.slaves[index]}"

    def names(self) -> dict[str, str]:
        """The slaves' names by their addresses."""
        return {self.node(index): f"node{index + 1}" for index in range(len(self.slaves))}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def table(path: Path = POLICIES) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise LabError(f"{path}: {error}") from error


def check_proxy(proxy: str) -> None:
    if proxy not in PROXIES:
        raise LabError(f"--proxy {proxy}: must be one of {', '.join(PROXIES)}")


def default_names(proxy: str, scenario: str, path: Path = POLICIES) -> list[str]:
    """Default policies of a kind of proxy; a scenario may have its own."""
    check_proxy(proxy)
    defaults = table(path).get("defaults", {})
    own = defaults.get("scenario", {}).get(scenario)
    if own is None:
        return defaults.get(proxy, [])
    if proxy not in own:
        raise LabError(f"--proxy {proxy}: scenario {scenario} has policies for {', '.join(own)} only")
    return own[proxy]


def policies(names: list[str], path: Path = POLICIES) -> list[Policy]:
    data = table(path)
    data.pop("defaults", None)
    common = data.pop("common", {}).get("service", {})
    if not names:
        raise LabError(f"--policies: name at least one of {' '.join(data)}")
    result = []
    for name in names:
        if name not in data:
            raise LabError(f"--policies {name}: {path} has no such policy; it has {' '.join(data)}")
        entry = data[name]
        file = Path(entry.get("example", ""))
        if file.suffix not in KINDS:
            raise LabError(f"{path}: {name}.example: {str(file)!r} must end in {' or '.join(KINDS)}")
        folders = KINDS[file.suffix][1]
        example = next(
            (there for there in (folder / file for folder in folders) if there.is_file()), folders[0] / file
        )
        if not example.is_file():
            raise LabError(f"{path}: {name}.example: {example} is not there")
        service = merged(common, entry["service"]) if "service" in entry else None
        changed, swept, orca = entry.get("settings", {}), entry.get("sweep", {}), entry.get("orca", False)
        result.append(
            Policy(
                name,
                example,
                service,
                changed,
                swept,
                orca,
                entry.get("placement"),
                entry.get("gathers", 0),
                entry.get("lua", {}),
            )
        )
    return result


def haproxy(
    text: str, ports: Ports, socket: Path, maxconn: int | None = None, request_limit: str | None = None
) -> str:
    """An example with this lab's addresses; in each backend the line of node1 is repeated for every slave."""
    moved = {
        "127.0.0.1:8080": f"127.0.0.1:{ports.frontend}",
        "127.0.0.1:8404": f"127.0.0.1:{ports.stats}",
        "127.0.0.1:8100": f"127.0.0.1:{ports.master}",
        "/run/haproxy/plimsoll.sock": str(socket),
        "/usr/share/plimsoll/lua": str(ROOT / "lua"),
        "/etc/haproxy/plimsoll.lua": str(socket.with_suffix(".lua")),
    }
    moved |= {f"127.0.0.1:{9470 + n}": f"127.0.0.1:{port}" for n, port in enumerate(ports.gathers)}
    lines = []
    in_queries = in_transactions = False
    for original in text.splitlines():
        line = original
        if re.match(r"\S", line):
            in_queries = line.split()[:2] == ["backend", "queries"]
            in_transactions = line.split()[:2] == ["backend", "transactions"]
        if request_limit is not None and in_transactions:
            line = re.sub(r"^(\s+timeout server ).*", rf"\g<1>{request_limit}", line)
        if maxconn is not None and in_queries and re.match(r"\s+default-server\s", line):
            line = re.sub(r"\bmaxconn \d+", f"maxconn {maxconn}", line)
        for old, new in moved.items():
            line = line.replace(old, new)
        lines.append(line)
    if maxconn is not None and not any(f"maxconn {maxconn}" in line for line in lines):
        raise LabError("the HAProxy example has no `maxconn` in `default-server` to set")

    def servers(line: str) -> list[str]:
        # A name of its own: the proxies of a lab share an address.
        line = re.sub(r'(agent-send "[^"\\]+)', rf"\1 {socket.stem}", line)
        return [
            server(line, index, ports.node(index), ports.checks[index]) for index in range(len(ports.slaves))
        ]

    return expanded("\n".join(lines) + "\n", servers)


def expanded(text: str, servers: Callable[[str], list[str]]) -> str:
    """The text with a line per node in place of node1's; the example's other nodes are removed."""
    lines, found = [], False
    for line in text.splitlines():
        node = re.match(r"\s+server\s+node(\d+)\s", line)
        if node is None:
            lines.append(line)
        elif int(node[1]) == 1:
            lines += servers(line)
            found = True
    if not found:
        raise LabError("the HAProxy example has no `server node1` line")
    return "\n".join(lines) + "\n"


def server(line: str, index: int, address: str, check: int) -> str:
    """An example's line of node1 for another node."""
    line = re.sub(r"\bnode1\b", f"node{index + 1}", line).replace("127.0.0.1:8101", address)
    return line.replace("agent-port 9101", f"agent-port {check}")


def lua(policy: Policy, ports: Ports, proxy: str) -> str:
    """plimsoll.lua of the examples with this lab's Redis, a proxy's name and the policy's settings."""
    example = EXAMPLES / ("plimsoll.lua" if policy.placement is None else "plimsoll-placement.lua")
    text = example.read_text().replace("127.0.0.1:6379", f"127.0.0.1:{ports.redis}")
    told = {"proxy": proxy} | policy.lua
    if ports.sentinels:
        told["redis"] = {"addresses": addresses(ports.sentinels), "sentinel": SENTINELS_NAME}
    for key, value in told.items():
        line = f"  {key} = {lua_value(value)},\n"
        text, found = re.subn(rf"(?m)^  {key} = .*\n", lambda _, line=line: line, text)
        if not found:
            text = text.replace("start({\n", "start({\n" + line)
    return text


def addresses(ports: tuple[int, ...]) -> list[str]:
    return [f"127.0.0.1:{port}" for port in ports]


def lua_value(value: Any) -> str:
    if isinstance(value, list):
        return "{ " + ", ".join(map(lua_value, value)) + " }"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {lua_value(inner)}" for key, inner in value.items()) + " }"
    # JSON's scalars are Lua's.
    return json.dumps(value)


def agent(
    policy: Policy,
    node: Node,
    index: int,
    ports: Ports,
    directory: Path,
    placement: dict[str, Any] | None = None,
    partition: dict[str, Any] | None = None,
) -> str:
    """agent.toml for the agent of one slave."""
    assert policy.service is not None
    service = {
        "name": "stocks",
        "identities": [f"queries/node{index + 1}"],
        "address": ports.node(index),
        "source": {
            "kind": "prometheus",
            "url": f"http://{ports.node(index)}/metrics",
            "histogram": "stocks_request_duration_seconds",
            "labels": {"class": "query"},
            "failed": "stocks_requests_failed_total",
            "cost": "stocks_items_total",
            "oldest_age": "stocks_oldest_request_age_seconds",
        },
        "jobs": {"kind": "prometheus", "gauge": "stocks_jobs"},
    }
    config = {"agent": {"period": "1s"}} | of_node(policy, index, ports, directory / f"{node.name}.control")
    if ports.orca is not None:
        config["envoy"] = {"orca_listen": f"{ports.host(index)}:{ports.orca}"}
    elif policy.asks_agents:
        config["envoy"] = {"peers": [f"http://127.0.0.1:{port}" for port in ports.agents]}
    if policy.has_ring:
        service["ring"] = {"node": f"node{index + 1}"}
    if policy.has_updates:
        service["updates"] = {
            "url": f"http://{ports.node(index)}/accesses",
            "update_cost": node.update_cost(),
        }
    if placement is not None:
        config["placement"] = placement
    text = with_service(config, merged(service, policy.service))
    return text if partition is None else f"{text}\n[[partition]]\n{toml(partition, 'partition')}"


def listens(agent: int, check: int) -> dict[str, Any]:
    """Listen addresses of an agent."""
    return {
        "http": {"listen": f"127.0.0.1:{agent}"},
        "agent_check": {"listen": f"127.0.0.1:{check}"},
    }


def of_node(policy: Policy, index: int, ports: Ports, control: Path) -> dict[str, Any]:
    """Configuration of a slave's agent, independent of the service."""
    config = listens(ports.agents[index], ports.checks[index]) | {"control": {"socket": str(control)}}
    if policy.has_ring and ports.sentinels:
        urls = [f"redis://{address}" for address in addresses(ports.sentinels)]
        config["redis"] = {"urls": urls, "mode": "sentinel", "sentinel_master": SENTINELS_NAME}
    elif policy.has_ring:
        config["redis"] = {"urls": [f"redis://127.0.0.1:{ports.redis}"]}
    return config


def with_service(config: dict[str, Any], service: dict[str, Any]) -> str:
    """agent.toml with one service."""
    return toml(config) + "\n[[service]]\n" + toml(service, "service")


def toml(table: dict[str, Any], path: str = "") -> str:
    """Nested tables of strings, numbers, booleans and lists of them as TOML."""
    # JSON's scalars, and lists of them, are TOML's.
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    lines = [f"{toml_key(key)} = {json.dumps(value)}" for key, value in plain.items()]
    for key, value in table.items():
        if isinstance(value, dict):
            name = f"{path}.{toml_key(key)}" if path else toml_key(key)
            lines += ["", f"[{name}]", toml(value, name).strip("\n")]
    return "\n".join(lines) + "\n"


def toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)
