"""The lab's targets, each with what was measured."""

from dataclasses import dataclass
from typing import Any

from loadtests.report.placement import NEAR, PERIODS

HEALTH_CHECK_INTERVAL_S = 0.5
# `P_max` of the policies whose update periods adapt (loadtests/policies.toml), and when all are back.
MAX_PERIOD_S = 5.0
PERIODS_BACK_S = 30.0
# Plimsoll's policies on Envoy; the others with this start are Envoy's own.
NATIVE_ENVOY = "envoy-"
ON_ENVOY = ("envoy-eds-fc-prop", "envoy-eds-fc-hash", "wasm-fc-prop", "wasm-fc-hash")
# Policies whose news differs in nothing but its phase; short ones are to be better, as in the thesis.
SHORT_AND_LONG = [
    (f"lua-job-informed-{update}2s", f"lua-job-informed-{update}10s") for update in ("", "continuous-")
]
# Policies that are Plimsoll's start with these.
PLIMSOLLS = ("fc-", "lua-", "wasm-", "envoy-eds-", "gather")
# On real applications: those without any setting but the SLA.
ON_APPLICATIONS = ("fc-leastconn", "fc-leastconn-histogram", "fc-prop", "wasm-fc-prop")
OF_STATIC = 0.98
P95_OF_STATIC = 1.2
REFUSED_BELOW_CAPACITY = 0.005
# Periods of a second until what is left does all it can.
RECOVERY_S = 3


@dataclass
class Criterion:
    text: str
    measured: float | None
    limit: float
    at_least: bool

    @property
    def passed(self) -> bool:
        if self.measured is None:
            return False
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def line(self) -> str:
        sign = "at least" if self.at_least else "at most"
        measured = "none" if self.measured is None else figure(self.measured)
        return f"{'pass' if self.passed else 'FAIL'}  {self.text}: {measured} ({sign} {figure(self.limit)})"


def figure(value: float) -> str:
    # Four digits, so that 0.9496 does not read as the 0.95 that it fails.
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def criteria(summary: dict[str, Any]) -> list[Criterion]:
    """Only for the policies that are there."""
    runs = {run["policy"]: run for run in summary["runs"]}
    if summary["capacity"]:
        return on_application(runs)
    if summary["scenario"] == "updates":
        return on_updates(runs, summary["sla_seconds"])
    found = placed(runs)
    found += [c for name, run in runs.items() if name.startswith(PLIMSOLLS) for c in failed_over(name, run)]
    for name in (n for n in ("fc-prop", "fc-hash") if n in runs):
        found += on_haproxy(name, runs, summary)
    for name in (n for n in ON_ENVOY if n in runs):
        found += on_envoy(name, runs, summary)
    if summary["scenario"] == "phases":
        found += [
            against(short, long, runs, 1.0) for short, long in SHORT_AND_LONG if {short, long} <= set(runs)
        ]
    return found


def on_application(runs: dict[str, Any]) -> list[Criterion]:
    """Phase by phase, against the best value of the swept static limit, and against Envoy's own."""
    static = [run["phases"] for run in runs.values() if run["group"] == "static"]
    envoys = [run["phases"] for name, run in runs.items() if name.startswith(NATIVE_ENVOY)]
    found = []
    for name in (n for n in ON_APPLICATIONS if n in runs):
        for number, mine in enumerate(runs[name]["phases"]):
            where = f"{name} at {mine['load']:g}x from {mine['from_s']:g} s"
            # What a load asks of the nodes that are left is not said in it.
            is_away = runs[name]["event_s"] == mine["from_s"]
            if mine["load"] < 1 and not is_away:
                refused = mine["refused_fraction"]
                found.append(Criterion(f"{where}: refused", refused, REFUSED_BELOW_CAPACITY, False))
                continue
            if static:
                same = [phases[number] for phases in static]
                best = max(same, key=lambda phase: phase["timely_per_s"])
                parts = [
                    mine[key] / best[key] if mine[key] is not None and best[key] else None
                    for key in ("timely_per_s", "p95_delay_s")
                ]
                found += [
                    Criterion(f"{where}: timely, of the best static limit's", parts[0], OF_STATIC, True),
                    Criterion(f"{where}: p95, of that limit's", parts[1], P95_OF_STATIC, False),
                ]
            if envoys:
                most = max(phases[number]["timely_per_s"] for phases in envoys)
                part = mine["timely_per_s"] / most if most else None
                found.append(Criterion(f"{where}: timely, of Envoy's best", part, 1.0, True))
    return found


def placed(runs: dict[str, Any]) -> list[Criterion]:
    """Of writes at primaries: the promise, for all, and how soon the sets are where they should be."""
    found = []
    for name, figures in ((n, run["placement"]) for n, run in runs.items() if run["placement"]):
        if figures["period_s"] is None:
            continue
        if name == "placement":
            best, periods = figures["settled_of_best"], figures["periods_to_best"]
            near = f"{name} of the best fixed placement"
            found += [
                Criterion(f"{near} from {PERIODS} periods after the first decision", best, NEAR, True),
                Criterion(f"{near}: periods until {NEAR:.0%}", periods, PERIODS, False),
            ]
        if name == "placement-even":
            found.append(Criterion(f"{name} hand-overs", figures["handovers"], 0, False))
        found += [
            Criterion(f"{name} writes at two primaries at once", figures["violations"], 0, False),
            Criterion(f"{name} writes answered that no node checked", figures["unchecked"], 0, False),
            Criterion(f"{name} writes that failed", figures["errors"], 0, False),
        ]
    return found


