"""A node dies after the burst: for good, or to come back."""

from dataclasses import replace
from typing import Any

from compose.lab import postgres
from compose.lab.scenarios.kill import Kill
from compose.lab.stack import Plan
from compose.lab.timeline import Fault
from compose.lab.topology import Topology
from loadtests.report.criteria import ON_HAPROXY, Criterion, by_policy

HEALTH_CHECK_INTERVAL_S = 0.5


def last_slave(planned: Plan, topology: Topology) -> list[str]:
    name = topology.slaves[-1].name
    # The agent first: it is not to tell the proxy about the node's death.
    names = (f"{name}-agent", name, postgres.program(name))
    return [program for program in names if program in planned.programs]


class Removal(Kill):
    name = "removal"
    fault = Fault("a slave and its agent are killed", last_slave)
    min_slaves = 2

    def criteria(self, summary: dict[str, Any]) -> list[Criterion]:
        runs, found = by_policy(summary), super().criteria(summary)
        for name in (name for name in ON_HAPROXY if name in runs and runs[name]["removal"]):
            found += cost(name, runs[name]["removal"])
        return found


class Rejoin(Kill):
    name = "rejoin"
    fault, min_slaves = Removal.fault, Removal.min_slaves
    quick = replace(Kill.quick, kill=16.0, back=26.0)
    full = replace(Kill.full, kill=40.0, back=70.0)


def cost(name: str, lost: dict[str, Any]) -> list[Criterion]:
    before, after = lost["timely_before_items_per_s"], lost["timely_after_items_per_s"]
    fall = None if before is None or after is None else before - after
    limit, window = lost["lost_capacity_items_per_s"], lost["error_window_s"]
    return [
        Criterion(f"{name} fall of timely items/s after the removal", fall, limit, False),
        Criterion(f"{name} client errors last, s", window, HEALTH_CHECK_INTERVAL_S, False),
    ]
