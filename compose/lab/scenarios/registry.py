"""All scenarios, in the order in which they are listed."""

from typing import Any

from compose.lab.errors import LabError
from compose.lab.scenarios import (
    aggregator_failover,
    balancer_failover,
    burst,
    heterogeneous,
    master_failover,
    mix,
    phases,
    placement,
    redis_failover,
    removal,
    updates,
)
from compose.lab.scenarios.base import Scenario
from loadtests.report.criteria import Criterion

SCENARIOS: tuple[Scenario, ...] = (
    burst.Burst(),
    removal.Removal(),
    heterogeneous.Heterogeneous(),
    mix.Mix(),
    phases.Phases(),
    updates.Updates(),
    placement.Placement(),
    placement.PlacementEven(),
    removal.Rejoin(),
    balancer_failover.BalancerFailover(),
    redis_failover.RedisFailover(),
    aggregator_failover.AggregatorFailover(),
    master_failover.MasterFailover(),
)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def named(name: str) -> Scenario:
    if name not in BY_NAME:
        raise LabError(f"--scenario {name}: must be one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


def criteria(summary: dict[str, Any]) -> list[Criterion]:
    """None where the results are of a scenario that there is no longer."""
    scenario = BY_NAME.get(summary["scenario"])
    return [] if scenario is None else scenario.criteria(summary)
