"""Figures of a run on a real application, phase by phase: a phase is a step of the load."""

from collections import defaultdict
from typing import Any

import numpy as np

from loadtests.report.numbers import ratio, rounded, show
from loadtests.report.records import Policy
from loadtests.report.schema import Phase, Run, Summary

HEADINGS = ("timely/s", "of best", "p95 s")
POSSIBLE = ("of possible", "settling s", "last refusal s")
IMPORTANT = ("timely", "p95 s")
LOST = ("refused", "timed out", "failed", "not sent")
# Settled: so much of what can be timely is, up to every second that is this many later or more. In less time,
# two in a hundred requests of ten times the work decide how many others are served.
SETTLED = 0.95
WINDOW_S = 5


def phases(policy: Policy, sla: float) -> list[Phase] | None:
    """All by time of sending: what became of the requests of a phase. None for the demo service."""
    if "phases" not in policy.meta:
        return None
    return [figures(policy, phase, sla) for phase in policy.meta["phases"]]


def figures(policy: Policy, phase: dict[str, Any], sla: float) -> Phase:
    begin, end, offered = phase["from_s"], phase["to_s"], phase["offered_per_s"]
    requests = policy.requests
    sent = (requests.sent >= begin) & (requests.sent < end)
    outcome, delay, items = requests.outcome[sent], requests.delay[sent], requests.items[sent]
    served = delay[outcome == "ok"]
    timely = (outcome == "ok") & (delay <= sla)
    p50, p95, p99 = np.percentile(served, [50, 95, 99]) if served.size else (None,) * 3
    # More than planned were sent where some of the phase before were late.
    planned = max(offered * (end - begin), outcome.size)
    possible = min(offered, live_capacity(policy, begin, end))
    rate = timely.sum() / (end - begin)
    since = requests.sent[sent] - begin
    refused = since[outcome == "refused"]

    def part(count: float) -> float | None:
        return rounded(ratio(float(count), planned))

    return {
        "from_s": begin,
        "to_s": end,
        "load": phase["load"],
        "timely_per_s": rounded(rate, 2),
        "timely_items_per_s": rounded(items[timely].sum() / (end - begin), 2),
        "timely_of_best": None,
        "possible_per_s": rounded(possible, 2),
        "timely_of_possible": rounded(ratio(rate, possible)),
        "settling_s": settling(since[timely], possible, int(end - begin + 1e-9)),
        "last_refusal_s": rounded(refused.max()) if refused.size else None,
        "offered_per_s": rounded(offered, 2),
        "refused_fraction": part((outcome == "refused").sum()),
        "timeout_fraction": part((outcome == "timeout").sum()),
        "error_fraction": part((outcome == "error").sum()),
        # Requests dropped because all virtual users were busy: none of them is timely.
        "dropped_fraction": part(max(0.0, planned - outcome.size - 1)),
        **of_highest_class(requests.important[sent], outcome, delay, timely),
        "p50_delay_s": rounded(p50),
        "p95_delay_s": rounded(p95),
        "p99_delay_s": rounded(p99),
    }


def of_highest_class(
    chosen: np.ndarray, outcome: np.ndarray, delay: np.ndarray, timely: np.ndarray
) -> dict[str, float | None]:
    """What became of the requests of the highest class."""
    served = delay[chosen & (outcome == "ok")]
    return {
        "important_timely_fraction": rounded(ratio(float(timely[chosen].sum()), chosen.sum())),
        "important_p95_delay_s": rounded(np.percentile(served, 95)) if served.size else None,
    }


def live_capacity(policy: Policy, begin: float, end: float) -> float:
    """Requests/s of the nodes that are there, as last sampled in the phase: a node goes and comes back where
    one begins."""
    found = dict(policy.meta["node_capacity_items_per_s"])
    for row in policy.nodes:
        if begin <= row["t_s"] < end and row["capacity_items_per_s"] is not None:
            found[row["node"]] = row["capacity_items_per_s"]
    return float(sum(found.values()))


