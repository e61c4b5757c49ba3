"""Intervals of medians, against tables of the sign test."""

import random
import statistics
from itertools import pairwise

import pytest

from loadtests.bench.rounds import MIN_ROUNDS, differences, interval, order, ratios


@pytest.mark.parametrize(("count", "low", "high"), [(6, 1, 6), (9, 2, 8), (11, 2, 10), (20, 6, 15)])
def test_an_interval_has_the_order_statistics_of_the_sign_test(count, low, high):
    values = [float(n) for n in range(1, count + 1)]
    random.Random(1).shuffle(values)
    found = interval(values)
    assert (found.low, found.median, found.high) == (low, statistics.median(values), high)


def test_too_few_rounds_have_no_interval():
    with pytest.raises(ValueError, match=f"5 rounds, at least {MIN_ROUNDS}"):
        interval([1.0] * 5)


def test_an_interval_holds_the_median_as_often_as_promised():
    draw = random.Random(7)
    held = 0
    for _ in range(1000):
        found = interval([draw.lognormvariate(0, 0.5) for _ in range(11)])
        held += found.low <= 1 <= found.high
    # 97.9 % for eleven; five standard deviations below that.
    assert held > 950


def test_a_slow_spell_of_the_machine_leaves_ratios_alone():
    speed = [1.0, 1.0, 0.3, 0.3, 1.0, 0.5, 1.0]
    base = [1000 * factor for factor in speed]
    assert ratios([0.9 * rate for rate in base], base).low == pytest.approx(0.9)
    assert differences([rate + 5 for rate in base], base).high == pytest.approx(5)


def test_each_kind_begins_and_follows_each_other_one():
    kinds = ["plain", "module", "wasm"]
    rounds = [order(kinds, turn) for turn in range(6)]
    assert {turn[0] for turn in rounds} == set(kinds)
    assert {pair for turn in rounds for pair in pairwise(turn)} == {
        (a, b) for a in kinds for b in kinds if a != b
    }
