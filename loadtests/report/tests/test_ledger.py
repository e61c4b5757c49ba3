"""Evaluation of a ledger of scenario master-failover."""

import dataclasses
from pathlib import Path

import pytest

from loadtests.report import ledger
from loadtests.report.ledger import Events, LedgerError, Request

EVENTS = Events(
    began=0, paused=10, resumed=20, killed=30, dead=30.2, back=60, ended=70, standby="node2", primary="node1"
)


def request(
    kind: str, what: str, sent: float, node: str, shown: int | None = None, status: int = 200
) -> Request:
    return Request(kind, what, sent, sent + 0.01, status, node, shown)


def beats(*numbers: int) -> list[Request]:
    """Each second from 1 on."""
    return [request("beat", str(n), float(n), "node1") for n in numbers]


def figures(requests: list[Request], entries: set[str], beat: int = 3) -> dict:
    ordered = sorted(requests, key=lambda r: r.done)
    return ledger.figures(ordered, EVENTS, entries, beat, 5.0)


def test_an_acknowledged_write_that_is_not_there_is_lost() -> None:
    writes = [request("write", f"w{n}", n, "node1") for n in range(3)]
    writes.append(request("write", "unknown", 3, "node1", status=500))
    assert figures(writes, {"w0", "w1", "w2"})["writes_lost"] == 0
    # An unacknowledged write may be in the database or not.
    assert figures(writes, {"w0", "w1", "w2", "unknown"})["writes_lost"] == 0
    found = figures(writes, {"w0"})
    assert (found["writes_lost"], found["writes_acknowledged"]) == (2, 3)
    assert figures([*writes, *beats(1, 2, 3)], {"w0", "w1", "w2"}, beat=2)["writes_lost"] == 1


def test_a_read_is_behind_since_the_next_beat_was_acknowledged() -> None:
    # The beat of second 3 was never acknowledged, so it may or may not have replaced that of second 2.
    unknown = dataclasses.replace(beats(3)[0], status=503)
    reads = [request("read", "-", 9.01, "node2", shown) for shown in (0, 1, 2, 4)]
    requests = [*beats(1, 2), unknown, *beats(4), *reads]
    late = [round(at, 2) for _, at in ledger.behind(sorted(requests, key=lambda r: r.done))]
    assert late == [8.0, 7.0, 5.0, 0.0]
    found = figures(requests, set(), beat=4)
    assert (found["behind_max_s"], found["reads_too_far_behind"]) == (8.0, 2)


def test_only_reads_under_way_at_the_death_may_fail() -> None:
    under_way = dataclasses.replace(request("read", "-", 29.9, "-", status=0), done=30.2)
    later = request("read", "-", 30.3, "-", status=503)
    found = figures([under_way, later], set())
    assert (found["reads_failed"], found["reads_failed_under_way"]) == (1, 1)


def test_writes_before_the_primary_ended_are_not_of_a_deposed_one() -> None:
    taken = request("write", "w", 30.1, "node1")
    found = figures([taken, request("write", "x", 48, "node3")], {"w", "x"})
    assert (found["deposed_writes"], found["resumed_s"]) == (0, 18.01)
    assert figures([request("write", "w", 30.3, "node1")], {"w"})["deposed_writes"] == 1


def test_the_time_without_writes_and_without_reads() -> None:
    writes = [request("write", "w", 29.995, "node1"), request("write", "x", 48, "node3")]
    reads = [request("read", "-", at, "node3", 0) for at in (*range(40), *range(43, 70))]
    found = figures([*writes, *reads], {"w", "x"})
    assert found["resumed_s"] == 18.01
    assert found["read_gap_s"] == 4.0
    checks = {check.text: check.passed for check in ledger.criteria(found, 20, 5.0)}
    assert not checks["seconds, the longest time without a read answered"]
    assert checks["seconds from the primary's death to the first write acknowledged"]


def test_nothing_that_never_came_back_passes() -> None:
    found = figures([], set(), beat=0)
    failed = [check.text for check in ledger.criteria(found, 20, 5.0) if not check.passed]
    assert len(failed) == 3


def test_a_damaged_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.log"
    path.write_text("Request Failed\nwrite w1 1000 2000 200 node1 -\nread - 1000 x 200 node1 3\n")
    with pytest.raises(LedgerError, match=r"ledger.log:3: 'read - 1000 x"):
        ledger.load(path)
    path.write_text("Request Failed\nread - 1000 1500 200 node1 3\n")
    assert ledger.load(path) == [Request("read", "-", 1.0, 1.5, 200, "node1", 3)]