def settling(timely: np.ndarray, possible: float, seconds: int) -> int | None:
    """The first second from which on the timely requests, counted up to any second that is `WINDOW_S` later
    or more, are `SETTLED` of what can be; None without one. `timely` are times since the phase's begin."""
    # How many are missing at each second.
    per_second = np.bincount(timely[timely < seconds].astype(int), minlength=seconds)
    missing = np.concatenate([[0.0], np.cumsum(SETTLED * possible - per_second)])
    window = min(WINDOW_S, seconds)
    for first in range(seconds - window + 1 if seconds else 0):
        if missing[first + window :].max() <= missing[first] + 1e-9:
            return first
    return None


def compare(runs: list[Run]) -> None:
    """Adds to each phase its part of the best run's timely requests."""
    phased = [run["phases"] for run in runs if run["phases"]]
    for same in zip(*phased, strict=True):
        best = max(phase["timely_per_s"] for phase in same)
        for phase in same:
            phase["timely_of_best"] = rounded(ratio(phase["timely_per_s"], best))


def capacity(summary: Summary) -> str:
    start, end = (sum(summary["capacity"][f"{when}_per_s"].values()) for when in ("start", "end"))
    return f"capacity {start:.1f} requests/s before the first policy, {end:.1f} after the last"


def title(phase: Phase) -> str:
    return f"{phase['load']:g}x"


def grouped(summary: Summary, first: str, names: tuple[str, ...]) -> list[str]:
    """The phase's load is said with the first of its columns."""
    found = [first]
    for phase in summary["runs"][0]["phases"]:
        found += [f"{title(phase)}: {names[0]}", *names[1:]]
    return found


def headings(summary: Summary) -> list[str]:
    return grouped(summary, "policy", HEADINGS)


def cells(summary: Summary) -> list[list[str]]:
    keys = (("timely_per_s", ".1f"), ("timely_of_best", ".0%"), ("p95_delay_s", ".2f"))
    return rows(summary, keys)


def possible_headings(summary: Summary) -> list[str]:
    return grouped(summary, "of what can be timely", POSSIBLE)


def possible(summary: Summary) -> list[list[str]]:
    keys = (("timely_of_possible", ".0%"), ("settling_s", ".0f"), ("last_refusal_s", ".1f"))
    return rows(summary, keys)


def lost_headings(summary: Summary) -> list[str]:
    return grouped(summary, "not served", LOST)


def lost(summary: Summary) -> list[list[str]]:
    names = ("refused", "timeout", "error", "dropped")
    return rows(summary, tuple((f"{name}_fraction", ".1%") for name in names))


def has_classes(summary: Summary) -> bool:
    shares = [phase["important_timely_fraction"] for run in summary["runs"] for phase in run["phases"] or []]
    return any(share is not None for share in shares)


def important_headings(summary: Summary) -> list[str]:
    return grouped(summary, "the highest class", IMPORTANT)


def of_important(summary: Summary) -> list[list[str]]:
    return rows(summary, (("important_timely_fraction", ".1%"), ("important_p95_delay_s", ".2f")))


def rows(summary: Summary, keys: tuple[tuple[str, str], ...]) -> list[list[str]]:
    return [
        [
            run["policy"] + (" (generator limited)" if run["generator_limited"] else ""),
            *(show(phase[key], form) for phase in run["phases"] for key, form in keys),
        ]
        for run in summary["runs"]
    ]


def best_of_groups(summary: Summary) -> list[str]:
    """For each sweep, which of its values was the best in each phase."""
    groups = defaultdict(list)
    for run in summary["runs"]:
        if run["group"]:
            groups[run["group"]].append(run)
    lines = []
    for group, members in groups.items():
        found = []
        for number, phase in enumerate(members[0]["phases"]):
            best = max(members, key=lambda run, number=number: run["phases"][number]["timely_per_s"])
            mine = best["phases"][number]
            of_best, p95 = show(mine["timely_of_best"], ".0%"), show(mine["p95_delay_s"], ".2f")
            found.append(f"{title(phase)} {best['policy']} ({of_best}, p95 {p95} s)")
        lines.append(f"best {group}: {'; '.join(found)}")
    return lines
