"""Nodes, roles and flags from compose/topology.toml."""

import functools
import operator
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from compose.lab.errors import LabError

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGY = ROOT / "compose" / "topology.toml"
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Node:
    """A data node: `flags` are those of `stocks serve`, without the dashes."""

    name: str
    role: str
    flags: dict[str, str | int | float] = field(default_factory=dict)

    def arguments(self) -> list[str]:
        words = []
        for flag, value in self.flags.items():
            words += [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
        return words

    def capacity(self, hit_ratio: float, updates: float = 0.0) -> float:
        """Items/s at this cache hit ratio, from the flags, beside this many updates/s."""
        per_item = seconds(self.flags["process-latency"]) + (1 - hit_ratio) * seconds(
            self.flags["read-latency"]
        )
        slowdown = float(self.flags.get("slowdown", 1.0))
        updating = updates * seconds(self.flags.get("update-latency", "0s")) * slowdown
        return max(0.0, float(self.flags["workers"]) - updating) / per_item / slowdown

    def update_cost(self) -> float:
        """Cost of a price update in items; at least 0.001, as agents require more than 0."""
        update = seconds(self.flags.get("update-latency", "0s"))
        return max(round(update / seconds(self.flags["process-latency"]), 6), 1e-3)


@dataclass(frozen=True)
class Topology:
    master: Node
    slaves: list[Node]

    @property
    def nodes(self) -> list[Node]:
        return [self.master, *self.slaves]


def seconds(text: str | int | float) -> float:
    match = re.fullmatch(r"([0-9.]+)(us|ms|s)", str(text))
    if not match:
        raise LabError(f'{text!r} is not a time such as "800us"')
    return float(match[1]) * _UNITS[match[2]]


def load(scenario: str, slaves: int | None = None, path: Path = TOPOLOGY) -> Topology:
    """The topology for a scenario. Slaves beyond those of the file are copies of its last one."""
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise LabError(f"{path}: {error}") from error
    overrides = data.get("scenario", {}).get(scenario, {})
    common = data.get("flags", {})
    nodes = []
    for index, entry in enumerate(data.get("node", [])):
        missing = {"name", "role"} - entry.keys()
        if missing or entry["role"] not in ("master", "slave"):
            what = (
                f"{sorted(missing)} missing"
                if missing
                else f'role {entry["role"]!r} is not "master" or "slave"'
            )
            raise LabError(f"{path}: node {index + 1}: {what}")
        named = [overrides.get(name, {}) for name in dict.fromkeys((entry["role"], entry["name"]))]
        flags = functools.reduce(
            operator.or_, (overrides.get("flags", {}), entry.get("flags", {}), *named), common
        )
        nodes.append(Node(entry["name"], entry["role"], flags))
    masters = [node for node in nodes if node.role == "master"]
    followers = [node for node in nodes if node.role == "slave"]
    if len(masters) != 1 or not followers:
        raise LabError(f"{path}: needs one node of role master and at least one of role slave")
    count = slaves or len(followers)
    for number in range(len(followers) + 1, count + 1):
        followers.append(Node(f"node{number}", "slave", dict(followers[-1].flags)))
    return Topology(masters[0], followers[:count])
