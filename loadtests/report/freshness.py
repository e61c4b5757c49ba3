"""Results of an overload with temporal data: delay, age of the data read, and update periods."""

from typing import Any

import numpy as np

from loadtests.report.numbers import rounded
from loadtests.report.records import Policy, Requests
from loadtests.report.schema import Updates


def ages(requests: Requests) -> tuple[float | None, float | None]:
    """Mean and 95th percentile at access, of the oldest datum of each answer."""
    known = requests.age[(requests.outcome == "ok") & ~np.isnan(requests.age)]
    if not known.size:
        return None, None
    return rounded(known.mean()), rounded(np.percentile(known, 95))


def between(requests: Requests, begin: float, end: float) -> Requests:
    keep = (requests.sent >= begin) & (requests.sent < end)
    return Requests(*(getattr(requests, name)[keep] for name in Requests.__dataclass_fields__))


def updates(policy: Policy, queries: Requests, sla: float) -> Updates | None:
    """None where the load does not fall again."""
    meta = policy.meta
    event, calm = meta["event_s"], meta["calm_s"]
    if event is None or calm is None:
        return None
    whole = between(queries, meta["measured_from_s"], meta["measured_to_s"])
    overload = between(queries, event, calm)
    answered = overload.delay[overload.outcome == "ok"]
    in_time = overload.items[(overload.outcome == "ok") & (overload.delay <= sla)]
    mean_age, p95_age = ages(whole)
    overload_mean_age, overload_p95_age = ages(overload)
    return {
        "calm_s": calm,
        "overload_mean_delay_s": rounded(answered.mean()) if answered.size else None,
        "overload_p95_delay_s": rounded(np.percentile(answered, 95)) if answered.size else None,
        "overload_timely_items_per_s": rounded(in_time.sum() / (calm - event), 1),
        "overload_refused_fraction": rounded((overload.outcome == "refused").mean())
        if overload.sent.size
        else None,
        "mean_age_s": mean_age,
        "p95_age_s": p95_age,
        "overload_mean_age_s": overload_mean_age,
        "overload_p95_age_s": overload_p95_age,
        **periods(policy, event, calm),
    }


def periods(policy: Policy, event: float, calm: float) -> dict[str, Any]:
    """From the agents' samples; null where they have no periods."""
    end = policy.meta["measured_to_s"]
    rows = [row for row in policy.nodes if row["t_s"] < end]
    made = [row["updates"] for row in rows if event <= row["t_s"] < calm and row["updates"] is not None]
    known = [row for row in rows if row["update_relaxed"] is not None]
    relaxed = per_second(known, int(np.ceil(end)))
    found = {
        "overload_updates_per_s": rounded(np.mean(made), 1) if made else None,
        "relaxed_share": None,
        "longest_period_s": None,
        "hot_relaxed": None,
        "back_s": None,
        "relaxed_share_by_second": relaxed,
    }
    if not known:
        return found
    late = [row["t_s"] for row in known if row["update_relaxed"] > 0 and row["t_s"] >= calm]
    last = max(row["t_s"] for row in known)
    # Those of the last samples may be relaxed still.
    is_back = not late or max(late) < last - 1.5
    return found | {
        "relaxed_share": max(share for share in relaxed if share is not None),
        "longest_period_s": max(row["update_longest_s"] or 0.0 for row in known),
        "hot_relaxed": max(row["update_hot_relaxed"] or 0.0 for row in known),
        "back_s": None if not is_back else rounded(max(late) - calm if late else 0.0, 1),
    }


def per_second(known: list[dict[str, Any]], seconds: int) -> list[float | None]:
    """Items with longer periods than their own, over all items, of all nodes; null without a sample."""
    relaxed, items = np.zeros(seconds), np.zeros(seconds)
    for row in known:
        relaxed[int(row["t_s"])] += row["update_relaxed"]
        items[int(row["t_s"])] += row["update_items"] or 0.0
    return [rounded(r / n) if n else None for r, n in zip(relaxed, items, strict=True)]
