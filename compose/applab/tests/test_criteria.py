"""The targets on real applications, by hand: which of them a phase has, and what they are held against."""

from typing import Any

import pytest

from compose.applab.criteria import criteria
from loadtests.report.criteria import judged

GOOD = {
    "timely_per_s": 60.0,
    "timely_of_possible": 0.98,
    "settling_s": 2,
    "last_refusal_s": None,
    "refused_fraction": 0.0,
    "p95_delay_s": 0.2,
}

RUN: dict[str, Any] = {"policy": "fc-prop", "group": None, "proxy": "haproxy 2.6.12", "event_s": None}


def phases(*loads: float, **changes: Any) -> list[dict[str, Any]]:
    """Of ten seconds each; the last has `changes`."""
    found = [GOOD | {"load": load, "from_s": 10.0 * n} for n, load in enumerate(loads)]
    found[-1] |= changes
    return found


def targets(scenario: str, found: list[dict[str, Any]], event: float | None = None) -> list[str]:
    run = RUN | {"event_s": event, "phases": found}
    return [check.line() for check in criteria({"scenario": scenario, "runs": [run]})]


def test_a_step_is_to_be_settled_and_the_calm_after_it_without_refusals():
    assert targets("overload", phases(0.5, 1.5, 3.0, 0.5, last_refusal_s=2.5, settling_s=4)) == [
        "pass  fc-prop at 0.5x from 0 s: refused: 0 (at most 0.005)",
        "pass  fc-prop at 1.5x from 10 s: settling, s: 2 (at most 3)",
        "pass  fc-prop at 3x from 20 s: settling, s: 2 (at most 3)",
        "FAIL  fc-prop at 0.5x from 30 s: settling, s: 4 (at most 3)",
        "FAIL  fc-prop at 0.5x from 30 s: last refusal, s: 2.5 (at most 2)",
        "pass  fc-prop at 0.5x from 30 s: refused: 0 (at most 0.005)",
    ]


def test_a_calm_without_a_refusal_is_as_good_as_can_be():
    assert "pass  fc-prop at 0.5x from 10 s: last refusal, s: 0 (at most 2)" in targets(
        "overload", phases(1.5, 0.5)
    )


def test_where_a_node_is_slow_every_phase_is_held_against_the_oracle():
    assert targets("slow-node", phases(0.7, 1.5, timely_of_possible=0.96)) == [
        "pass  fc-prop at 0.7x from 0 s: timely, of what can be: 0.98 (at least 0.97)",
        "pass  fc-prop at 0.7x from 0 s: refused: 0 (at most 0.005)",
        "pass  fc-prop at 1.5x from 10 s: settling, s: 2 (at most 3)",
        "FAIL  fc-prop at 1.5x from 10 s: timely, of what can be: 0.96 (at least 0.97)",
    ]


@pytest.mark.parametrize("scenario", ["pause", "kill"])
def test_where_a_node_goes_away_it_is_from_then_on(scenario):
    assert targets(scenario, phases(0.85, 0.85, 0.85, timely_of_possible=None), 10.0) == [
        "pass  fc-prop at 0.85x from 0 s: refused: 0 (at most 0.005)",
        "pass  fc-prop at 0.85x from 10 s: timely, of what can be: 0.98 (at least 0.97)",
        "FAIL  fc-prop at 0.85x from 20 s: timely, of what can be: none (at least 0.97)",
        "pass  fc-prop at 0.85x from 20 s: refused: 0 (at most 0.005)",
    ]


def test_a_quick_run_knows_the_capacity_too_roughly_to_be_judged_by_it():
    run = RUN | {"phases": phases(0.7, 1.5, settling_s=None)}
    found = judged(criteria({"scenario": "slow-node", "runs": [run]}), True)
    assert [check.line().split(":")[1] for check in found if check.is_judged] == [" refused"]


def test_in_overload_it_is_held_against_the_libraries_at_their_best():
    library = {"policy": "netflix-vegas", "proxy": "concurrency-limits 0.5.4", "phases": phases(1.5)}
    better = library | {
        "policy": "tower-p2c-3",
        "proxy": "tower 0.5.3",
        "phases": phases(1.5, timely_per_s=62.0),
    }
    runs = [RUN | {"phases": phases(1.5)}, *(RUN | one for one in (library, better))]
    assert [check.line() for check in criteria({"scenario": "overload", "runs": runs})] == [
        "FAIL  fc-prop at 1.5x from 0 s: timely, of the libraries' best: 0.9677 (at least 0.98)"
    ]
