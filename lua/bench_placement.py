"""What placement costs in HAProxy: its peak rate of writes with it over that without it, in one run.

`python -m lua.bench_placement` prints the ratio for one and two threads, and the latency of one connection.
Rounds alternate; wrk, Redis, HAProxy and the nodes share the machine. Both configurations end each connection
to a node with its answer, as the snippet has it.
"""

import statistics
import sys

from loadtests.bench import load, rounds
from loadtests.bench.haproxy import SNIPPETS, launch, lua_load
from loadtests.bench.site import Site, new_site
from tests.harness.eventually import eventually
from tests.harness.haproxy import HAProxy
from tests.harness.placement import Keeper

NODES, ROUNDS = 5, 11
WRITES = """\
local n = 0
request = function()
  n = n + 1
  local headers = { ["x-object-set"] = "customers/" .. n % 3000 }
  return wrk.format("POST", "/purchase?items=80", headers, "ok")
end
"""
PLACEMENT = 'placement = { backend = "queries" },'
RULES = "    option http-server-close\n"


def start(site: Site, name: str, threads: int, is_placed: bool) -> HAProxy:
    directory = site.directory / name
    directory.mkdir()
    lines = lua_load(site, name, directory, PLACEMENT) if is_placed else ""
    rules = RULES + ((SNIPPETS / "placement.cfg").read_text() if is_placed else "")
    return launch(site, directory, threads, lines, rules)


def measure(site: Site, threads: int, keeper: Keeper) -> None:
    names = {f"plain{threads}": False, f"placed{threads}": True}
    proxies = [start(site, name, threads, is_placed) for name, is_placed in names.items()]
    joined = lambda: sum(f"placed{threads}/" in name for name in keeper.read()[0]) == threads  # noqa: E731
    eventually("the table", joined)
    rates: list[list[float]] = [[] for _ in names]
    delays: list[list[float]] = [[] for _ in names]
    for _ in range(rounds.WARM_UP + ROUNDS):
        for number, proxy in enumerate(proxies):
            rates[number].append(load.closed(proxy.port, None, requests=WRITES).per_second)
            delays[number].append(load.closed(proxy.port, None, 1, WRITES).median)
    (plain, placed), (before, after) = (
        [values[rounds.WARM_UP :] for values in figures] for figures in (rates, delays)
    )
    print(
        f"{threads} thread(s)  {statistics.median(plain):,.0f} -> {statistics.median(placed):,.0f} writes/s, "
        f"ratio {rounds.ratios(placed, plain)}; median {statistics.median(before):.0f} -> "
        f"{statistics.median(after):.0f} us at one connection, {rounds.differences(after, before)} more"
    )


def main() -> int:
    with new_site(NODES) as site:
        keeper = Keeper(site.redis.client)
        keeper.open({f"*{rest}": site.name(rest % NODES) for rest in range(64)})
        for threads in (1, 2):
            measure(site, threads, keeper)
    return 0


if __name__ == "__main__":
    sys.exit(main())
