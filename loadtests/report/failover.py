"""Cost of a program's death, and time to recovery."""

import numpy as np

from loadtests.report.numbers import rounded
from loadtests.report.records import Policy
from loadtests.report.schema import Failover

# Window of the timely throughput, and its share of the ideal that counts as recovered.
WINDOW_S = 3
RECOVERED = 0.95


def recovered(timely: np.ndarray, ideal: np.ndarray, since: float, end: int) -> float | None:
    """Seconds until the first of as many seconds in which enough of the ideal was done."""
    for first in range(int(np.ceil(since)), end - WINDOW_S + 1):
        window = slice(first, first + WINDOW_S)
        if timely[window].sum() >= RECOVERED * ideal[window].sum():
            return rounded(first - since)
    return None


def failover(policy: Policy, timely: np.ndarray, ideal: np.ndarray) -> Failover | None:
    """None where nothing was killed. Transactions count among the errors."""
    killed, dead, back = (policy.meta[f"{name}_s"] for name in ("killed", "dead", "back"))
    if killed is None:
        return None
    end = int(policy.meta["measured_to_s"])
    requests = policy.requests
    # Requests unfinished at the end were cut off, and do not count.
    failed = (requests.outcome == "error") & (requests.finished < policy.meta["measured_to_s"])
    # A client that has not heard of its connection's end yet sends on it; a new one would be refused.
    late = (requests.sent >= dead) & ~np.isin(requests.node, policy.meta["killed"])
    until = end if back is None else int(back)
    return {
        "killed_s": killed,
        "dead_s": dead,
        "back_s": back,
        "errors_in_flight": int((failed & ~late & (requests.finished >= killed)).sum()),
        "errors_after": int((failed & late).sum()),
        "recovered_s": recovered(timely, ideal, killed, until),
        "recovered_back_s": None if back is None else recovered(timely, ideal, back, end),
    }
