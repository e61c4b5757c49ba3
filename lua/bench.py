"""What the Lua policy costs: HAProxy's peak request rate with it over that without it, in one run.

`python -m lua.bench` prints the ratio for one and two threads, what it adds to the median latency of
one connection, which waits for nobody, how long its metrics of many nodes take, and what news of the nodes'
load costs a proxy without requests. Each figure is the median of alternating rounds; wrk, Redis, HAProxy and
the nodes share the machine.
"""

import http.client
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import redis

from compose.lab import machine, proxy
from compose.lab.processes import cpu_seconds, free_ports, start_tied, wait_until
from compose.lab.topology import ROOT

ROUNDS, SECONDS, CONNECTIONS, NODES = 5, 3, 32, 5
TARGET, MAX_ADDED_US, MAX_STALL_MS = 0.8, 30, 2
SCRAPED_NODES, SCRAPES, MAX_SCRAPE_MS = 100, 200, 20
NEWS_NODES, NEWS_ROUNDS, NEWS_SECONDS, MAX_NEWS_PERCENT = 20, 3, 10, 1
PARTS = ("nodes", "ring", "proxies", "shares", "observations")
GLOBAL = """\
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
{service}
    default_backend queries
backend queries
    balance roundrobin
    http-reuse always
{rules}
"""
LOAD = """\
    lua-prepend-path {root}/lua/?.lua
    lua-prepend-path {root}/lua/?/init.lua
    lua-load-per-thread {run}/{name}.lua
"""
SERVICE = "    http-request use-service lua.plimsoll_metrics if { path /plimsoll/metrics }"
RULES = (ROOT / "haproxy" / "snippets" / "lua-policy.cfg").read_text()
NODE = """\
defaults
    mode http
    timeout client 10s
frontend node
{binds}
    http-request return status 200 hdr x-items 80 content-type text/plain string "ok"
"""
SCRIPT = """\
local n = 0
request = function()
  n = n + 1
  return wrk.format("GET", "/stock/S" .. n % 3000 .. "?items=80")
end
"""


def wrk(port: int, run: Path, connections: int, seconds: int = SECONDS) -> tuple[float, float]:
    """Requests/s, and the median latency in µs."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(run / "wrk.lua")]
    out = subprocess.run(
        [*command, f"http://127.0.0.1:{port}/"], capture_output=True, text=True, check=True
    ).stdout
    if re.search("Non-2xx", out):
        raise SystemExit(f"bench: requests were refused:\n{out}")
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1])
    value, unit = re.search(r"50%\s+([\d.]+)(us|ms|s)", out).groups()
    return rate, float(value) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]


def ring_stall() -> None:
    script = ["lua5.3", "lua/bench_ring.lua"]
    out = subprocess.run(script, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    table, change = map(float, out.split())
    print(
        f"a new ring of 16,384 slots keeps a thread {table:.2f} ms (whole table), {change:.2f} ms (a change)"
        f"   target <= {MAX_STALL_MS}   {'met' if max(table, change) <= MAX_STALL_MS else 'MISSED'}"
    )


def resident_mib(pid: int) -> float:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def start_haproxy(stack: ExitStack, run: Path, name: str, config: str) -> int:
    (run / f"{name}.cfg").write_text(config)
    process = start_tied([machine.haproxy(), "-db", "-f", str(run / f"{name}.cfg")], {}, run / f"{name}.log")
    stack.callback(process.kill)
    return process.pid


def start_redis(stack: ExitStack, run: Path, library: str, *options: str) -> tuple[redis.Redis, int]:
    """With a library of functions; a client, and its port."""
    (port,) = free_ports(1)
    command = [machine.redis(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(run)]
    stack.callback(start_tied([*command, *options], {}, run / "redis.log").kill)
    client = redis.Redis(port=port)

    def answers() -> bool:
        try:
            return client.ping()
        except redis.ConnectionError:
            return False

    wait_until("redis", answers, 10, lambda: None)
    client.function_load((ROOT / "lua" / "redis" / library).read_text(), replace=True)
    return client, port


def start_nodes(stack: ExitStack, run: Path) -> list[int]:
    """Ports of nodes that answer at once."""
    nodes = free_ports(NODES)
    binds = "\n".join(f"    bind 127.0.0.1:{node}" for node in nodes)
    start_haproxy(stack, run, "nodes", NODE.format(binds=binds))
    return nodes


class Proxies:
    """HAProxys with and without the policy, in front of the same nodes."""

    def __init__(self, run: Path, stack: ExitStack, redis: int) -> None:
        self.run, self._stack, self._redis = run, stack, redis

    def start(
        self, name: str, threads: int, servers: list[str], with_lua: bool, settings: str = 'cluster = "bench"'
    ) -> tuple[int, int]:
        """Port and process."""
        (port,) = free_ports(1)
        (self.run / f"{name}.lua").write_text(
            f'require("plimsoll").start({{ {settings}, backend = "queries", proxy = "{name}", '
            f'redis = {{ addresses = {{ "127.0.0.1:{self._redis}" }} }} }})\n'
        )
        lines = "".join(f"    server node{n + 1} {address}\n" for n, address in enumerate(servers))
        config = GLOBAL.format(
            threads=threads,
            run=self.run,
            name=name,
            load=LOAD.format(root=ROOT, run=self.run, name=name) if with_lua else "",
            service=SERVICE if with_lua else "",
            rules=(RULES if with_lua else "") + lines,
            port=port,
        )
        pid = start_haproxy(self._stack, self.run, name, config)
        wait_until(name, lambda: bool(proxy.servers(self.run / f"{name}.sock")), 10, lambda: None)
        return port, pid


def measure_scrape(proxies: Proxies) -> None:
    port, _ = proxies.start("scraped", 2, ["127.0.0.1:1"] * SCRAPED_NODES, True)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    taken, series = [], 0
    while len(taken) < SCRAPES:
        began = time.perf_counter()
        connection.request("GET", "/plimsoll/metrics")
        text = connection.getresponse().read().decode()
        seconds = time.perf_counter() - began
        series = sum(not line.startswith("#") for line in text.splitlines())
        # Until the threads have told their figures there is nothing to show.
        if series:
            taken.append(1e3 * seconds)
    median = statistics.median(taken)
    print(
        f"{series} series of {SCRAPED_NODES} nodes in {median:.1f} ms, {max(taken):.1f} at the most"
        f"   target <= {MAX_SCRAPE_MS}   {'met' if max(taken) <= MAX_SCRAPE_MS else 'MISSED'}"
    )


def measure_news(proxies: Proxies) -> None:
    """CPU of proxies that hear of many nodes' load, of those that hardly do, and of those without Lua."""
    often = 'cluster = "news", policy = "job_informed"'
    settings = {"news": often, "silent": f"{often}, period = 60, lease = 120", "bare": ""}
    servers = ["127.0.0.1:1"] * NEWS_NODES
    pids = {name: proxies.start(name, 2, servers, name != "bare", settings[name])[1] for name in settings}
    used: dict[str, list[float]] = {name: [] for name in pids}
    # All of them at once, so that they share what else the machine does. The first round warms up.
    for _ in range(NEWS_ROUNDS + 1):
        before = {name: cpu_seconds(pid) or 0.0 for name, pid in pids.items()}
        time.sleep(NEWS_SECONDS)
        for name, pid in pids.items():
            used[name].append(100 * ((cpu_seconds(pid) or 0.0) - before[name]) / NEWS_SECONDS)
    share = {name: statistics.median(seen[1:]) for name, seen in used.items()}
    added = share["news"] - share["silent"]
    print(
        f"load news of {NEWS_NODES} nodes to 2 threads: {added:+.2f} % of a core"
        f" ({share['news']:.2f} with, {share['silent']:.2f} once a minute, {share['bare']:.2f} without Lua)"
        f"   target <= {MAX_NEWS_PERCENT}   {'met' if added <= MAX_NEWS_PERCENT else 'MISSED'}"
    )