def failed_over(name: str, run: dict[str, Any]) -> list[Criterion]:
    """Where something was killed: only what it had under way may fail, and the rest is soon at its best."""
    found = run["failover"]
    if found is None:
        return []
    lines = [
        Criterion(f"{name} requests sent after the death that failed", found["errors_after"], 0, False),
        Criterion(f"{name} back to the ideal after the death, s", found["recovered_s"], RECOVERY_S, False),
    ]
    if found["back_s"] is not None:
        again = found["recovered_back_s"]
        lines.append(Criterion(f"{name} at the ideal after the return, s", again, RECOVERY_S, False))
    return lines


def against(name: str, peer: str, runs: dict[str, Any], limit: float) -> Criterion:
    other = runs[peer]["timely_items_per_s"]
    value = runs[name]["timely_items_per_s"] / other if other else None
    return Criterion(f"{name} / {peer}, timely items/s", value, limit, True)


def is_reachable(name: str, peer: str, runs: dict[str, Any], limit: float) -> bool:
    """Whether the ideal is so much: in a short run the time before the burst, when all do well, is more."""
    other, share = runs[peer]["timely_items_per_s"], runs[name]["timely_of_ideal"]
    return not (other and share) or runs[name]["timely_items_per_s"] / share >= limit * other


def whole(name: str, run: dict[str, Any], sla: float) -> list[Criterion]:
    after = run["timely_of_ideal_after_event"]
    return [
        Criterion(f"{name} timely of ideal from 5 s after the event", after, 0.95, True),
        Criterion(f"{name} timely of ideal, whole time", run["timely_of_ideal"], 0.9, True),
        Criterion(f"{name} mean delay, s", run["mean_delay_s"], sla, False),
    ]


def on_envoy(name: str, runs: dict[str, Any], summary: dict[str, Any]) -> list[Criterion]:
    """Against every policy of Envoy's own that ran."""
    if summary["scenario"] not in ("burst", "heterogeneous"):
        return []
    peers = [peer for peer in runs if peer.startswith(NATIVE_ENVOY) and peer not in ON_ENVOY]
    ratios = [against(name, peer, runs, 1.0) for peer in peers]
    return [*ratios, *whole(name, runs[name], summary["sla_seconds"])]


def on_haproxy(name: str, runs: dict[str, Any], summary: dict[str, Any]) -> list[Criterion]:
    sla, run = summary["sla_seconds"], runs[name]
    if summary["scenario"] == "burst":
        peers = {"rr": 3.4, "prop": 2.3, "leastconn": 1.0, "random2": 1.0, "static-maxconn": 0.97}
        return [
            *(
                against(name, peer, runs, limit)
                for peer, limit in peers.items()
                if peer in runs and is_reachable(name, peer, runs, limit)
            ),
            *whole(name, run, sla),
            Criterion(f"{name} overshoot, s", run["overshoot_s"], 1.1 * sla, False),
            Criterion(f"{name} settling, s", run["settling_s"] if run["settled"] else None, 10.0, False),
        ]
    if summary["scenario"] == "heterogeneous":
        off = run["max_share_deviation"]
        return [Criterion(f"{name} largest share error against capacity", off, 0.10, False)]
    if summary["scenario"] == "removal" and run["removal"]:
        lost = run["removal"]
        before, after = lost["timely_before_items_per_s"], lost["timely_after_items_per_s"]
        fall = None if before is None or after is None else before - after
        limit, window = lost["lost_capacity_items_per_s"], lost["error_window_s"]
        return [
            Criterion(f"{name} fall of timely items/s after the removal", fall, limit, False),
            Criterion(f"{name} client errors last, s", window, HEALTH_CHECK_INTERVAL_S, False),
        ]
    return []


def on_updates(runs: dict[str, Any], sla: float) -> list[Criterion]:
    """Chronos' claims for FC-CU, in the overload."""
    adaptive = [name for name, run in runs.items() if run["updates"]["relaxed_share"] is not None]
    peers = [name for name in runs if name not in adaptive]
    found = []
    for name in adaptive:
        mine = runs[name]["updates"]
        found += [
            Criterion(f"{name} {figure} delay, s", mine[f"overload_{figure}_delay_s"], sla, False)
            for figure in ("mean", "p95")
        ]
        for peer in peers:
            other = runs[peer]["updates"]["overload_timely_items_per_s"]
            value = mine["overload_timely_items_per_s"] / other if other else None
            found.append(Criterion(f"{name} / {peer}, timely items/s", value, 1.0, True))
        found += [
            Criterion(f"{name} longest period, s", mine["longest_period_s"], MAX_PERIOD_S, False),
            Criterion(f"{name} hot items with longer periods", mine["hot_relaxed"], 0, False),
            Criterion(f"{name} all periods back after, s", mine["back_s"], PERIODS_BACK_S, False),
        ]
    # That the others do not hold it is the paper's; admission may hold a delay by refusing.
    found += [
        Criterion(
            f"{peer} p95 delay, s, over the SLA", runs[peer]["updates"]["overload_p95_delay_s"], sla, True
        )
        for peer in peers
    ]
    return found
