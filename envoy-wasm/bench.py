"""What the filter costs, and whether it stays right: `python envoy-wasm/bench.py cost|keys|soak`.

`cost` prints Envoy's peak request rate with the filter over that with one that does nothing, for one and two
workers, the CPU that a request takes, the module's size, what a worker's memory grows by and how long a new
ring keeps a worker. Each figure is the median of alternating rounds. `keys` asks for a million keys and says
how many went elsewhere than to the owner of their slot in Redis' ring. `soak` runs at full rate and says
whether memory grows and whether anything is left in flight. wrk, Redis, the agents, Envoy and the nodes share
the machine.
"""

import argparse
import copy
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import redis  # noqa: E402
import yaml  # noqa: E402

from compose.lab import machine  # noqa: E402
from compose.lab.processes import answers, cpu_seconds, free_ports, start_tied, wait_until  # noqa: E402
from lua.bench import CONNECTIONS, NODES, ROUNDS, SCRIPT, SECONDS, resident_mib, wrk  # noqa: E402
from lua.tests.conftest import Cluster, owner  # noqa: E402

RATIO, MAX_CPU_US, MAX_MODULE_KIB, MAX_STALL_MS = 0.85, 10, 1024, 2
WASM = ROOT / "target" / "wasm32-wasip1" / "release"
MODULES = {"noop": WASM / "examples" / "noop.wasm", "filter": WASM / "envoy_wasm.wasm"}
NODES_CONFIG = """\
defaults
    mode http
    timeout client 10s
"""
NODE = """\
frontend node{number}
    bind 127.0.0.1:{port}
    http-request return status 200 hdr x-items 80 hdr x-node {number} hdr x-key %[path,field(3,/)] content-type text/plain string "ok"
"""  # noqa: E501
AGENT = """\
[http]
listen = "127.0.0.1:{http}"
[agent_check]
listen = "127.0.0.1:{check}"
on_shutdown = "hold"
[redis]
urls = ["redis://127.0.0.1:{redis}"]
[[service]]
name = "stocks"
address = "127.0.0.1:{node}"
[service.sla]
delay = "1s"
[service.bound]
nominal = 1000000
[service.controller]
kind = "fixed"
[service.source]
kind = "proxies"
[service.ring]
cluster = "stocks"
node = "node{number}"
"""
# Asks for key after key, and counts the answers that came from another node than the file says.
KEYS_SCRIPT = """\
local file = io.open("{file}")
local expected = file:read("a")
file:close()
-- wrk makes the first request only to look at it.
local asked = -1
local right, wrong = 0, 0
request = function()
  asked = asked + 1
  return wrk.format("GET", "/stock/" .. asked .. "?items=1")
end
response = function(status, headers)
  local key = tonumber(headers["x-key"])
  if not key then
    wrong = wrong + 1
  elseif key >= 1 and key <= #expected then
    if status == 200 and expected:sub(key, key) == headers["x-node"] then
      right = right + 1
    else
      wrong = wrong + 1
    end
  end
  if right + wrong == #expected then
    -- wrk itself would wait for the end of its time.
    print(("KEYS %d %d"):format(right, wrong))
    io.stdout:flush()
    os.exit(0)
  end
end
"""


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def config(kind: str, ports: dict[str, list[int]]) -> dict[str, Any]:
    """The example's; with `noop` another module in its places, with `plain` no module at all."""
    text = (ROOT / "envoy-wasm" / "examples" / "wasm-fc-hash.yaml").read_text()
    text = text.replace("/usr/share/plimsoll/envoy_wasm.wasm", str(MODULES.get(kind, "")))
    given = yaml.safe_load(text)
    resources = given["static_resources"]
    for cluster in resources["clusters"]:
        cluster["load_assignment"]["endpoints"][0]["lb_endpoints"] = [
            {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}
            for port in ports[cluster["name"]]
        ]
        cluster.pop("health_checks", None)
    listener = resources["listeners"][0]
    listener["address"]["socket_address"]["port_value"] = ports["listener"][0]
    given["admin"]["address"]["socket_address"]["port_value"] = ports["admin"][0]
    given["node"]["id"] = kind
    if kind == "plain":
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        router = manager["http_filters"][-1]
        router["typed_config"].pop("upstream_http_filters")
        manager["http_filters"] = [router]
        routes = manager["route_config"]["virtual_hosts"][0]["routes"]
        routes[0].pop("typed_per_filter_config")
        policy = resources["clusters"][0]["load_balancing_policy"]["policies"][0]["typed_extension_config"]
        fallback = copy.deepcopy(policy["typed_config"]["fallback_policy"])
        resources["clusters"][0]["load_balancing_policy"] = fallback
    return given


