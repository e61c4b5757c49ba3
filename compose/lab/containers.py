"""Configurations for the programs of compose/compose.yaml, from the same examples as the lab without
containers, and Grafana's dashboards: `python -m compose.lab.containers --out DIRECTORY`."""

import argparse
import secrets
import sys
from pathlib import Path

import yaml

from compose.lab import envoy, render, topology
from compose.lab.errors import LabError
from dashboards import ALL
from dashboards.parts import encoded

# Network of compose.yaml.
SUBNET = "172.31.77"
REDIS, MASTER, FIRST_NODE = 10, 20, 21
# The examples' own ports, by whose they are.
OPEN_PORTS = (8080, 8404, 9901)
NODE_PORTS = (8101, 9101, 9601)
AGENT_POLICY = "lua-fc-hash"
# Roles in compose/postgres/roles.sql.
ROLES = ("stocks", "replicator")


def addresses(slaves: int) -> dict[int, tuple[str, int]]:
    """Address in the network of each program that the examples have at a port of 127.0.0.1."""
    found = {port: ("0.0.0.0", port) for port in OPEN_PORTS}
    found |= {6379: (f"{SUBNET}.{REDIS}", 6379), 8100: (f"{SUBNET}.{MASTER}", 8100)}
    for index in range(slaves):
        found |= {port + index: (f"{SUBNET}.{FIRST_NODE + index}", port + index) for port in NODE_PORTS}
    return found


def ports(slaves: int) -> render.Ports:
    """The examples' own."""
    each = ([first + index for index in range(slaves)] for first in NODE_PORTS)
    return render.Ports(8080, 8404, 8100, 8200, *each, 6379)


def chosen(name: str, proxy: str) -> render.Policy:
    (policy,) = render.policies([name])
    if policy.proxy != proxy:
        raise LabError(f"{name}: is a policy of {policy.proxy}, not of {proxy}")
    if policy.orca:
        raise LabError(f"{name}: needs an address for each agent's load reports, which the containers lack")
    return policy


def configurations(haproxy: str, on_envoy: str) -> dict[str, str]:
    """The text of each file by its name, for a policy of each proxy."""
    nodes = topology.load("burst").slaves
    moved = addresses(len(nodes))
    (agents,) = render.policies([AGENT_POLICY])
    files = {
        f"{node.name}.toml": envoy.relocated(
            render.agent(agents, node, index, ports(len(nodes)), Path("/run/plimsoll")), moved
        )
        for index, node in enumerate(nodes)
    }
    example = chosen(haproxy, "haproxy").example
    files["haproxy.cfg"] = envoy.relocated(example.read_text(), moved)
    files["plimsoll.lua"] = envoy.relocated((render.EXAMPLES / "plimsoll.lua").read_text(), moved)
    policy = chosen(on_envoy, "envoy")
    config = yaml.safe_load(policy.example.read_text())
    for path, value in policy.settings.items():
        envoy.change(config, path, value, policy.example)
    files["envoy.yaml"] = yaml.safe_dump(envoy.relocated(config, moved), sort_keys=False, width=110)
    files |= {f"dashboards/{name}.json": encoded(dashboard()) for name, dashboard in ALL.items()}
    return files


def make_passwords(directory: Path) -> None:
    """One for each role of the databases; those that are there stay, since the databases know them."""
    for role in ROLES:
        path = directory / role
        if not path.exists():
            path.write_text(secrets.token_urlsafe(32) + "\n")
            # Read by users of other containers; only those that need it have the volume.
            path.chmod(0o444)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m compose.lab.containers", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where the files go")
    parser.add_argument("--secrets", type=Path, help="where passwords for the databases go")
    parser.add_argument(
        "--haproxy", default="lua-fc-hash", help="HAProxy's policy, of loadtests/policies.toml"
    )
    parser.add_argument("--envoy", default="wasm-fc-hash", help="Envoy's policy, of the same")
    arguments = parser.parse_args()
    try:
        files = configurations(arguments.haproxy, arguments.envoy)
        (arguments.out / "dashboards").mkdir(exist_ok=True)
        for name, text in files.items():
            (arguments.out / name).write_text(text)
        if arguments.secrets:
            make_passwords(arguments.secrets)
    except (LabError, OSError) as error:
        print(f"containers: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
