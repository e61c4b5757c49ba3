"""Cells' summaries side by side: medians over seeds, with the lowest and the highest."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from loadtests.report.numbers import show

Summary = dict[str, Any]
Value = Callable[[dict[str, Any], dict[str, Any]], float | None]

PHASE: list[tuple[str, str, Value]] = [
    ("timely, of what can be", ".0%", lambda run, phase: phase["timely_of_possible"]),
    ("p50 s", ".2f", lambda run, phase: phase["p50_delay_s"]),
    ("p99 s", ".2f", lambda run, phase: phase["p99_delay_s"]),
    ("refused, though timely was possible", ".1%", lambda run, phase: needless(phase)),
    ("settling s", ".0f", lambda run, phase: phase["settling_s"]),
]
CPU = "proxy CPU a request, µs"


def needless(phase: dict[str, Any]) -> float | None:
    """Part of the offered requests that were refused while the nodes could have done more in time."""
    offered, possible = phase["offered_per_s"], phase["possible_per_s"]
    if not offered or possible is None:
        return None
    unused = max(0.0, possible - phase["timely_per_s"]) / offered
    return min(phase["refused_fraction"] or 0.0, unused)


@dataclass(frozen=True)
class Spread:
    """A figure over seeds; without a value where no seed has one."""

    values: tuple[float, ...]

    def text(self, form: str) -> str:
        if not self.values:
            return "-"
        middle = show(statistics.median(self.values), form)
        ends = [show(value, form) for value in (min(self.values), max(self.values))]
        return middle if ends[0] == ends[1] else f"{middle} ({ends[0]} to {ends[1]})"


def spread(values: Iterable[float | None]) -> Spread:
    return Spread(tuple(value for value in values if value is not None))


def cpu_us(run: dict[str, Any]) -> float | None:
    if not run["requests"] or run["proxy_cpu_share"] is None:
        return None
    length = run["measured_to_s"] - run["measured_from_s"]
    return 1e6 * run["proxy_cpu_share"] * length / run["requests"]


def by_cell(summaries: list[Summary]) -> dict[tuple[str, str], list[Summary]]:
    """Summaries of all seeds, by application and scenario, in the order of the first."""
    found: dict[tuple[str, str], list[Summary]] = defaultdict(list)
    for summary in summaries:
        found[summary["runs"][0]["app"], summary["scenario"]].append(summary)
    return dict(found)


def rows(seeds: list[Summary]) -> tuple[list[str], list[list[str]]]:
    """Headings, and a row a policy."""
    first = seeds[0]["runs"][0]["phases"]
    headings = ["policy", "proxy"]
    for phase in first:
        headings += [f"{phase['load']:g}x: {PHASE[0][0]}", *(name for name, _, _ in PHASE[1:])]
    found = []
    for policy in [run["policy"] for run in seeds[0]["runs"]]:
        runs = [run for summary in seeds for run in summary["runs"] if run["policy"] == policy]
        limited = " (generator limited)" if any(run["generator_limited"] for run in runs) else ""
        row = [policy + limited, runs[0]["proxy"]]
        for number in range(len(first)):
            row += [
                spread(value(run, run["phases"][number]) for run in runs).text(form)
                for _, form, value in PHASE
            ]
        found.append([*row, spread(map(cpu_us, runs)).text(".0f")])
    return [*headings, CPU], found


def markdown(summaries: list[Summary]) -> str:
    """A table for each application and scenario."""
    parts = []
    for (app, scenario), seeds in by_cell(summaries).items():
        headings, lines = rows(seeds)
        of = ", ".join(str(summary["seed"]) for summary in seeds)
        table = [headings, ["---"] * len(headings), *lines]
        parts.append(
            f"## {app}, {scenario} (seeds {of})\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in table)
        )
    return "\n".join(parts)
