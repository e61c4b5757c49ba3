"""Figures of writes at primaries, each against one worked out by hand."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from loadtests.report.__main__ import criteria
from loadtests.report.tests.conftest import Run, request
from loadtests.report.tests.told import complaint, page

WRITES = "t_s,delay_s,outcome,node,set"
TABLE = "t_s,version,set,state"


def write(t: float, node: str, name: str, delay: float = 0.5, outcome: str = "ok") -> str:
    return f"{t},{delay},{outcome},{node},{name}"


def add(
    run: Run,
    name: str,
    writes: list[str],
    table: list[str] | None = None,
    facts: dict[str, Any] | None = None,
) -> Path:
    """A policy of two nodes; `table` is what the keeper, whose period is 2 s, did."""
    known = {"period_s": None if table is None else 2.0, "claims": len(writes), "violations": 0} | (
        facts or {}
    )
    meta = {"placement": known, "event_s": None, "event": None}
    capacities = {"node_capacity_items_per_s": {"node1": 1000.0, "node2": 1000.0}}
    requests = [
        request(float(t), float(delay), outcome=outcome, node=node, kind="transaction")
        for t, delay, outcome, node, _ in (line.split(",") for line in writes)
    ]
    folder = run.add(name, requests, facts=meta | capacities)
    with gzip.open(folder / "writes.csv.gz", "wt") as file:
        file.write("\n".join([WRITES, *writes]) + "\n")
    if table is not None:
        (folder / "placement.csv").write_text("\n".join([TABLE, *table]) + "\n")
    return folder


def both(begin: int, end: int, first: str = "node1", second: str = "node2") -> list[str]:
    """Two writes a second, of two sets."""
    return [
        write(t, node, name) for t in range(begin, end) for node, name in ((first, "G00"), (second, "G01"))
    ]


def alone(begin: int, end: int) -> list[str]:
    """One a second, both sets at node1."""
    return [write(t, "node1", f"G{t % 2:02}") for t in range(begin, end)]


START = ["0,1,G00,node1", "0,1,G01,node1"]
MOVED = [*START, "12.5,2,G01,>node1", "13.25,3,G01,node2"]


@pytest.fixture
def three(run) -> Run:
    run.facts["scenario"] = "placement"
    run.facts["nodes"] = 2
    add(run, "placement-none", alone(0, 30), START)
    add(run, "placement-fixed", both(0, 30), START)
    # Two set apart: from 14 s on as good as the best.
    add(run, "placement", [*alone(0, 14), *both(14, 30)], MOVED)
    return run


def test_a_moving_set_is_compared_with_the_best_fixed_placement(three):
    found = three.figures("placement")["placement"]
    # (4 alone + 16 both) of 20 s, and the answers of the 0.5 s before.
    assert found["transactions_per_s"] == (4 + 2 * 16) / 20
    assert (found["first_decision_s"], found["handovers"], found["last_handover_s"]) == (12.5, 1, 13.25)
    assert found["settled_from_s"] == 20.5
    # Of 9.5 s: answers at 20.5, 21.5, …, 29.5.
    assert found["settled_transactions_per_s"] == pytest.approx(2.11, abs=0.005)
    assert found["settled_of_best"] == 1.0
    # [12.5, 14.5) has 2 answers, [14.5, 16.5) has all four.
    assert found["periods_to_best"] == 1
    assert found["series"]["transactions_per_s"][12:16] == [1.0, 1.0, 2.0, 2.0]
    assert found["series"]["handovers"][12:15] == [0.0, 1.0, 0.0]
    assert found["series"]["sets"]["node1"][10:16] == [2, 2, 2, 2, 1, 1]
    assert found["series"]["sets"]["node2"][10:16] == [0, 0, 0, 0, 1, 1]


def test_policy_without_moves_is_compared_over_the_whole_time(three):
    none = three.figures("placement-none")["placement"]
    assert (none["settled_from_s"], none["settled_of_best"], none["first_decision_s"]) == (10.0, 0.5, None)
    assert (none["handovers"], none["periods_to_best"]) == (0, None)
    assert three.figures("placement-fixed")["placement"]["settled_of_best"] == 1.0


def test_without_the_best_placement_there_is_nothing_to_compare_with(run):
    add(run, "placement", both(0, 30), MOVED)
    found = run.figures("placement")["placement"]
    assert found["settled_transactions_per_s"] is not None
    assert (found["settled_of_best"], found["periods_to_best"]) == (None, None)


def test_never_as_good_as_the_best(run):
    add(run, "placement-fixed", both(0, 30), [])
    add(run, "placement", alone(0, 30), MOVED)
    found = run.figures("placement")["placement"]
    assert (found["settled_of_best"], found["periods_to_best"]) == (0.5, None)


def test_a_set_that_goes_back_was_not_handed_over(run):
    back = [*MOVED[:3], "13,3,G01,node1", "14,4,G01,>node1", "15,5,G01,node2"]
    add(run, "placement", both(0, 30), back)
    found = run.figures("placement")["placement"]
    assert (found["handovers"], found["last_handover_s"]) == (1, 15.0)


def test_a_decision_too_late_to_settle_is_not_compared(run):
    add(run, "placement-fixed", both(0, 30), [])
    add(run, "placement", both(0, 30), [*START, "29,2,G00,>node1"])
    found = run.figures("placement")["placement"]
    assert (found["settled_from_s"], found["settled_of_best"]) == (None, None)


def test_refused_failed_and_unchecked_writes_are_reported(run):
    writes = [*both(10, 30), write(12, "", "G00", 0.1, "refused"), write(13, "node1", "G00", 0.1, "error")]
    add(run, "placement", writes, MOVED, {"claims": 38, "violations": 2})
    found = run.figures("placement")["placement"]
    assert (found["refused"], found["errors"], found["violations"]) == (1, 1, 2)
    assert (found["checked"], found["unchecked"]) == (38, 2)


def test_targets(three):
    checks = {check.text: check for check in criteria(three.summary())}
    moved = "placement of the best fixed placement"
    assert checks[f"{moved} from 4 periods after the first decision"].passed
    assert checks[f"{moved}: periods until 95%"].measured == 1
    for policy in ("placement-none", "placement-fixed", "placement"):
        assert checks[f"{policy} writes at two primaries at once"].passed
        assert checks[f"{policy} writes that failed"].passed
        assert checks[f"{policy} writes answered that no node checked"].passed


def test_missed_targets(run):
    run.facts["scenario"] = "placement"
    add(run, "placement", alone(0, 30), MOVED, {"violations": 1, "claims": 0})
    add(run, "placement-fixed", both(0, 30), [])
    add(run, "placement-even", both(0, 30), MOVED)
    failed = [check.text for check in criteria(run.summary()) if not check.passed]
    assert failed == [
        "placement of the best fixed placement from 4 periods after the first decision",
        "placement of the best fixed placement: periods until 95%",
        "placement writes at two primaries at once",
        "placement writes answered that no node checked",
        "placement-even hand-overs",
    ]


def test_the_page_and_the_table_are_about_transactions(three, capsys):
    found = page(three)
    assert found.labels() == [
        "Transactions per second, per policy",
        *(f"Transactions over time, {name}" for name in three.facts["policies"]),
        *(f"Object sets per node over time, {name}" for name in three.facts["policies"]),
        *(f"Mean delay over time, {name}" for name in three.facts["policies"]),
    ]
    capsys.readouterr()
    assert three.report("--markdown") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| policy | proxy | transactions/s | settled/s | of best |")
    assert lines[4].startswith("| placement | haproxy | 1.8 | 2.1 | 100.0% | 1 | 1 | 0.50 |")


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("writes.csv.gz", "12.0,0.5,ok,node1", "expected 5 fields, found 4"),
        ("writes.csv.gz", "12.0,-1,ok,node1,G00", "delay_s is '-1', expected a number of at least 0"),
        ("writes.csv.gz", "12.0,0.5,lost,node1,G00", "outcome is 'lost', expected ok, refused or error"),
        ("writes.csv.gz", "12.0,0.5,ok,node1,", "set must not be empty"),
        ("placement.csv", "nan,2,G00,node1", "t_s is 'nan', expected a number of at least 0"),
        ("placement.csv", "12.0,second,G00,node1", "version is 'second', expected a number of at least 0"),
        ("placement.csv", "12.0,2,G00,", "set and state must not be empty"),
        ("placement.csv", "0.5,2,G00,node1", "t_s is 0.5, before the line above"),
    ],
)
def test_a_damaged_line_is_named(run, capsys, name, line, message):
    folder = add(run, "placement", both(10, 30), MOVED)
    path = folder / name
    opener = gzip.open if name.endswith(".gz") else open
    header, first = (WRITES, write(11, "node1", "G00")) if name.endswith(".gz") else (TABLE, "1,1,G00,node1")
    with opener(path, "wt") as file:
        file.write("\n".join([header, first, line]) + "\n")
    assert complaint(run, capsys) == f"{path}:3: {message}"


@pytest.mark.parametrize("name", ["writes.csv.gz", "placement.csv"])
def test_a_missing_file_is_named(run, capsys, name):
    folder = add(run, "placement", both(10, 30), MOVED)
    (folder / name).unlink()
    assert complaint(run, capsys) == f"{folder / name}: No such file or directory"


def test_damaged_facts_are_named(run, capsys):
    folder = add(run, "placement", both(10, 30), MOVED, {"violations": -1})
    expected = "placement.violations is -1, expected a whole number of at least 0"
    assert complaint(run, capsys) == f"{folder / 'meta.json'}: {expected}"
