"""What placement costs in HAProxy: its peak rate of writes with it over that without it, in one run.

`python -m lua.bench_placement` prints the ratio for one and two threads, and the median latency of one
connection. Each figure is the median of alternating rounds; wrk, Redis, HAProxy and the nodes share the
machine. Both configurations end each connection to a node with its answer, as the snippet has it.
"""

import socket
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from compose.lab.processes import free_ports, wait_until
from compose.lab.topology import ROOT
from lua.bench import CONNECTIONS, NODES, start_haproxy, start_nodes, start_redis, wrk
from lua.tests.primaries import Keeper

ROUNDS, SECONDS = 5, 2
CONFIG = """\
global
    nbthread {threads}
    stats socket {run}/{name}.sock mode 660 level admin
{load}
defaults
    mode http
    timeout connect 1s
    timeout client 10s
    timeout server 10s
frontend web
    bind 127.0.0.1:{port}
    default_backend transactions
backend transactions
    balance roundrobin
    option http-server-close
{rules}
"""
LOAD = """\
    lua-prepend-path {root}/lua/?.lua
    lua-prepend-path {root}/lua/?/init.lua
    lua-load-per-thread {run}/{name}.lua
"""
RULES = (ROOT / "haproxy" / "snippets" / "placement.cfg").read_text()
SCRIPT = """\
local n = 0
request = function()
  n = n + 1
  local headers = { ["x-object-set"] = "customers/" .. n % 3000 }
  return wrk.format("POST", "/purchase?items=80", headers, "ok")
end
"""


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start(stack: ExitStack, run: Path, name: str, threads: int, nodes: list[int], redis_port: int) -> int:
    (port,) = free_ports(1)
    placed = name.startswith("placed")
    (run / f"{name}.lua").write_text(
        f'require("plimsoll").start({{ cluster = "test", proxy = "{name}", '
        f'redis = {{ addresses = {{ "127.0.0.1:{redis_port}" }} }}, '
        'placement = { backend = "transactions" } })\n'
    )
    lines = "".join(f"    server node{n + 1} 127.0.0.1:{at}\n" for n, at in enumerate(nodes))
    load = LOAD.format(root=ROOT, run=run, name=name) if placed else ""
    rules = (RULES if placed else "") + lines
    config = CONFIG.format(threads=threads, run=run, name=name, port=port, load=load, rules=rules)
    start_haproxy(stack, run, name, config)
    wait_until(name, lambda: listens(port), 10, lambda: None)
    return port


def measure(stack: ExitStack, run: Path, threads: int, nodes: list[int], keeper: Keeper, at: int) -> None:
    ports = {name: start(stack, run, f"{name}{threads}", threads, nodes, at) for name in ("plain", "placed")}
    joined = lambda: sum(f"placed{threads}/" in name for name in keeper.read()[0]) == threads  # noqa: E731
    wait_until("the table", joined, 10, lambda: None)
    rates: dict[str, list[float]] = {name: [] for name in ports}
    delays: dict[str, list[float]] = {name: [] for name in ports}
    for _ in range(ROUNDS + 1):
        for name, port in ports.items():
            rates[name].append(wrk(port, run, CONNECTIONS, SECONDS)[0])
            delays[name].append(wrk(port, run, 1, SECONDS)[1])
    # The first round warms up.
    ratios = [placed / plain for plain, placed in zip(rates["plain"][1:], rates["placed"][1:], strict=True)]
    rate = {name: statistics.median(seen[1:]) for name, seen in rates.items()}
    delay = {name: statistics.median(seen[1:]) for name, seen in delays.items()}
    print(
        f"{threads} thread(s)  {rate['plain']:,.0f} -> {rate['placed']:,.0f} writes/s, ratio "
        f"{rate['placed'] / rate['plain']:.2f} ({min(ratios):.2f}..{max(ratios):.2f}); median "
        f"{delay['plain']:.0f} -> {delay['placed']:.0f} us at one connection"
    )


def main() -> int:
    with ExitStack() as stack:
        run = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plimsoll-bench-")))
        (run / "wrk.lua").write_text(SCRIPT)
        client, port = start_redis(stack, run, "placement.lua")
        nodes = start_nodes(stack, run)
        keeper = Keeper(client)
        keeper.open({f"*{rest}": f"node{rest % NODES + 1}" for rest in range(64)})
        for threads in (1, 2):
            measure(stack, run, threads, nodes, keeper, port)
    return 0


if __name__ == "__main__":
    sys.exit(main())
