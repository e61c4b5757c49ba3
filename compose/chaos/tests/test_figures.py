"""What faults cost, from a history."""

import pytest

from compose.chaos.figures import costs, operations
from compose.chaos.history import Attempt, History


def attempt(operation: int, begin: float, took: float, status: int | None = 200, **more: object) -> Attempt:
    return Attempt(operation, f"q{operation}", "query", "lb1", begin, begin + took, status, **more)


def history() -> History:
    """An operation a second from 1 to 11 s, and one before the schedule began."""
    taken = {number: [attempt(number, number + 0.5, 0.1)] for number in range(11)}
    taken[0] = [attempt(0, 0.5, 9)]
    taken[2] = [attempt(2, 2.5, 0.1, 503, reason="full"), attempt(2, 2.9, 0.1)]
    taken[5] = [attempt(5, 5.5, 0.1, None, unsent=True), attempt(5, 6.0, 0.6)]
    taken[6] = [attempt(6, 6.5, 0.1, 503, reason="moving")]
    events = [
        {"at": 1.0, "event": "started"},
        {"at": 5.0, "event": "fault", "number": 1, "kind": "kill"},
        {"at": 8.0, "event": "fault", "number": 2, "kind": "cut"},
    ]
    return History([one for each in taken.values() for one in each], events=events)


def test_operations_are_timely_by_all_their_attempts_together():
    found = operations(history())
    assert [it.begin for it in found] == [number + 0.5 for number in range(1, 11)]
    assert [it.begin for it in found if not it.is_timely] == [5.5, 6.5]
    assert [it.outcome for it in found][4:6] == ["200", "503 moving"]


def test_a_fault_costs_what_is_not_timely_until_the_next():
    first, second = costs(history())
    assert (first.operations, first.untimely) == (3, 2)
    assert (second.operations, second.untimely) == (3, 0)
    # Ten operations in nine seconds, between the first and the last.
    assert first.part_of_minute == pytest.approx(2 / (60 * 10 / 9))