def stats(admin: int) -> dict[str, float]:
    url = f"http://127.0.0.1:{admin}/stats?format=json&filter=plimsoll"
    with urllib.request.urlopen(url, timeout=5) as answer:
        found = json.load(answer)["stats"]
    return {
        stat["name"].split(".")[1].removeprefix("plimsoll_"): stat["value"]
        for stat in found
        if "value" in stat
    }


def start_envoy(
    stack: ExitStack, run: Path, kind: str, workers: int, shared: dict[str, list[int]]
) -> tuple[int, int, int]:
    """Its process, and the ports of its listener and of its admin interface."""
    listener, admin = free_ports(2)
    path = run / f"{kind}{workers}.yaml"
    path.write_text(yaml.safe_dump(config(kind, shared | {"listener": [listener], "admin": [admin]})))
    command = [machine.envoy(), "-c", str(path), "--disable-hot-restart", "-l", "warn"]
    process = start_tied([*command, "--concurrency", str(workers)], {}, path.with_suffix(".log"))
    stack.callback(process.kill)
    wait_until(kind, lambda: answers(f"http://127.0.0.1:{admin}/ready"), 30, lambda: None)
    return process.pid, listener, admin


def wait_shares(cluster: Cluster, workers: int) -> None:
    """Until so many workers have a share of every bound."""

    def have() -> bool:
        shares = cluster.server.hvals(cluster.shares)
        return len(shares) >= workers * NODES and all(float(share.split()[0]) > 0 for share in shares)

    wait_until("shares", have, 30, lambda: None)
    # Their news is on its way to the workers for less than this.
    time.sleep(1)


def measure(
    workers: int, run: Path, stack: ExitStack, shared: dict[str, list[int]], cluster: Cluster
) -> dict[str, float]:
    pids, ports = {}, {}
    for kind in ("plain", "noop", "filter"):
        pids[kind], ports[kind], admin = start_envoy(stack, run, kind, workers, shared)
    # The one of the measurement before is still there.
    wait_shares(cluster, workers if workers == 1 else workers + 1)
    rates: dict[str, list[float]] = {kind: [] for kind in ports}
    cpus: dict[str, list[float]] = {kind: [] for kind in ports}
    delays: dict[str, list[float]] = {kind: [] for kind in ports}
    before = None
    for turn in range(ROUNDS + 1):
        for kind, port in ports.items():
            cpu = cpu_seconds(pids[kind])
            rate, _ = wrk(port, run, CONNECTIONS)
            rates[kind].append(rate)
            cpus[kind].append(1e6 * (cpu_seconds(pids[kind]) - cpu) / (rate * SECONDS))
        for kind, port in ports.items():
            delays[kind].append(wrk(port, run, 1)[1])
        if turn == 0:
            # The first round warms up: connections, and shares of the bounds.
            before = stats(admin)
    decided, undecided = (stats(admin)[name] - before[name] for name in ("admitted_total", "undecided_total"))
    middle = lambda seen: statistics.median(seen[1:])  # noqa: E731
    ratios = [own / other for other, own in zip(rates["noop"][1:], rates["filter"][1:], strict=True)]
    ratio = statistics.median(ratios)
    print(
        f"{workers} worker{'s' if workers > 1 else ' '}"
        f"  {middle(rates['plain']):8,.0f} plain {middle(rates['noop']):8,.0f} no-op"
        f" {middle(rates['filter']):8,.0f} filter requests/s"
        f"\n           to no-op {ratio:.2f} ({min(ratios):.2f}..{max(ratios):.2f})"
        f"   target >= {RATIO}   {verdict(ratio >= RATIO)}"
    )
    added = [own - other for other, own in zip(cpus["noop"][1:], cpus["filter"][1:], strict=True)]
    cpu = statistics.median(added)
    print(
        f"           CPU a request {middle(cpus['plain']):.1f} plain, {middle(cpus['noop']):.1f} no-op,"
        f" {middle(cpus['filter']):.1f} us: {cpu:+.1f} us to no-op ({min(added):+.1f}..{max(added):+.1f})"
        f"   target <= {MAX_CPU_US}   {verdict(cpu <= MAX_CPU_US)}"
    )
    print(
        f"           median latency at one connection {middle(delays['plain']):.0f} plain,"
        f" {middle(delays['noop']):.0f} no-op, {middle(delays['filter']):.0f} us"
    )
    print(f"           {decided:,.0f} requests decided by the filter, {undecided:,.0f} by the fallback")
    applied = stats(admin)["ring_applied_microseconds"] / 1000
    print(
        f"           a new ring of 16,384 slots keeps a worker {applied:.2f} ms   target <= {MAX_STALL_MS}"
        f"   {verdict(applied <= MAX_STALL_MS)}"
    )
    return {kind: resident_mib(pid) for kind, pid in pids.items()}


