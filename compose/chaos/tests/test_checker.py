"""The checker: a sound history is found sound, and a doctored one is not, each in its own way."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from compose.chaos import checker
from compose.chaos.checker import Bounds, check
from compose.chaos.history import Attempt, History, Refusal, Row, Visit, visits_of

BOUNDS = Bounds(items=40, request_items=20, dispatchers=1)
STORE = "store"


def fence(version: int, generation: str = "g1") -> str:
    return f"{generation} {version:016}"


def written(number: int, node: str, begin: float, version: int) -> tuple[Attempt, Visit, Row]:
    """A write of set A that was made and acknowledged."""
    request = f"w{number}"
    attempt = Attempt(
        number, request, "write", "lb1", begin - 0.1, begin + 0.3, 200,
        set="A", account=number, symbol="S0000", sequence=number,
    )  # fmt: skip
    visit = Visit(node, "write", request, begin, begin + 0.2, 6, "A", fence(version))
    return attempt, visit, Row(number, number, "S0000")


def query(node: str, begin: float, end: float) -> Visit:
    return Visit(node, "query", "q", begin, end, 20)


def sound() -> History:
    """Set A is at one node, then another; one write is refused, one late, one of unknown outcome."""
    made = [written(1, "node1", 1, 5), written(2, "node1", 1.1, 4), written(3, "node2", 2, 7)]
    attempts, visits, rows = (list(column) for column in zip(*made, strict=True))
    refused = replace(attempts[0], request="w4", status=503, reason="moving", account=4, sequence=None)
    late = replace(refused, request="w5", status=409, reason="fenced", account=5)
    unknown = replace(refused, request="w6", status=None, reason="", account=6)
    visits += [query("node1", 0, 3), query("node1", 1, 3), query("node1", 2, 3), query("node1", 3, 4)]
    visits.append(Visit("node2", "write", "w6", 2.5, 3, 6, "A", fence(7)))
    rows.append(Row(4, 6, "S0000"))
    refusals = [Refusal("node1", "w5", 2.2, "late", "A", fence(6))]
    copies = {name: list(rows) for name in (STORE, "node1", "node2")}
    events = [{"event": "all healed", "at": 1.5}]
    return History([*attempts, refused, late, unknown], visits, refusals, events, copies)


def found(history: History) -> list[str]:
    return [violation.promise for violation in check(history, BOUNDS, STORE)]


def test_a_sound_history_has_no_violation():
    assert check(sound(), BOUNDS, STORE) == []


def overlap(history: History) -> None:
    history.visits[0] = replace(history.visits[0], end=2.1)


def overlap_with_what_never_ended(history: History) -> None:
    history.visits[0] = replace(history.visits[0], end=math.inf)


def refuse_for_another_at_work(history: History) -> None:
    history.refusals.append(Refusal("node1", "w5", 2.1, "violation", "A", fence(6)))


def write_by_the_same_table_elsewhere(history: History) -> None:
    history.visits[2] = replace(history.visits[2], fence=fence(5))


def write_by_an_earlier_generation(history: History) -> None:
    history.visits[0] = replace(history.visits[0], fence=fence(1, "g2"))


def write_late_at_the_former_primary(history: History) -> None:
    # The last write of all, of which the client knows nothing.
    history.visits[-1] = replace(history.visits[-1], node="node1", fence=fence(6))


def lose(history: History) -> None:
    for rows in history.rows.values():
        del rows[1]


def change_what_was_asked_for(history: History) -> None:
    for rows in history.rows.values():
        rows[1] = replace(rows[1], symbol="S0001")


def acknowledge_without_a_number(history: History) -> None:
    history.attempts[1] = replace(history.attempts[1], sequence=None)


def repeat(history: History) -> None:
    for rows in history.rows.values():
        rows.append(replace(rows[-1], sequence=5))


def make_what_was_refused(history: History) -> None:
    for rows in history.rows.values():
        rows.append(Row(5, 4, "S0000"))


def make_what_was_fenced(history: History) -> None:
    for rows in history.rows.values():
        rows.append(Row(5, 5, "S0000"))


def make_what_was_not_sent(history: History) -> None:
    history.attempts[-1] = replace(history.attempts[-1], unsent=True)


def lose_at_a_node(history: History) -> None:
    del history.rows["node2"][0]


def exceed(history: History) -> None:
    history.visits.append(query("node1", 2.5, 2.6))


def resume_too_late(history: History) -> None:
    history.attempts[2] = replace(history.attempts[2], end=62)


@pytest.mark.parametrize(
    ("doctor", "promise"),
    [
        (overlap, checker.ONE_PRIMARY),
        (overlap_with_what_never_ended, checker.ONE_PRIMARY),
        (refuse_for_another_at_work, checker.ONE_PRIMARY),
        (write_by_the_same_table_elsewhere, checker.NO_STALE_WRITE),
        (write_by_an_earlier_generation, checker.NO_STALE_WRITE),
        (write_late_at_the_former_primary, checker.NO_STALE_WRITE),
        (lose, checker.NONE_LOST),
        (change_what_was_asked_for, checker.NONE_LOST),
        (acknowledge_without_a_number, checker.NONE_LOST),
        (repeat, checker.NONE_TWICE),
        (make_what_was_refused, checker.REFUSED_UNMADE),
        (make_what_was_fenced, checker.REFUSED_UNMADE),
        (make_what_was_not_sent, checker.REFUSED_UNMADE),
        (lose_at_a_node, checker.ONE_HISTORY),
        (exceed, checker.BOUNDS),
        (resume_too_late, checker.RESUMED),
    ],
)
def test_a_doctored_history_is_found(doctor: Callable[[History], None], promise: str):
    history = sound()
    doctor(history)
    assert set(found(history)) == {promise}


def test_a_bound_that_is_exceeded_twice_is_told_twice():
    history = sound()
    history.visits += [query("node1", 2.5, 2.6), query("node1", 2.7, 2.8), query("node1", 2.75, 2.8)]
    assert found(history) == [checker.BOUNDS, checker.BOUNDS]


def line(at: float, event: str, **more: object) -> dict[str, object]:
    return {"at": at, "event": event, "node": "node1", **more}


def begun(at: float, number: int) -> dict[str, object]:
    return line(
        at, "begin", number=number, **{"class": "transaction", "items": 6, "set": "A", "fence": fence(1)}
    )


def test_what_was_in_a_node_that_died_ended_with_it():
    journal = [
        line(0, "start"), begun(1, 0), begun(2, 1), line(3, "end", number=0),
        line(9, "start"), begun(10, 0), line(11, "refused", why="late", set="A"),
    ]  # fmt: skip
    visits, refusals = visits_of(journal, deaths=[5, 20])
    assert [(visit.begin, visit.end) for visit in visits] == [(1, 3), (2, 5), (10, math.inf)]
    assert [(refusal.at, refusal.why) for refusal in refusals] == [(11, "late")]