def measure(threads: int, proxies: Proxies, nodes: list[int]) -> None:
    ports, pids = {}, {}
    run, servers = proxies.run, [f"127.0.0.1:{port}" for port in nodes]
    for name in ("plain", "lua"):
        ports[name], pids[name] = proxies.start(f"{name}{threads}", threads, servers, name == "lua")
    rates: dict[str, list[float]] = {"plain": [], "lua": []}
    delays: dict[str, list[float]] = {"plain": [], "lua": []}
    for _ in range(ROUNDS + 1):
        for name in ports:
            rates[name].append(wrk(ports[name], run, CONNECTIONS)[0])
        for name in ports:
            delays[name].append(wrk(ports[name], run, 1)[1])
    # The first round warms up: connections, and shares of the bounds.
    rate = {name: statistics.median(seen[1:]) for name, seen in rates.items()}
    delay = {name: statistics.median(seen[1:]) for name, seen in delays.items()}
    ratios = [lua / plain for plain, lua in zip(rates["plain"][1:], rates["lua"][1:], strict=True)]
    ratio, added = rate["lua"] / rate["plain"], delay["lua"] - delay["plain"]
    print(
        f"{threads} thread{'s' if threads > 1 else ' '}"
        f"  {rate['plain']:9,.0f} -> {rate['lua']:9,.0f} requests/s"
        f"   ratio {ratio:.2f} ({min(ratios):.2f}..{max(ratios):.2f})   target >= {TARGET}"
        f"   {'met' if ratio >= TARGET else 'MISSED'}"
    )
    print(
        f"           median {delay['plain']:.0f} -> {delay['lua']:.0f} us at one connection: {added:+.0f} us"
        f"   target <= {MAX_ADDED_US}   {'met' if added <= MAX_ADDED_US else 'MISSED'}"
    )
    memory = {name: resident_mib(pid) for name, pid in pids.items()}
    print(f"           memory {memory['plain']:.1f} -> {memory['lua']:.1f} MiB")


def main() -> int:
    if not shutil.which("wrk"):
        print("bench: wrk is not on the PATH; run `make tools`", file=sys.stderr)
        return 1
    with ExitStack() as stack:
        run = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plimsoll-bench-")))
        (run / "wrk.lua").write_text(SCRIPT)
        client, port = start_redis(stack, run, "plimsoll.lua")
        nodes = start_nodes(stack, run)
        over = threading.Event()

        def report() -> None:
            jobs = 0
            while True:
                jobs += 1
                for cluster, nodes in {"bench": NODES, "news": NEWS_NODES}.items():
                    keys = [f"plimsoll:{{{cluster}}}:{part}" for part in PARTS]
                    for n in range(nodes):
                        told = (1e6, 1e4, 80, (jobs + n) % 30, 0.5, 3000, 16384, 0.05, 0)
                        client.fcall("plimsoll_report", 5, *keys, f"node{n + 1}", "bench", *told)
                if over.wait(1):
                    return

        reporter = threading.Thread(target=report)
        reporter.start()
        try:
            ring_stall()
            proxies = Proxies(run, stack, port)
            measure_scrape(proxies)
            measure_news(proxies)
            for threads in (1, 2):
                measure(threads, proxies, nodes)
        finally:
            over.set()
            reporter.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
