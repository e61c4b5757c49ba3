"""Figures of alternating rounds: each kind is compared with what was measured beside it in the same round."""

import math
import statistics
from dataclasses import dataclass

# A round that warms up connections and caches, and shares of the bounds, comes before those that count.
WARM_UP = 1
MIN_ROUNDS = 6
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A median, and the order statistics between which that of all rounds lies with `CONFIDENCE`."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g}..{self.high:.3g})"


def interval(values: list[float]) -> Interval:
    """By the sign test, which asks nothing of how values are distributed but that rounds are independent."""
    ordered, count = sorted(values), len(values)
    if count < MIN_ROUNDS:
        raise ValueError(f"{count} rounds, at least {MIN_ROUNDS}: fewer have no interval of {CONFIDENCE:.0%}")
    outside, skipped = 0.0, 0
    while True:
        outside += 2 * math.comb(count, skipped) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        skipped += 1
    return Interval(statistics.median(ordered), ordered[skipped - 1], ordered[count - skipped])


def ratios(own: list[float], base: list[float]) -> Interval:
    return interval([a / b for a, b in zip(own, base, strict=True)])


def differences(own: list[float], base: list[float]) -> Interval:
    return interval([a - b for a, b in zip(own, base, strict=True)])


def order(kinds: list[str], turn: int) -> list[str]:
    """Kinds in the order of a round, rotated by one each round."""
    start = turn % len(kinds)
    turned = kinds[start:] + kinds[:start]
    return turned if turn // len(kinds) % 2 == 0 else turned[::-1]
