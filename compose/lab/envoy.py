"""Envoy configurations from the examples, and Envoy's own view over its admin interface."""

import http.client
import json
import re
import subprocess
import urllib.request
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from compose.lab import machine
from compose.lab.errors import LabError
from compose.lab.proxy import Server
from compose.lab.render import Ports

# Plimsoll's extensions, by the files' names in the examples.
BUILT = {"envoy_wasm.wasm": machine.wasm, "libplimsoll.so": machine.dynamic_module}
# Clusters with an endpoint a slave; the others are used as they are.
PER_SLAVE = ("queries", "plimsoll_agents")
NONE: Mapping[str, Callable[[], Path]] = {}
_ADDRESS = re.compile(r"\b127\.0\.0\.1:(\d+)\b")


@dataclass(frozen=True)
class Envoy:
    frontend: int
    command: list[str]
    admin: int
    nodes: dict[int, str]

    @classmethod
    def checked(cls, text: str, example: Path, ports: Ports, run: Path, name: str, concurrency: int) -> Self:
        """One with this configuration, which is written into `run` and which Envoy takes."""
        config = run / f"{name}.yaml"
        config.write_text(text)
        done = subprocess.run(
            [machine.envoy(), "-c", str(config), "--mode", "validate", "--log-level", "error"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LabError(f"Envoy refuses {example} as rendered:\n{done.stderr}{done.stdout}")
        nodes = {port: f"node{index + 1}" for index, port in enumerate(ports.slaves)}
        return cls(ports.frontend, foreground(config, concurrency), ports.stats, nodes)

    @property
    def metrics(self) -> int:
        return self.admin

    def servers(self) -> dict[str, Server]:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.admin}/clusters?format=json", timeout=0.8
            ) as answer:
                return servers(json.load(answer), self.nodes)
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            return {}


def servers(view: dict[str, Any], nodes: dict[int, str]) -> dict[str, Server]:
    """Envoy's hosts of cluster queries, by the node on their port."""
    found = {}
    for cluster in view.get("cluster_statuses", []):
        for host in cluster.get("host_statuses", []) if cluster.get("name") == "queries" else []:
            port = host.get("address", {}).get("socket_address", {}).get("port_value")
            health = host.get("health_status", {})
            healthy = health.get("eds_health_status", "HEALTHY") in ("HEALTHY", "UNKNOWN")
            up = healthy and not any(value is True for value in health.values())
            if port in nodes:
                found[nodes[port]] = Server(up, str(host.get("weight", "")))
    return found


def prepare(
    example: Path, ports: Ports, run: Path, name: str, settings: dict[str, Any], concurrency: int
) -> Envoy:
    """An Envoy with an example's configuration."""
    return Envoy.checked(render(example, ports, name, settings), example, ports, run, name, concurrency)


def foreground(config: Path, concurrency: int) -> list[str]:
    options = ["--disable-hot-restart", "--concurrency", str(concurrency), "--log-level", "warning"]
    return [machine.envoy(), "-c", str(config), *options]


def render(example: Path, ports: Ports, name: str, settings: dict[str, Any]) -> str:
    """An example with this lab's addresses and settings; its first endpoint is repeated for every slave."""
    try:
        config = yaml.safe_load(example.read_text())
    except yaml.YAMLError as error:
        raise LabError(f"{example}: {error}") from error
    try:
        config["node"]["id"] = name
        clusters = {cluster["name"]: cluster for cluster in config["static_resources"]["clusters"]}
        for cluster in (clusters[wanted] for wanted in PER_SLAVE if wanted in clusters):
            if "load_assignment" in cluster:
                expand(cluster, len(ports.slaves))
    except (KeyError, TypeError, IndexError) as error:
        raise LabError(f"{example}: has no {error}; the lab needs it") from error
    for path, value in settings.items():
        change(config, path, value, example)
    return yaml.safe_dump(relocated(config, moves(ports), BUILT), sort_keys=False, width=110)


def expand(cluster: dict[str, Any], slaves: int) -> None:
    """One endpoint a slave, after the first; each of a priority of its own where the example has it so."""
    assignment = cluster["load_assignment"]
    groups = assignment["endpoints"]
    first = groups[0]["lb_endpoints"][0]
    made = [deepcopy(first) for _ in range(slaves)]
    for index, entry in enumerate(made):
        entry["endpoint"]["address"]["socket_address"]["port_value"] += index
        if "hostname" in entry["endpoint"]:
            entry["endpoint"]["hostname"] = f"node{index + 1}"
    if len(groups) == 1:
        groups[0]["lb_endpoints"] = made
    else:
        groups[:] = [
            groups[0] | {"priority": index, "lb_endpoints": [entry]} for index, entry in enumerate(made)
        ]


def moves(ports: Ports) -> dict[int, tuple[str, int]]:
    """This lab's address for each port of the examples."""
    fixed = {8080: ports.frontend, 9901: ports.stats, 8100: ports.master, 9701: ports.orca or 9701}
    fixed |= {9601 + index: port for index, port in enumerate(ports.agents)}
    moved = {old: ("127.0.0.1", new) for old, new in fixed.items()}
    return moved | {8101 + index: (ports.host(index), port) for index, port in enumerate(ports.slaves)}


def relocated(
    value: Any, moved: dict[int, tuple[str, int]], built: Mapping[str, Callable[[], Path]] = NONE
) -> Any:
    """A copy with other addresses, and with extensions where they are `built`, by their files' names."""
    if isinstance(value, dict):
        copied = {key: relocated(inner, moved, built) for key, inner in value.items()}
        if "port_value" in value:
            host, copied["port_value"] = moved.get(value["port_value"], (None, value["port_value"]))
            if host and "address" in value:
                copied["address"] = host
        return copied
    if isinstance(value, list):
        return [relocated(inner, moved, built) for inner in value]
    if isinstance(value, str):
        if find := built.get(value.rpartition("/")[2]):
            return str(find())
        return _ADDRESS.sub(lambda at: "{}:{}".format(*moved.get(int(at[1]), ("127.0.0.1", at[1]))), value)
    return value


def change(config: Any, path: str, value: Any, example: Path) -> None:
    """Sets what `path` names: its first word occurs once, lists are entered by their elements' names."""
    first, *rest = path.split(".")
    places = list(holders(config, first))
    if len(places) != 1 or not rest:
        raise LabError(f"{example}: {path}: {first!r} is there {len(places)} times instead of once")
    try:
        places[0][first] = put(places[0][first], rest, value)
    except (LookupError, TypeError, ValueError) as error:
        raise LabError(f"{example}: {path}: {error}") from error


def put(place: Any, words: list[str], value: Any) -> Any:
    """`place` with a value where `words` lead; a mapping that is not there is made, for Envoy to judge."""
    if not words:
        return value
    if isinstance(place, str):
        return json.dumps(put(json.loads(place), words, value))
    if isinstance(place, list):
        names = [item.get("name") for item in place]
        # A list of one without a name is looked through.
        if names == [None]:
            return [put(place[0], words, value)]
        chosen = names.index(words[0])
        return [put(item, words[1:], value) if n == chosen else item for n, item in enumerate(place)]
    if not isinstance(place, dict):
        raise TypeError(f"there is nothing to set {words[0]!r} in")
    return place | {words[0]: put(place.get(words[0], {}), words[1:], value)}


def holders(value: Any, key: str) -> Any:
    """Mappings that have `key`, however deep."""
    if isinstance(value, dict):
        if key in value:
            yield value
        for inner in value.values():
            yield from holders(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from holders(inner, key)
