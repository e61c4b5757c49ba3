"""Nodes are primaries of object sets, and take nothing but transactions."""

from collections.abc import Callable
from typing import Any

from compose.lab.placement import Sets
from compose.lab.scenarios.base import Comparison
from compose.lab.timeline import Work
from loadtests.report.criteria import Criterion, by_policy
from loadtests.report.placement import NEAR, PERIODS


class Placement(Comparison):
    name = "placement"
    sets = Sets()
    # They think less where they only write.
    clients_per_slave = 24
    refused_database = ("postgres", "all nodes take writes, with SQLite only")

    def work(self, mix: str) -> Work:
        # One primary is to be overloaded by far, and all nodes together are not.
        return Work(think=((0.3, 0.5), (0.3, 0.5)), sets=self.sets)

    def criteria(self, summary: dict[str, Any]) -> list[Criterion]:
        """Targets for writes at primaries: the guarantee, and the time until sets are well placed."""
        found = []
        for name, figures in ((n, run["placement"]) for n, run in by_policy(summary).items()):
            if figures is None or figures["period_s"] is None:
                continue
            if name in OF_POLICY:
                found += OF_POLICY[name](name, figures)
            found += [
                Criterion(f"{name} writes at two primaries at once", figures["violations"], 0, False),
                Criterion(f"{name} writes answered that no node checked", figures["unchecked"], 0, False),
                Criterion(f"{name} writes that failed", figures["errors"], 0, False),
            ]
        return found


class PlacementEven(Placement):
    """With an even load, no handover is worth its cost."""

    name = "placement-even"
    sets = Sets(evenly=True)


def is_soon_at_the_best(name: str, figures: dict[str, Any]) -> list[Criterion]:
    best, periods = figures["settled_of_best"], figures["periods_to_best"]
    near = f"{name} of the best fixed placement"
    return [
        Criterion(f"{near} from {PERIODS} periods after the first decision", best, NEAR, True),
        Criterion(f"{near}: periods until {NEAR:.0%}", periods, PERIODS, False),
    ]


def moves_nothing(name: str, figures: dict[str, Any]) -> list[Criterion]:
    return [Criterion(f"{name} hand-overs", figures["handovers"], 0, False)]


OF_POLICY: dict[str, Callable[[str, dict[str, Any]], list[Criterion]]] = {
    "placement": is_soon_at_the_best,
    "placement-even": moves_nothing,
}
