"""Medians, spreads and speed-ups of the answers, and what was hoped for."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from compose.scatter.measure import Answer

PIECES = ("client", "dissemination", "databases", "aggregation")
SINGLE = "single"
# The paper's, with eight databases by horizontal partitioning.
AT = 0.5
OVERALL, OF_QUERY = 1.62, 1.93


@dataclass(frozen=True)
class Target:
    """Target, and whether it is met."""

    what: str
    met: bool

    def line(self) -> str:
        return f"{'pass' if self.met else 'FAIL'}  {self.what}"


def quartiles(values: Iterable[float]) -> dict[str, float]:
    low, middle, high = np.percentile(list(values), [25, 50, 75])
    return {"median": float(middle), "low": float(low), "high": float(high)}


def amdahl(total: float, query: float, faster_query: float) -> float:
    """The paper's speed-up (2): only the databases' part becomes faster."""
    share = query / total
    return 1 / ((1 - share) + share * faster_query / query)


def line(answers: list[Answer], base: list[Answer]) -> dict[str, Any]:
    """One partitioning at one distance."""

    def spread(of: Callable[[Answer], float]) -> dict[str, float]:
        return quartiles(map(of, answers))

    total, query = spread(lambda it: it.total), spread(lambda it: it.query)
    base_total = quartiles(it.total for it in base)["median"]
    base_query = quartiles(it.query for it in base)["median"]
    first = answers[0]
    return {
        "partitioning": first.partitioning,
        "distance": first.distance,
        "rows": first.rows,
        "bytes": first.bytes,
        "total_s": total,
        "query_s": query,
        **{f"{piece}_s": spread(lambda it, piece=piece: getattr(it, piece)) for piece in PIECES},
        # Of pairs of adjacent queries.
        "speedup": {
            **quartiles(one.total / other.total for one, other in zip(base, answers, strict=True)),
            "median": base_total / total["median"],
        },
        "query_speedup": base_query / query["median"],
        "speedup_2": amdahl(base_total, base_query, query["median"]),
        "query_s_by_database": {
            name: quartiles(it.queries[name] for it in answers)["median"] for name in first.queries
        },
    }


def lines(answers: list[Answer]) -> list[dict[str, Any]]:
    """By distance, then in the order in which the partitionings are."""
    groups: dict[tuple[float, str], list[Answer]] = {}
    for answer in answers:
        groups.setdefault((answer.distance, answer.partitioning), []).append(answer)
    names = list(dict.fromkeys(answer.partitioning for answer in sorted(answers, key=order)))
    distances = sorted({distance for distance, _ in groups})
    return [line(groups[at, name], groups[at, SINGLE]) for at in distances for name in names]


def order(answer: Answer) -> int:
    return ("single", "clusters", "horizontal", "both").index(answer.partitioning)


def targets(mode: str, found: list[dict[str, Any]]) -> list[Target]:
    at = {one["partitioning"]: one for one in found if one["distance"] == AT}
    horizontal = at["horizontal"]
    totals = {name: one["total_s"]["median"] for name, one in at.items()}
    ordered = totals["both"] <= totals["horizontal"] <= totals["clusters"] <= totals[SINGLE]
    shown = ", ".join(f"{name} {1000 * total:.0f} ms" for name, total in totals.items())
    overall, two = horizontal["speedup"]["median"], horizontal["speedup_2"]
    return [
        Target(
            f"{mode}: horizontal at R {AT}: overall {overall:.2f} (at least {OVERALL})", overall >= OVERALL
        ),
        Target(
            f"{mode}: horizontal at R {AT}: by the query part, speed-up (2) {two:.2f} (at least {OF_QUERY})",
            two >= OF_QUERY,
        ),
        Target(f"{mode}: both, horizontal, clusters, single in this order at R {AT}: {shown}", ordered),
    ]
