"""Configurations for an application: the examples' and the guide's, less what only the demo service has."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from compose.applab.library import Library
from compose.applab.policies import Policy
from compose.applab.scenario import NODES, SLA_S
from compose.lab import envoy, machine, render
from compose.lab.errors import LabError
from compose.lab.processes import free_ports
from compose.lab.proxy import HAProxy, Proxy
from compose.lab.stack import make_ports
from compose.lab.topology import ROOT

LOG_FORMAT = ROOT / "haproxy" / "snippets" / "log-format.cfg"
# The demo service's: a node that takes writes, and a path that says whether a node is well. A saturated
# process does not answer such a path in time, though it serves: what is checked is that it takes connections.
_TRANSACTIONS = re.compile(r"(?m)^backend transactions\n(?:[ \t].*\n|\n)*")
_DEMO_ONLY = re.compile(r"(?m)^\s+(?:use_backend transactions|option httpchk)\b.*\n")
# Its keys are in the path; an application's requests have none, so the line for these is the only one.
_KEYED = re.compile(r"(?m)^.* path,field\(3,/\),xxh32,.*lua\.plimsoll_admit\n")
_KEYLESS = " unless { path,field(3,/) -m found }"


@dataclass(frozen=True)
class Addresses:
    ports: render.Ports
    # Port at which each agent takes HAProxy's log lines.
    logs: tuple[int, ...]
    # Port of an application's metrics, if it differs from its service port.
    metrics: tuple[int, ...]

    @classmethod
    def free(cls) -> "Addresses":
        more = free_ports(2 * NODES)
        return cls(make_ports(NODES), tuple(more[:NODES]), tuple(more[NODES:]))


def haproxy(policy: Policy, addresses: Addresses, socket: Path) -> str:
    text = render.haproxy(
        policy.base.example.read_text(), addresses.ports, socket, policy.base.settings.get("maxconn")
    )
    text = _KEYED.sub("", _DEMO_ONLY.sub("", _TRANSACTIONS.sub("", text))).replace(_KEYLESS, "")
    for setting, words in (("balance", "balance"), ("timeout_queue", "timeout queue")):
        if value := policy.base.settings.get(setting):
            text, found = re.subn(rf"(?m)^(\s+{words} ).+$", rf"\g<1>{value}", text)
            if found != 1:
                raise LabError(f"{policy.base.example} has {found} `{words}` lines, not one")
    if header := policy.base.settings.get("classes"):
        text = with_classes(text, header, policy.base.example)
    if policy.source != "haproxy-log":
        return text
    snippet = LOG_FORMAT.read_text()
    lines, found = re.subn(
        r"(?m)^(\s+log )\S+( .*\n)",
        lambda line: "".join(f"{line[1]}127.0.0.1:{port}{line[2]}" for port in addresses.logs),
        snippet,
    )
    text, frontends = re.subn(r"(?m)^frontend stocks\n", lambda line: line[0] + lines, text)
    if found != 1 or frontends != 1:
        raise LabError(
            f"{LOG_FORMAT} has {found} `log` lines and {policy.base.example} {frontends} frontends, not one"
        )
    return text


def with_classes(text: str, header: str, example: Path) -> str:
    """The same, with a request's class from a header, for the Lua policy or HAProxy's queue."""
    told = f"http-request set-var(txn.plimsoll_class) req.hdr({header})"
    text, found = re.subn(
        r"(?m)^(\s+)(http-request set-var\(txn\.plimsoll\) str\(-\),)",
        rf'\1{told}\n\1\2concat("/",txn.plimsoll_class),',
        text,
    )
    if not found:
        rule = f"http-request set-priority-class int(100) if {{ req.hdr({header}) 3 }}"
        text, found = re.subn(r"(?m)^(\s+)(balance .*\n)", rf"\1\2\1{rule}\n", text)
    if found != 1:
        raise LabError(f"{example} has {found} places for classes, not one")
    return text


def envoy_yaml(policy: Policy, addresses: Addresses, name: str) -> str:
    base = policy.base
    config = yaml.safe_load(envoy.render(base.example, addresses.ports, name, base.settings))
    resources = config["static_resources"]
    resources["clusters"] = [one for one in resources["clusters"] if one["name"] != "transactions"]
    for cluster in resources["clusters"]:
        for check in cluster.get("health_checks", []):
            if check.pop("http_health_check", None):
                check["tcp_health_check"] = {}
    for manager in envoy.holders(resources, "virtual_hosts"):
        for host in manager["virtual_hosts"]:
            host["routes"] = [route for route in host["routes"] if route["name"] != "transactions"]
    return yaml.safe_dump(config, sort_keys=False, width=110)


def proxy(policy: Policy, addresses: Addresses, run: Path) -> Proxy:
    """Writes the proxy's configuration into `run`; the proxy itself has checked it."""
    name, ports, example = "lb1", addresses.ports, policy.base.example
    if example.suffix == ".json":
        return Library.written(policy.base, ports, run)
    if policy.base.proxy == "envoy":
        text = envoy_yaml(policy, addresses, name)
        return envoy.Envoy.checked(text, example, ports, run, name, machine.cores())
    if policy.base.has_ring:
        (run / f"{name}.lua").write_text(render.lua(policy.base, ports, name))
    return HAProxy.checked(haproxy(policy, addresses, run / f"{name}.sock"), example, ports, run, name)


def agent(
    policy: Policy,
    index: int,
    addresses: Addresses,
    run: Path,
    metrics: Mapping[str, Any] | None,
    capacity: float,
) -> str:
    """agent.toml of one node; `metrics` is the application's own source, `capacity` in requests/s."""
    assert policy.base.service is not None
    ports, name = addresses.ports, f"queries/node{index + 1}"
    service: dict[str, Any] = {"name": "queries", "identities": [name], "address": ports.node(index)}
    if policy.source == "haproxy-log":
        service["source"] = {"listen": f"udp://127.0.0.1:{addresses.logs[index]}", "node": name}
    elif policy.source == "prometheus":
        if metrics is None:
            raise LabError(f"--policies {policy.name}: the application has no histogram")
        service["source"] = dict(metrics)
    if policy.nominal is not None:
        service["bound"] = {"nominal": round(policy.nominal * capacity * SLA_S, 3)}
    if policy.base.has_ring:
        service["ring"] = {"node": f"node{index + 1}"}
    config = render.of_node(policy.base, index, ports, run / f"node{index + 1}.control")
    return render.with_service(config, render.merged(service, policy.base.service))
