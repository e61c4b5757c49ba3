"""The page of a run: what was promised, the timeline of faults and failures, and what each fault cost."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from markupsafe import Markup

from compose.chaos import figures
from compose.chaos.checker import PROMISES, Violation
from compose.chaos.figures import Cost, Operation
from compose.chaos.history import History
from loadtests.report.charts import svg
from loadtests.report.html import template

TEMPLATE = Path(__file__).with_name("chaos.html")
TIMELY, UNTIMELY, FAULT, VIOLATION = "#4c78a8", "#f58518", "#999999", "#b00020"
# Written beside the fault's bar.
LABEL_CHARACTERS = 28


@dataclass(frozen=True)
class Kind:
    name: str
    count: int
    median_part: float
    largest_part: float


def timeline(history: History, operations: list[Operation], violations: list[Violation]) -> Markup:
    start = figures.start_of(history)
    faults = [event for event in history.events if event["event"] == "fault"]
    healed = {event["number"]: event["at"] for event in history.events if event["event"] == "healed"}
    figure, (work, lanes) = plt.subplots(
        2, 1, sharex=True, figsize=(9, 2.4 + 0.2 * len(faults)), height_ratios=(2, 0.25 * len(faults) + 0.5)
    )
    begun = np.array([it.begin - start for it in operations])
    timely = np.array([it.is_timely for it in operations])
    edges = np.arange(np.floor(begun.min()), begun.max() + 1)
    work.hist([begun[timely], begun[~timely]], edges, stacked=True, color=[TIMELY, UNTIMELY])
    work.set_ylabel("operations/s")
    names = []
    programs = programs_of(history)
    for row, fault in enumerate(faults):
        at = fault["at"] - start
        lanes.barh(row, healed[fault["number"]] - fault["at"], left=at, color=FAULT)
        target = programs.get(fault["number"], fault["target"])
        names.append(f"{fault['number']} {fault['kind']} {target}"[:LABEL_CHARACTERS])
    lanes.set_yticks(range(len(names)), names, fontsize=7)
    lanes.invert_yaxis()
    lanes.set_xlabel("seconds since the schedule began")
    for violation in violations:
        for axes in (work, lanes):
            axes.axvline(min(violation.at - start, begun.max()), color=VIOLATION, linewidth=1)
    return svg(figure, "Timely and other operations per second, and the faults below them")


def programs_of(history: History) -> dict[int, str]:
    """What was paused or killed by each fault: a role may be any program's."""
    return {event["number"]: event["program"] for event in history.events if "program" in event}


def kinds(costs: list[Cost]) -> list[Kind]:
    found = []
    for name, each in figures.by_kind(costs).items():
        parts = [cost.part_of_minute for cost in each]
        found.append(Kind(name, len(each), median(parts), max(parts)))
    return found


def write(path: Path, history: History, violations: list[Violation], options: dict[str, Any]) -> None:
    operations, costs = figures.operations(history), figures.costs(history)
    start = figures.start_of(history)
    text = template(TEMPLATE).render(
        options=options,
        promises={name: [it for it in violations if it.promise == name] for name in PROMISES},
        timeline=timeline(history, operations, violations),
        colours={"timely": TIMELY, "not timely": UNTIMELY, "fault": FAULT, "violation": VIOLATION},
        kinds=kinds(costs),
        costs=costs,
        programs=programs_of(history),
        start=start,
        outcomes={
            kind: Counter(it.outcome for it in operations if it.kind == kind).most_common()
            for kind in ("write", "query")
        },
        refusals=Counter(refusal.why for refusal in history.refusals),
        operations=len(operations),
        timely=sum(it.is_timely for it in operations),
    )
    path.write_text(text)


def summary(history: History, violations: list[Violation]) -> list[str]:
    """The same for a terminal."""
    operations = figures.operations(history)
    timely = sum(it.is_timely for it in operations)
    lines = [f"{len(operations)} operations, {timely / len(operations):.2%} timely"]
    for kind in kinds(figures.costs(history)):
        parts = f"median {kind.median_part:.2%}, largest {kind.largest_part:.2%}"
        lines.append(f"  {kind.name}: {kind.count} faults, {parts} of a minute's operations not timely")
    for name in PROMISES:
        found = [it for it in violations if it.promise == name]
        lines.append(f"{len(found)} violations of: {name}")
        start = figures.start_of(history)
        lines += [f"  {it.at - start:.2f} s: {it.text}" for it in found[:10]]
    return lines
