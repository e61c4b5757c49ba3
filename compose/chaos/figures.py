"""What faults cost: operations that were timely or not, from a history."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from compose.chaos.history import Attempt, History

# An answer is timely within this from the operation's start.
TIMELY_SECONDS = 1.0
MINUTE_SECONDS = 60


@dataclass(frozen=True)
class Operation:
    kind: str
    begin: float
    # Of its last attempt.
    outcome: str
    is_timely: bool


@dataclass(frozen=True)
class Cost:
    """Of a fault: operations that were not timely, of those that began before the next one."""

    fault: dict[str, Any]
    operations: int
    untimely: int
    # Of the operations of a minute.
    part_of_minute: float


def outcome(last: Attempt) -> str:
    if last.unsent:
        return "proxy not reached"
    if last.status is None:
        return "no answer"
    return f"{last.status} {last.reason}".strip()


def operations(history: History) -> list[Operation]:
    """From the start of the schedule on."""
    start = start_of(history)
    by_number: dict[int, list[Attempt]] = {}
    for attempt in history.attempts:
        by_number.setdefault(attempt.operation, []).append(attempt)
    found = []
    for attempts in by_number.values():
        attempts.sort(key=lambda attempt: attempt.begin)
        first, last = attempts[0], attempts[-1]
        is_timely = last.status == 200 and last.end - first.begin <= TIMELY_SECONDS
        found.append(Operation(first.kind, first.begin, outcome(last), is_timely))
    return sorted((it for it in found if it.begin >= start), key=lambda operation: operation.begin)


def start_of(history: History) -> float:
    return next(event["at"] for event in history.events if event["event"] == "started")


def costs(history: History) -> list[Cost]:
    """Of each fault until the next began, so faults that overlap share what they cost."""
    all_ = operations(history)
    faults = [event for event in history.events if event["event"] == "fault"]
    ends = [fault["at"] for fault in faults[1:]] + [math.inf] * bool(faults)
    took = all_[-1].begin - all_[0].begin
    minute = len(all_) / took * MINUTE_SECONDS
    found = []
    for fault, end in zip(faults, ends, strict=True):
        during = [it for it in all_ if fault["at"] <= it.begin < end]
        untimely = sum(not it.is_timely for it in during)
        found.append(Cost(fault, len(during), untimely, untimely / minute))
    return found


def by_kind(found: list[Cost]) -> dict[str, list[Cost]]:
    kinds = Counter(cost.fault["kind"] for cost in found)
    return {kind: [cost for cost in found if cost.fault["kind"] == kind] for kind in sorted(kinds)}
