"""All clients ask three times as often from one moment to the next."""

from typing import Any

from compose.lab.scenarios.base import Comparison
from loadtests.report.criteria import ON_HAPROXY, Criterion, against, by_policy, on_envoy, settled

# Timely items/s, of what the policy of this name has.
OF_PEERS = {"rr": 3.4, "prop": 2.3, "leastconn": 1.0, "random2": 1.0, "static-maxconn": 0.97}
OVERSHOOT_OF_SLA = 1.1
SETTLING_S = 10.0


class Burst(Comparison):
    name = "burst"

    def criteria(self, summary: dict[str, Any]) -> list[Criterion]:
        runs, sla = by_policy(summary), summary["sla_seconds"]
        found = [line for name in ON_HAPROXY if name in runs for line in on_haproxy(name, runs, sla)]
        return [*found, *on_envoy(runs, sla), *super().criteria(summary)]


def on_haproxy(name: str, runs: dict[str, Any], sla: float) -> list[Criterion]:
    run = runs[name]
    ratios = [
        against(name, peer, runs, limit)
        for peer, limit in OF_PEERS.items()
        if peer in runs and is_reachable(name, peer, runs, limit)
    ]
    settling = run["settling_s"] if run["settled"] else None
    return [
        *ratios,
        *settled(name, run, sla),
        Criterion(f"{name} overshoot, s", run["overshoot_s"], OVERSHOOT_OF_SLA * sla, False, True),
        Criterion(f"{name} settling, s", settling, SETTLING_S, False, True),
    ]


def is_reachable(name: str, peer: str, runs: dict[str, Any], limit: float) -> bool:
    """Whether the ideal allows the limit; a short run is mostly the time before the burst, timely for all."""
    other, share = runs[peer]["timely_items_per_s"], runs[name]["timely_of_ideal"]
    return not (other and share) or runs[name]["timely_items_per_s"] / share >= limit * other
