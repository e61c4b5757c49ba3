"""What a comparison runs."""

import pytest

from compose.applab import policies
from loadtests.families import __main__ as command
from loadtests.families import cells


def planned(*words):
    return command.planned(command.parser().parse_args(list(words)))


@pytest.mark.parametrize("names", [cells.DEFAULTS, cells.SWEPT])
def test_every_policy_is_one_of_the_lab(names):
    assert policies.load(list(names))


def test_a_quick_comparison_takes_at_most_half_an_hour():
    found, names = planned("--quick")
    # Seconds to start and stop, and to measure the capacity twice.
    seconds = sum(cell.seconds(len(policies.load(names)), 4, 26) for cell in found)
    assert seconds <= 1800


def test_a_cell_says_how_to_run_it_again():
    [cell] = cells.cells(["go"], ["slow-node"], [3], quick=True)
    assert cell.command(policies.load(["rr", "tower-p2c-3"])) == (
        "make lab APP=go SCENARIO=slow-node SEED=3 LOAD=0.7:8,1.5:12 POLICIES='rr tower-p2c-3'"
    )


def test_all_seeds_of_a_cell_are_apart():
    found, _ = planned("--apps", "go flask", "--scenarios", "overload", "--seeds", "4 5")
    assert [(cell.app, cell.seed) for cell in found] == [("go", 4), ("flask", 4), ("go", 5), ("flask", 5)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--apps", "cobol"], "cobol"),
        (["--scenarios", "flood"], "--scenario flood"),
        (["--seeds", "one"], "--seeds one: must be numbers, such as 1 2 3"),
    ],
)
def test_what_is_not_there_is_named_before_anything_runs(words, message):
    with pytest.raises(command.LabError, match=message):
        planned(*words)
