"""Schedulers with news of different age and phase, at a load below the nodes' capacity."""

from typing import Any

from compose.lab.scenarios.base import Comparison
from compose.lab.timeline import Work
from loadtests.report.criteria import Criterion, against, by_policy

# Policies whose news differs in nothing but its phase; short ones are to be better, as in the thesis.
SHORT_AND_LONG = [
    (f"lua-job-informed-{update}2s", f"lua-job-informed-{update}10s") for update in ("", "continuous-")
]


class Phases(Comparison):
    name = "phases"

    def work(self, mix: str) -> Work:
        # Scheduling is to matter and not admission: below what the nodes can do, in the end by little.
        return Work(think=((4.5, 5.0), (3.2, 3.7)))

    def criteria(self, summary: dict[str, Any]) -> list[Criterion]:
        runs = by_policy(summary)
        own = [
            against(short, long, runs, 1.0) for short, long in SHORT_AND_LONG if {short, long} <= set(runs)
        ]
        return [*own, *super().criteria(summary)]
