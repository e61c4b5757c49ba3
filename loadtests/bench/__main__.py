"""Measures Plimsoll's cost per request in each tier, compared with the same proxy without it.

All kinds are loaded in turn, round after round; the first round is a warm-up. Each figure is a median over
the rounds. Each kind is compared with the one without Plimsoll in the same round, with the 95 % confidence
interval of the median difference (sign test). Rate and CPU are at the peak of 32 connections; latencies are
those of one connection, and of 64 that pause so that together they send half of the peak rate. wrk, Redis,
the agent and the nodes run beside the proxy, on cores of their own if there are enough.
"""

import argparse
import shutil
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass
from types import ModuleType

from compose.lab.processes import cpu_seconds
from loadtests.bench import envoy, haproxy, load, rounds
from loadtests.bench.cores import Cores, cores, pin
from loadtests.bench.site import new_site
from tests.harness.envoy import Envoy
from tests.harness.haproxy import HAProxy

PROXIES: dict[str, ModuleType] = {"haproxy": haproxy, "envoy": envoy}
FIGURES = ("rate", "cpu", "one", "half", "half_p99")


@dataclass
class Run:
    """One kind: its process, and what was measured of it, round after round."""

    program: HAProxy | Envoy
    seen: dict[str, list[float]]

    @classmethod
    def of(cls, program: HAProxy | Envoy) -> "Run":
        return cls(program, defaultdict(list))

    def measure(self, where: Cores | None, half: float) -> None:
        clients, pid = where and where.clients, self.program.process.pid
        before = cpu_seconds(pid)
        peak = load.closed(self.program.port, clients)
        spent = cpu_seconds(pid) - before
        paced = load.paced(self.program.port, clients, half)
        one = load.closed(self.program.port, clients, connections=1)
        # wrk's rate is of its own clock, which runs a little over its time.
        spent_us = 1e6 * spent / (peak.per_second * load.SECONDS)
        for name, value in zip(
            FIGURES, (peak.per_second, spent_us, one.median, paced.median, paced.p99), strict=True
        ):
            self.seen[name].append(value)


def measure(proxy: ModuleType, kinds: list[str], threads: int, nodes: int, count: int) -> None:
    where = cores(threads)
    with new_site(nodes) as site:
        runs = {kind: Run.of(proxy.start(site, kind, threads)) for kind in kinds}
        if where:
            for program in site.others:
                pin(program.process.pid, where.others)
            for run in runs.values():
                pin(run.program.process.pid, where.proxy)
        # Half of what the one without Plimsoll serves at its peak, for all.
        half = load.closed(runs[proxy.BASE].program.port, where and where.clients).per_second / 2
        total = rounds.WARM_UP + count
        for turn in range(total):
            for kind in rounds.order(kinds, turn):
                runs[kind].measure(where, half)
            if sys.stderr.isatty():
                print(
                    f"\r{threads} threads, {nodes} nodes: round {turn + 1} of {total} ",
                    end="",
                    file=sys.stderr,
                )
        pinned = where or "not pinned: too few cores"
        print(f"\n{threads} thread(s), {nodes} nodes, {count} rounds; half load is {half:,.0f}/s; {pinned}")
        for kind, run in runs.items():
            figures = {name: values[rounds.WARM_UP :] for name, values in run.seen.items()}
            base = {name: values[rounds.WARM_UP :] for name, values in runs[proxy.BASE].seen.items()}
            show(kind, figures, base if kind != proxy.BASE else None, run.program.resident_mib())


def show(kind: str, own: dict[str, list[float]], base: dict[str, list[float]] | None, mib: float) -> None:
    middle = {name: statistics.median(values) for name, values in own.items()}
    print(
        f"{kind:>17}  {middle['rate']:8,.0f}/s  {middle['cpu']:6.1f} us CPU  latency {middle['one']:4.0f} us"
        f" (one connection) {middle['half']:4.0f}, p99 {middle['half_p99']:5.0f} us (half load)"
        f"  {mib:.1f} MiB"
    )
    if base:
        added = {name: rounds.differences(own[name], base[name]) for name in FIGURES[1:]}
        print(
            f"{'':>17}  rate x {rounds.ratios(own['rate'], base['rate'])}; CPU + {added['cpu']} us; latency"
            f" + {added['one']}, + {added['half']}, p99 + {added['half_p99']} us"
        )


def numbers(text: str) -> list[int]:
    found = [int(word) for word in text.split(",")]
    if any(number < 1 for number in found):
        raise argparse.ArgumentTypeError(f"{text}: numbers of at least 1, with commas between")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.splitlines()[0])
    parser.add_argument("proxy", choices=PROXIES)
    parser.add_argument("--kinds", help="with commas between; all by default")
    parser.add_argument("--threads", type=numbers, default=[1, 2], help="of the proxy (1,2)")
    parser.add_argument("--nodes", type=numbers, default=[5], help="behind the proxy (5)")
    parser.add_argument("--rounds", type=int, default=11, help=f"at least {rounds.MIN_ROUNDS} (%(default)s)")
    args = parser.parse_args()
    proxy = PROXIES[args.proxy]
    kinds = args.kinds.split(",") if args.kinds else list(proxy.KINDS)
    if unknown := set(kinds) - set(proxy.KINDS):
        parser.error(f"--kinds: {', '.join(sorted(unknown))}: {args.proxy} has {', '.join(proxy.KINDS)}")
    if args.rounds < rounds.MIN_ROUNDS:
        parser.error(f"--rounds {args.rounds}: at least {rounds.MIN_ROUNDS}")
    if not shutil.which("wrk"):
        print("bench: wrk is not on the PATH; run `make tools`", file=sys.stderr)
        return 1
    kinds = [proxy.BASE, *(kind for kind in kinds if kind != proxy.BASE)]
    for nodes in args.nodes:
        for threads in args.threads:
            measure(proxy, kinds, threads, nodes, args.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
