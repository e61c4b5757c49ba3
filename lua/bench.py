"""What the Lua policy costs beside requests: `python -m lua.bench`.

Prints how long a new ring keeps a thread, how long the metrics of many nodes take, and what news of the
nodes' load costs a proxy without requests. Redis, HAProxy and the nodes share the machine. What it costs a
request: `python -m loadtests.bench haproxy`.
"""

import statistics
import subprocess
import sys
import time
import urllib.request

from compose.lab.processes import cpu_seconds
from loadtests.bench.haproxy import launch, lua_load
from loadtests.bench.site import Site, new_site
from tests.harness import ROOT
from tests.harness.haproxy import HAProxy

MAX_STALL_MS = 2
SCRAPED_NODES, SCRAPES, MAX_SCRAPE_MS = 100, 200, 20
NEWS_NODES, NEWS_ROUNDS, NEWS_SECONDS, MAX_NEWS_PERCENT = 20, 3, 10, 1
# News often, hardly any, and no library at all.
NEWS = {
    "often": 'policy = "job_informed",',
    "silent": 'policy = "job_informed", period = 60, lease = 120,',
    "bare": None,
}


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def ring_stall() -> None:
    script = ["lua5.3", "lua/bench_ring.lua"]
    out = subprocess.run(script, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    table, change = map(float, out.split())
    print(
        f"a new ring of 16,384 slots keeps a thread {table:.2f} ms (whole table), {change:.2f} ms (a change)"
        f"   target <= {MAX_STALL_MS}   {verdict(max(table, change) <= MAX_STALL_MS)}"
    )


def proxy(site: Site, name: str, policy: str | None) -> HAProxy:
    directory = site.directory / name
    directory.mkdir()
    load = "" if policy is None else lua_load(site, name, directory, policy)
    return launch(site, directory, 2, load, "")


def measure_scrape(site: Site) -> None:
    haproxy = proxy(site, "scraped", "")
    url = f"http://127.0.0.1:{haproxy.port}/plimsoll/metrics"
    taken, series = [], 0
    while len(taken) < SCRAPES:
        began = time.perf_counter()
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        seconds = time.perf_counter() - began
        series = sum(not line.startswith("#") for line in text.splitlines())
        # Until the threads have told their figures there is nothing to show.
        if series:
            taken.append(1e3 * seconds)
    median = statistics.median(taken)
    print(
        f"{series} series of {SCRAPED_NODES} nodes in {median:.1f} ms, {max(taken):.1f} at the most"
        f"   target <= {MAX_SCRAPE_MS}   {verdict(max(taken) <= MAX_SCRAPE_MS)}"
    )


def measure_news(site: Site) -> None:
    """CPU of proxies that hear of many nodes' load, of those that hardly do, and of those without Lua."""
    pids = {name: proxy(site, name, policy).process.pid for name, policy in NEWS.items()}
    used: dict[str, list[float]] = {name: [] for name in pids}
    # All of them at once, so that they share what else the machine does. The first round warms up.
    for _ in range(NEWS_ROUNDS + 1):
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        time.sleep(NEWS_SECONDS)
        for name, pid in pids.items():
            used[name].append(100 * (cpu_seconds(pid) - before[name]) / NEWS_SECONDS)
    share = {name: statistics.median(seen[1:]) for name, seen in used.items()}
    added = share["often"] - share["silent"]
    print(
        f"load news of {NEWS_NODES} nodes to 2 threads: {added:+.2f} % of a core"
        f" ({share['often']:.2f} with, {share['silent']:.2f} once a minute, {share['bare']:.2f} without Lua)"
        f"   target <= {MAX_NEWS_PERCENT}   {verdict(added <= MAX_NEWS_PERCENT)}"
    )


def main() -> int:
    ring_stall()
    for nodes, measure in {SCRAPED_NODES: measure_scrape, NEWS_NODES: measure_news}.items():
        with new_site(nodes) as site:
            measure(site)
    return 0


if __name__ == "__main__":
    sys.exit(main())