def start_site(stack: ExitStack, run: Path) -> tuple[Cluster, dict[str, list[int]]]:
    """Redis, nodes and their agents; the ports of Envoy's clusters."""
    port, *nodes = free_ports(1 + NODES)
    agents, checks = free_ports(NODES), free_ports(NODES)
    command = [machine.redis(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(run)]
    stack.callback(start_tied(command, {}, run / "redis.log").kill)
    frontends = [NODE.format(number=number, port=port) for number, port in enumerate(nodes)]
    (run / "nodes.cfg").write_text(NODES_CONFIG + "".join(frontends))
    command = [machine.haproxy(), "-db", "-f", str(run / "nodes.cfg")]
    stack.callback(start_tied(command, {}, run / "nodes.log").kill)
    for number, (agent, check, node) in enumerate(zip(agents, checks, nodes, strict=True)):
        path = run / f"agent{number}.toml"
        path.write_text(AGENT.format(http=agent, check=check, redis=port, node=node, number=number))
        command = [machine.binary("plimsoll"), "agent", "--config", str(path)]
        stack.callback(start_tied(command, {}, path.with_suffix(".log")).kill)
    cluster = Cluster(redis.Redis(port=port), "stocks")

    def all_in_the_ring() -> bool:
        try:
            return len(cluster.ring_or_none() or ()) == NODES
        except redis.RedisError:
            return False

    wait_until("a ring", all_in_the_ring, 20, lambda: None)
    return cluster, {"queries": nodes, "transactions": nodes[:1], "plimsoll_agents": agents}


def cost(run: Path, stack: ExitStack) -> None:
    size = MODULES["filter"].stat().st_size / 1024
    print(f"module {size:.0f} KiB   target <= {MAX_MODULE_KIB}   {verdict(size <= MAX_MODULE_KIB)}")
    cluster, shared = start_site(stack, run)
    memory = {workers: measure(workers, run, stack, shared, cluster) for workers in (1, 2)}
    for kind in ("noop", "filter"):
        more = memory[2][kind] - memory[1][kind]
        print(f"memory {kind}: {memory[1][kind]:.1f} MiB with one worker, {more:+.1f} MiB for another")


def keys(run: Path, stack: ExitStack, count: int) -> None:
    cluster, shared = start_site(stack, run)
    _, port, _ = start_envoy(stack, run, "filter", 2, shared)
    wait_shares(cluster, 2)
    before = cluster.ring()
    _, _, names, owners = before
    digits = (owner(str(key), names, owners).removeprefix("node") for key in range(1, count + 1))
    (run / "expected").write_text("".join(digits))
    (run / "wrk.lua").write_text(KEYS_SCRIPT.format(file=run / "expected"))
    command = ["wrk", "-t1", "-c32", "-d3600s", "-s", str(run / "wrk.lua"), f"http://127.0.0.1:{port}/"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    right, wrong = map(int, re.search(r"KEYS (\d+) (\d+)", out).groups())
    same = cluster.ring() == before
    print(
        f"{right + wrong:,} of {count:,} keys answered, {wrong} by another node than the owner in Redis"
        f"{'' if same else ' (but the ring changed meanwhile)'}   target 0   {verdict(same and wrong == 0)}"
    )


def soak(run: Path, stack: ExitStack, seconds: int) -> None:
    cluster, shared = start_site(stack, run)
    pid, port, admin = start_envoy(stack, run, "filter", 2, shared)
    wait_shares(cluster, 2)
    # V8 and the allocator settle in the first part.
    part = max(seconds // 10, 1)
    sizes, rates = [], []
    for _ in range(10):
        rates.append(wrk(port, run, CONNECTIONS, part)[0])
        sizes.append(resident_mib(pid))
    wait_until(
        "nothing in flight",
        lambda: stats(admin)["in_flight_requests"] == 0 == stats(admin)["in_flight_cost"],
        10,
        lambda: None,
    )
    growth = sizes[-1] - sizes[0]
    print(
        f"{10 * part} s at {statistics.mean(rates):,.0f} requests/s:"
        f" {', '.join(f'{size:.1f}' for size in sizes)} MiB;"
        f" grew by {growth:+.1f} MiB after the first tenth; in flight at the end: 0"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("cost", "keys", "soak"), nargs="?", default="cost")
    parser.add_argument("--keys", type=int, default=1_000_000, help="how many keys (%(default)s)")
    parser.add_argument("--seconds", type=int, default=600, help="how long to soak (%(default)s s)")
    asked = parser.parse_args()
    if not shutil.which("wrk"):
        print("bench: wrk is not on the PATH; run `make tools`", file=sys.stderr)
        return 1
    with ExitStack() as stack:
        run = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plimsoll-bench-")))
        (run / "wrk.lua").write_text(SCRIPT)
        if asked.what == "cost":
            cost(run, stack)
        elif asked.what == "keys":
            keys(run, stack, asked.keys)
        else:
            soak(run, stack, asked.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
