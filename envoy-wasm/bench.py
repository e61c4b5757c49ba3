"""What the filter costs: Envoy's peak request rate with it over that with a filter that does nothing.

`python envoy-wasm/bench.py` prints the ratio for one and two workers, the CPU that a request takes, the
module's size and what a worker's memory grows by. Each figure is the median of alternating rounds; wrk,
Redis, an agent, Envoy and the nodes share the machine.
"""

import copy
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import redis  # noqa: E402
import yaml  # noqa: E402

from compose.lab import machine  # noqa: E402
from compose.lab.processes import answers, cpu_seconds, free_ports, start_tied, wait_until  # noqa: E402

ROUNDS, SECONDS, CONNECTIONS, NODES = 5, 3, 32, 5
RATIO, MOST_CPU_US, MOST_MODULE_KIB, MOST_STALL_MS = 0.85, 10, 1024, 2
WASM = ROOT / "target" / "wasm32-wasip1" / "release"
MODULES = {"noop": WASM / "examples" / "noop.wasm", "filter": WASM / "envoy_wasm.wasm"}
NODE = """\
defaults
    mode http
    timeout client 10s
frontend node
{binds}
    http-request return status 200 hdr x-items 80 content-type text/plain string "ok"
"""
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
SCRIPT = """\
local n = 0
request = function()
  n = n + 1
  return wrk.format("GET", "/stock/S" .. n % 3000 .. "?items=80")
end
"""


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def wrk(port: int, run: Path, connections: int) -> tuple[float, float]:
    """Requests/s, and the median latency in µs."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s", "--latency", "-s", str(run / "wrk.lua")]
    command.append(f"http://127.0.0.1:{port}/")
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if re.search("Non-2xx", out):
        raise SystemExit(f"bench: requests were refused:\n{out}")
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1])
    value, unit = re.search(r"50%\s+([\d.]+)(us|ms|s)", out).groups()
    return rate, float(value) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]


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
    import urllib.request

    url = f"http://127.0.0.1:{admin}/stats?format=json&filter=plimsoll"
    with urllib.request.urlopen(url, timeout=5) as answer:
        found = json.load(answer)["stats"]
    return {
        stat["name"].split(".")[1].removeprefix("plimsoll_"): stat["value"]
        for stat in found
        if "value" in stat
    }


def resident_mib(pid: int) -> float:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def measure(workers: int, run: Path, stack: ExitStack, shared: dict[str, list[int]]) -> dict[str, float]:
    pids, ports = {}, {}
    for kind in ("plain", "noop", "filter"):
        listener, admin = free_ports(2)
        text = yaml.safe_dump(config(kind, shared | {"listener": [listener], "admin": [admin]}))
        path = run / f"{kind}{workers}.yaml"
        path.write_text(text)
        command = [machine.envoy(), "-c", str(path), "--disable-hot-restart", "-l", "warn"]
        process = start_tied([*command, "--concurrency", str(workers)], {}, path.with_suffix(".log"))
        stack.callback(process.kill)
        ready = f"http://127.0.0.1:{admin}/ready"
        wait_until(kind, lambda ready=ready: answers(ready), 30, lambda: None)
        pids[kind], ports[kind] = process.pid, listener
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
        f"   target <= {MOST_CPU_US}   {verdict(cpu <= MOST_CPU_US)}"
    )
    print(
        f"           median latency at one connection {middle(delays['plain']):.0f} plain,"
        f" {middle(delays['noop']):.0f} no-op, {middle(delays['filter']):.0f} us"
    )
    print(f"           {decided:,.0f} requests decided by the filter, {undecided:,.0f} by the fallback")
    return {kind: resident_mib(pid) for kind, pid in pids.items()}


def main() -> int:
    if not shutil.which("wrk"):
        print("bench: wrk is not on the PATH; run `make tools`", file=sys.stderr)
        return 1
    size = MODULES["filter"].stat().st_size / 1024
    print(f"module {size:.0f} KiB   target <= {MOST_MODULE_KIB}   {verdict(size <= MOST_MODULE_KIB)}")
    with ExitStack() as stack:
        run = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plimsoll-bench-")))
        (run / "wrk.lua").write_text(SCRIPT)
        port, *nodes = free_ports(1 + NODES)
        agents, checks = free_ports(NODES), free_ports(NODES)
        command = [
            machine.redis(),
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(run),
        ]
        stack.callback(start_tied(command, {}, run / "redis.log").kill)
        binds = "\n".join(f"    bind 127.0.0.1:{node}" for node in nodes)
        (run / "nodes.cfg").write_text(NODE.format(binds=binds))
        command = [machine.haproxy(), "-db", "-f", str(run / "nodes.cfg")]
        stack.callback(start_tied(command, {}, run / "nodes.log").kill)
        for number, (agent, check, node) in enumerate(zip(agents, checks, nodes, strict=True)):
            path = run / f"agent{number}.toml"
            path.write_text(AGENT.format(http=agent, check=check, redis=port, node=node, number=number + 1))
            command = [machine.binary("plimsoll"), "agent", "--config", str(path)]
            stack.callback(start_tied(command, {}, path.with_suffix(".log")).kill)
        client = redis.Redis(port=port)
        keys = [
            f"plimsoll:{{stocks}}:{part}" for part in ("nodes", "ring", "proxies", "shares", "observations")
        ]

        def all_in_the_ring() -> bool:
            try:
                found = client.fcall_ro("plimsoll_ring", 5, *keys)
            except redis.RedisError:
                return False
            return bool(found) and len(found[2].decode().split("\n")) == NODES

        wait_until("a ring", all_in_the_ring, 20, lambda: None)
        shared = {"queries": nodes, "transactions": nodes[:1], "plimsoll_agents": agents}
        memory = {workers: measure(workers, run, stack, shared) for workers in (1, 2)}
        for kind in ("noop", "filter"):
            more = memory[2][kind] - memory[1][kind]
            print(f"memory {kind}: {memory[1][kind]:.1f} MiB with one worker, {more:+.1f} MiB for another")
    return 0


if __name__ == "__main__":
    sys.exit(main())
