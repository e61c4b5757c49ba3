"""Figures of writes at primaries of object sets; docs/lab-results.md has the formulas."""

import numpy as np

from loadtests.report.numbers import ratio, rounded, show
from loadtests.report.records import Policy, TableChange, Writes
from loadtests.report.schema import Placement, Run, Summary

# Reference policy: the best placement if the loads were known beforehand.
BEST = "placement-fixed"
# Share of the reference that counts as settled, and the maximum periods to it after the first decision.
NEAR = 0.95
PERIODS = 4


def figures(policy: Policy, sla: float) -> Placement | None:
    """All but the comparison with the best fixed placement; None where no write named an object set."""
    writes, known = policy.writes, policy.meta.get("placement")
    if writes is None or known is None:
        return None
    begin, end = float(policy.meta["measured_from_s"]), float(policy.meta["measured_to_s"])
    seconds = int(np.ceil(end))
    ok = writes.chosen(writes.outcome == "ok")
    sent = writes.chosen((writes.sent >= begin) & (writes.sent < end))
    answered = sent.delay[sent.outcome == "ok"]
    p50, p95, p99 = np.percentile(answered, [50, 95, 99]) if answered.size else (None,) * 3
    moved = [t for t in handovers(policy.table) if t < end]
    decided = first_decision(policy.table)
    per_second = in_bins(ok.finished, seconds)
    count = in_bins(ok.finished, seconds, weights=ok.delay)
    return {
        "transactions_per_s": rounded(rate(ok, begin, end), 2),
        "timely_fraction": rounded((answered <= sla).mean() if answered.size else None),
        "mean_delay_s": rounded(answered.mean() if answered.size else None),
        "p50_delay_s": rounded(p50),
        "p95_delay_s": rounded(p95),
        "p99_delay_s": rounded(p99),
        "refused": int((writes.outcome == "refused").sum()),
        "errors": int((writes.outcome == "error").sum()),
        "period_s": known["period_s"],
        "first_decision_s": rounded(decided, 2),
        "handovers": len(moved),
        "last_handover_s": rounded(max(moved, default=None), 2),
        "checked": known["claims"],
        "unchecked": max(0, int(ok.sent.size) - known["claims"]),
        "violations": known["violations"],
        # Filled in by `compare`.
        "settled_from_s": None,
        "settled_transactions_per_s": None,
        "settled_of_best": None,
        "periods_to_best": None,
        "series": {
            "transactions_per_s": [rounded(v, 1) for v in per_second],
            "mean_delay_s": [
                rounded(v)
                for v in np.divide(count, per_second, np.full(seconds, np.nan), where=per_second > 0)
            ],
            "handovers": [rounded(v, 1) for v in in_bins(np.array(moved, float), seconds)],
            "sets": sets(ok, list(policy.meta["node_capacity_items_per_s"]), seconds),
        },
    }


def compare(runs: list[Run], policies: list[Policy]) -> None:
    """Each with the best fixed placement, over the same time, where that is in the run."""
    writes = {policy.meta["policy"]: policy.writes for policy in policies}
    best = writes.get(BEST)
    for run in (run for run in runs if run["placement"] is not None):
        found, mine = run["placement"], writes[run["policy"]]
        end, period, decided = run["measured_to_s"], found["period_s"], found["first_decision_s"]
        moving = decided is not None and period is not None
        begin = decided + PERIODS * period if moving else run["measured_from_s"]
        if begin >= end:
            continue
        ok = mine.chosen(mine.outcome == "ok")
        settled = rate(ok, begin, end)
        found["settled_from_s"] = rounded(begin, 2)
        found["settled_transactions_per_s"] = rounded(settled, 2)
        if best is None:
            continue
        known = best.chosen(best.outcome == "ok")
        found["settled_of_best"] = rounded(ratio(settled, rate(known, begin, end)))
        if moving:
            found["periods_to_best"] = periods_to(
                NEAR * rate(known, run["measured_from_s"], end), ok, decided, period, end
            )


def periods_to(enough: float, ok: Writes, decided: float, period: float, end: float) -> int | None:
    """Whole periods from the decision to the first that has enough transactions a second."""
    for number in range(int((end - decided) / period)):
        if rate(ok, decided + number * period, decided + (number + 1) * period) >= enough:
            return number
    return None


def rate(ok: Writes, begin: float, end: float) -> float:
    """Answers a second within [begin, end)."""
    inside = (ok.finished >= begin) & (ok.finished < end)
    return float(inside.sum()) / (end - begin)


def in_bins(times: np.ndarray, seconds: int, weights: np.ndarray | None = None) -> np.ndarray:
    keep = (times >= 0) & (times < seconds)
    weights = None if weights is None else weights[keep]
    return np.bincount(times[keep].astype(int), weights, seconds).astype(float)


def first_decision(table: list[TableChange]) -> float | None:
    """When the first set began to leave its node."""
    return next((change.t for change in table if change.state.startswith(">")), None)


def handovers(table: list[TableChange]) -> list[float]:
    """When a set had another primary than before."""
    primary: dict[str, str] = {}
    moved = []
    for change in (change for change in table if not change.state.startswith(">")):
        if primary.get(change.set, change.state) != change.state:
            moved.append(change.t)
        primary[change.set] = change.state
    return moved


def sets(ok: Writes, nodes: list[str], seconds: int) -> dict[str, list[int]]:
    """Per node and second: of how many object sets it gave the last answer by then."""
    order = np.argsort(ok.finished, kind="stable")
    times, names, places = ok.finished[order], ok.set[order], ok.node[order]
    ends = np.searchsorted(times, np.arange(1, seconds + 1))
    at: dict[str, str] = {}
    found: dict[str, list[int]] = {node: [] for node in nodes}
    begin = 0
    for end in ends:
        at |= dict(zip(names[begin:end].tolist(), places[begin:end].tolist(), strict=True))
        begin = end
        held = list(at.values())
        for node in nodes:
            found[node].append(held.count(node))
    return found


HEADINGS = [
    *("policy", "proxy", "transactions/s", "settled/s", "of best", "periods to 95 %", "hand-overs"),
    *("mean s", "p95 s", "p99 s", "refused", "errors", "two primaries", "proxy cores"),
]


def cells(summary: Summary) -> list[list[str]]:
    lines = []
    for run in summary["runs"]:
        found = run["placement"]
        if found is None:
            continue
        limited = " (generator limited)" if run["generator_limited"] else ""
        lines.append(
            [
                run["policy"] + limited,
                run["proxy"].split()[0] if run["proxy"] else "-",
                show(found["transactions_per_s"], ",.1f"),
                show(found["settled_transactions_per_s"], ",.1f"),
                show(found["settled_of_best"], ".1%"),
                show(found["periods_to_best"], "d"),
                show(found["handovers"], "d"),
                *(show(found[f"{name}_delay_s"], ".2f") for name in ("mean", "p95", "p99")),
                *(show(found[name], ",d") for name in ("refused", "errors", "violations")),
                show(run["proxy_cpu_share"], ".2f"),
            ]
        )
    return lines
