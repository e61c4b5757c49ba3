"""Queries beside updates of temporal data: twice the load for a while, then as before."""

from typing import Any

from compose.lab.scenarios.base import Comparison
from compose.lab.timeline import Times, Work
from loadtests.report.criteria import Criterion, by_policy

# `P_max` of the policies whose update periods adapt (loadtests/policies.toml), and when all are back.
MAX_PERIOD_S = 5.0
PERIODS_BACK_S = 30.0


class Updates(Comparison):
    name = "updates"
    quick = Times(warmup=8.0, burst=14.0, calm=34.0, duration=68.0)
    full = Times(warmup=10.0, burst=30.0, calm=90.0, duration=130.0)
    refused_database = ("postgres", "each node moves its own prices")

    def work(self, mix: str) -> Work:
        # Below what the nodes can do beside all updates, and above it. Skewed, so that there are hot and
        # cold items.
        return Work(think=((7.0, 8.0), (3.5, 4.0)), skew=1.0, sla=2.0)

    def criteria(self, summary: dict[str, Any]) -> list[Criterion]:
        """Chronos' claims for FC-CU, in the overload."""
        runs, sla = by_policy(summary), summary["sla_seconds"]
        adaptive = [name for name, run in runs.items() if run["updates"]["relaxed_share"] is not None]
        peers = [name for name in runs if name not in adaptive]
        found = [line for name in adaptive for line in claims(name, peers, runs, sla)]
        # That the others do not hold it is the paper's; admission may hold a delay by refusing.
        found += [
            Criterion(
                f"{peer} p95 delay, s, over the SLA", runs[peer]["updates"]["overload_p95_delay_s"], sla, True
            )
            for peer in peers
        ]
        return found


def claims(name: str, peers: list[str], runs: dict[str, Any], sla: float) -> list[Criterion]:
    mine = runs[name]["updates"]
    found = [
        Criterion(f"{name} {figure} delay, s", mine[f"overload_{figure}_delay_s"], sla, False)
        for figure in ("mean", "p95")
    ]
    for peer in peers:
        other = runs[peer]["updates"]["overload_timely_items_per_s"]
        value = mine["overload_timely_items_per_s"] / other if other else None
        found.append(Criterion(f"{name} / {peer}, timely items/s", value, 1.0, True))
    return [
        *found,
        Criterion(f"{name} longest period, s", mine["longest_period_s"], MAX_PERIOD_S, False),
        Criterion(f"{name} hot items with longer periods", mine["hot_relaxed"], 0, False),
        Criterion(f"{name} all periods back after, s", mine["back_s"], PERIODS_BACK_S, False),
    ]
