"""HAProxy without Plimsoll, and with each of its tiers."""

from collections.abc import Callable
from pathlib import Path

from loadtests.bench.site import CLUSTER, Site
from tests.harness import ROOT
from tests.harness.eventually import eventually
from tests.harness.haproxy import HAProxy
from tests.harness.ports import free_ports

BASE = "none"
CONFIG = """\
global
    nbthread {threads}
    maxconn 4000
    max-spread-checks 1000
    stats socket {directory}/haproxy.sock mode 660 level admin
{load}
defaults
    mode http
    timeout connect 1s
    timeout client 10s
    timeout server 10s
    timeout queue 1s
frontend web
    bind 127.0.0.1:{port}
{service}    default_backend queries
backend queries
    balance leastconn
    http-reuse always
{rules}
"""
LOAD = """\
    lua-prepend-path {root}/lua/?.lua
    lua-prepend-path {root}/lua/?/init.lua
    lua-load-per-thread {directory}/plimsoll.lua
"""
SETTINGS = """\
require("plimsoll").start({{
  cluster = "{cluster}", backend = "queries", proxy = "{name}", {policy}
  redis = {{ addresses = {{ "127.0.0.1:{redis}" }} }},
}})
"""
# Serves the library's metrics.
SERVICE = "    http-request use-service lua.plimsoll_metrics if { path /plimsoll/metrics }\n"
SNIPPETS = ROOT / "haproxy" / "snippets"


def none(_site: Site, _name: str, _directory: Path) -> tuple[str, str]:
    return "", ""


def hashed(_site: Site, _name: str, _directory: Path) -> tuple[str, str]:
    """By the same key as the full policy."""
    return "", "    balance hash path,field(3,/)\n    hash-type consistent\n"


def agent_check(site: Site, _name: str, _directory: Path) -> tuple[str, str]:
    """All servers ask the one agent there is."""
    return (
        "",
        f"    default-server weight 100 agent-check agent-port {site.agent.check_port} agent-inter 1s\n",
    )


def limits(site: Site, name: str, directory: Path) -> tuple[str, str]:
    load = lua_load(site, name, directory, 'policy = "limits",')
    return load, "    default-server weight 100\n"


def lua(site: Site, name: str, directory: Path) -> tuple[str, str]:
    load = lua_load(site, name, directory)
    return load, "    default-server weight 100\n" + (SNIPPETS / "lua-policy.cfg").read_text()


def lua_load(site: Site, name: str, directory: Path, policy: str = "") -> str:
    """Lines of `global` that load the library; `policy` are its other settings."""
    text = SETTINGS.format(cluster=CLUSTER, name=name, policy=policy, redis=site.redis.port)
    (directory / "plimsoll.lua").write_text(text)
    return LOAD.format(root=ROOT, directory=directory)


# Lines of `global` and of the backend.
KINDS: dict[str, Callable[[Site, str, Path], tuple[str, str]]] = {
    BASE: none,
    "by-key": hashed,
    "agent-check": agent_check,
    "limits": limits,
    "lua": lua,
}


def launch(site: Site, directory: Path, threads: int, load: str, rules: str) -> HAProxy:
    """One in front of all nodes, with these lines in `global` and in the backend."""
    (port,) = free_ports(1)
    servers = "".join(
        f"    server {site.name(number)} 127.0.0.1:{at}\n" for number, at in enumerate(site.ports)
    )
    config = CONFIG.format(
        threads=threads,
        directory=directory,
        load=load,
        port=port,
        service=SERVICE if load else "",
        rules=rules + servers,
    )
    return HAProxy(site.stack, directory, config).start()


def start(site: Site, kind: str, threads: int) -> HAProxy:
    name = f"{kind}{threads}"
    directory = site.directory / name
    directory.mkdir()
    load, rules = KINDS[kind](site, name, directory)
    haproxy = launch(site, directory, threads, load, rules)
    if load:
        eventually("shares", lambda: site.has_shares(name))
    return haproxy
