"""Turns records into the figures of summary.json; docs/lab-results.md has the formulas."""

import itertools
from typing import Any

import numpy as np

from loadtests.report import freshness, phases, placement
from loadtests.report.failover import failover
from loadtests.report.numbers import ratio, rounded
from loadtests.report.records import MACHINE, Policy, Requests
from loadtests.report.schema import Removal, Run, Summary

# A policy is given 5 s after the event before its timely share counts as the settled one.
AFTER_EVENT_S = 5.0
# Shares of the nodes are compared with their capacity after the SLA's settling time.
SETTLING_S = 10.0
GENERATOR_CPU_LIMIT = 0.9
GENERATOR_LAG_LIMIT_S = 0.1
GENERATOR_RULE = (
    f"cpu_share above {GENERATOR_CPU_LIMIT} of a core, or the 99th percentile of the lag above "
    f"{GENERATOR_LAG_LIMIT_S} s"
)


def per_second(times: np.ndarray, weights: np.ndarray | None, seconds: int) -> np.ndarray:
    """Sums in the bins [k, k+1) for k below `seconds`."""
    keep = (times >= 0) & (times < seconds)
    weights = None if weights is None else weights[keep]
    return np.bincount(times[keep].astype(int), weights, seconds).astype(float)


def means(times: np.ndarray, values: np.ndarray, seconds: int) -> np.ndarray:
    count = per_second(times, None, seconds)
    total = per_second(times, values, seconds)
    return np.divide(total, count, out=np.full(seconds, np.nan), where=count > 0)


def quantiles(times: np.ndarray, values: np.ndarray, percent: float, seconds: int) -> list[float | None]:
    """Quantile of the values in each second; None without any."""
    order = np.argsort(times, kind="stable")
    borders = np.searchsorted(times[order], np.arange(seconds + 1))
    parts = (values[order[first:last]] for first, last in itertools.pairwise(borders))
    return [np.percentile(part, percent) if part.size else None for part in parts]


def capacity(policy: Policy, seconds: int) -> dict[str, np.ndarray]:
    """Items/s of each node in each second: as sampled, held between samples, static before the first."""
    found = {}
    for node, static in policy.meta["node_capacity_items_per_s"].items():
        series = np.full(seconds, np.nan)
        for row in policy.nodes:
            second = int(row["t_s"])
            if row["node"] == node and second < seconds and row["capacity_items_per_s"] is not None:
                series[second] = row["capacity_items_per_s"]
        last = float(static)
        for second in range(seconds):
            last = series[second] = last if np.isnan(series[second]) else series[second]
        found[node] = series
    return found


def transient(ok: Requests, sla: float, event: float | None, end: float) -> dict[str, Any]:
    """Overshoot and settling on 1 s means, by time of finish, in bins that start at the event."""
    none = {"overshoot_s": None, "settling_s": None, "settled": None}
    if event is None:
        return none
    seconds = max(1, int(np.ceil(end - event)))
    inside = ok.finished < end
    mean = means(ok.finished[inside] - event, ok.delay[inside], seconds)
    if np.all(np.isnan(mean)):
        return none
    above, answered = np.flatnonzero(mean > sla), np.flatnonzero(~np.isnan(mean))
    # A second without answers is no proof of recovery: some later one has to be within the SLA.
    settled = above.size == 0 or above[-1] < answered[-1]
    settling = 0.0 if above.size == 0 else above[-1] + 1.0 if settled else end - event
    return {
        "overshoot_s": rounded(np.nanmax(mean)),
        "settling_s": rounded(settling),
        "settled": bool(settled),
    }


def after_event(meta: dict[str, Any]) -> int:
    """The whole second from which what the event did is over; without an event, the start-up."""
    event = meta["measured_from_s"] if meta["event_s"] is None else meta["event_s"]
    return int(np.ceil(event + AFTER_EVENT_S))


def cache_hit_ratio(policy: Policy, begin: float, end: float) -> float | None:
    rows = [row for row in policy.nodes if begin <= row["t_s"] < end]
    hits, misses = (sum(row[name] or 0 for row in rows) for name in ("cache_hits", "cache_misses"))
    return ratio(hits, hits + misses)


def shares(ok: Requests, names: list[str], begin: float, end: float) -> dict[str, float]:
    keep = (ok.finished >= begin) & (ok.finished < end)
    items = {name: float(ok.items[keep & (ok.node == name)].sum()) for name in names}
    total = sum(items.values())
    return {name: round(value / total, 4) if total else 0.0 for name, value in items.items()}


def chosen(r: Requests, keep: np.ndarray) -> Requests:
    return Requests(
        r.sent[keep],
        r.delay[keep],
        r.items[keep],
        r.query[keep],
        r.important[keep],
        r.outcome[keep],
        r.node[keep],
        r.age[keep],
    )


def removal(
    policy: Policy, errors: np.ndarray, timely: np.ndarray, caps: dict[str, np.ndarray]
) -> Removal | None:
    """Cost of the death of nodes; None if no node died."""
    event, end = policy.meta["event_s"], int(policy.meta["measured_to_s"])
    if event is None:
        return None
    dead = [n for n, series in caps.items() if series[end - 1] == 0]
    if not dead:
        return None
    first, to, from_ = int(np.ceil(policy.meta["measured_from_s"])), int(event), after_event(policy.meta)
    before, after = timely[first:to], timely[from_:end]
    # At the event itself where no whole second is before it.
    lost = sum(float(caps[n][min(first, to) : max(to, min(first, to) + 1)].mean()) for n in dead)
    late = errors[errors >= event]
    return {
        "dead_nodes": dead,
        "timely_before_items_per_s": rounded(before.mean() if before.size else None, 1),
        "timely_after_items_per_s": rounded(after.mean() if after.size else None, 1),
        "lost_capacity_items_per_s": rounded(lost, 1),
        "error_window_s": rounded(late.max() - event if late.size else 0.0),
    }


def summarise(policy: Policy, sla: float) -> Run:
    meta, queries = policy.meta, chosen(policy.requests, policy.requests.query)
    begin, end, event = float(meta["measured_from_s"]), float(meta["measured_to_s"]), meta["event_s"]
    length, seconds = end - begin, int(np.ceil(end))
    ok = chosen(queries, queries.outcome == "ok")
    on_time = ok.delay <= sla
    caps = capacity(policy, seconds)
    offered = per_second(queries.sent, queries.items, seconds)
    ideal = np.minimum(offered, sum(caps.values(), np.zeros(seconds)))
    timely = per_second(ok.finished, ok.items * on_time, seconds)
    total = per_second(ok.finished, ok.items, seconds)
    # Whole seconds only, so that a figure and its ideal are over the same time.
    first, last = int(np.ceil(begin)), int(end)
    settled_from = after_event(meta)
    # By time of sending, so that what was still unfinished at the end counts with its whole delay.
    sent = chosen(queries, (queries.sent >= begin) & (queries.sent < end))
    answered = sent.delay[sent.outcome == "ok"]
    p50, p95, p99 = np.percentile(answered, [50, 95, 99]) if answered.size else (None,) * 3
    names = list(caps)
    share_from = int(np.ceil((begin if event is None else event) + SETTLING_S))
    late_caps = {n: float(s[share_from:last].sum()) for n, s in caps.items()}
    cap_sum = sum(late_caps.values())
    cap_shares = {n: round(v / cap_sum, 4) if cap_sum else 0.0 for n, v in late_caps.items()}
    late_shares = shares(ok, names, share_from, last)
    answered_late = any(late_shares.values())
    off = [abs(late_shares[n] / c - 1) for n, c in cap_shares.items() if c > 0 and answered_late]
    refused_rate = per_second(queries.sent, (queries.outcome == "refused").astype(float), seconds)
    other = chosen(policy.requests, ~policy.requests.query)
    other = chosen(other, (other.sent >= begin) & (other.sent < end))
    other_ok = other.delay[other.outcome == "ok"]
    lag, cpu = meta["generator"]["lag_p99_s"], meta["generator"]["cpu_share"]
    delay = means(ok.finished, ok.delay, seconds)
    errors = queries.outcome == "error"
    return {
        "policy": meta["policy"],
        "group": meta.get("group"),
        "app": meta.get("app"),
        "proxy": meta["proxy"],
        "total_items_per_s": rounded(total[first:last].mean(), 1),
        "timely_items_per_s": rounded(timely[first:last].mean(), 1),
        "ideal_items_per_s": rounded(ideal[first:last].mean(), 1),
        "offered_items_per_s": rounded(offered[first:last].mean(), 1),
        "mean_delay_s": rounded(answered.mean() if answered.size else None),
        "p50_delay_s": rounded(p50),
        "p95_delay_s": rounded(p95),
        "p99_delay_s": rounded(p99),
        **transient(ok, sla, event, end),
        "refused_fraction": rounded((sent.outcome == "refused").mean() if sent.sent.size else 0.0),
        "error_fraction": rounded((sent.outcome == "error").mean() if sent.sent.size else 0.0),
        "cache_hit_ratio": rounded(cache_hit_ratio(policy, begin, end)),
        "node_shares": shares(ok, names, begin, end),
        "generator_lag_s": lag,
        "timely_of_ideal": rounded(ratio(timely[first:last].sum(), ideal[first:last].sum())),
        "timely_of_ideal_after_event": rounded(
            ratio(timely[settled_from:last].sum(), ideal[settled_from:last].sum())
        ),
        "node_shares_settled": late_shares,
        "capacity_shares_settled": cap_shares,
        "max_share_deviation": rounded(max(off) if off else None),
        "updates": freshness.updates(policy, queries, sla),
        "failover": failover(policy, timely, ideal),
        "removal": removal(policy, queries.finished[errors], timely, caps),
        "requests": int(sent.sent.size),
        "transactions": {
            "requests_per_s": rounded(other.sent.size / length, 2),
            "mean_delay_s": rounded(other_ok.mean() if other_ok.size else None),
            "p99_delay_s": rounded(np.percentile(other_ok, 99) if other_ok.size else None),
            "refused_fraction": rounded((other.outcome == "refused").mean() if other.sent.size else 0.0),
            "error_fraction": rounded((other.outcome == "error").mean() if other.sent.size else 0.0),
        },
        "placement": placement.figures(policy, sla),
        "phases": phases.phases(policy, sla),
        "proxy_cpu_share": meta["proxy_cpu_share"],
        "generator_cpu_share": cpu,
        "generator_limited": cpu > GENERATOR_CPU_LIMIT or lag > GENERATOR_LAG_LIMIT_S,
        "measured_from_s": begin,
        "measured_to_s": end,
        "event_s": event,
        "event": meta["event"],
        "settings": meta["settings"],
        "series": {
            "timely_items_per_s": [rounded(v, 1) for v in timely],
            "ideal_items_per_s": [rounded(v, 1) for v in ideal],
            "offered_items_per_s": [rounded(v, 1) for v in offered],
            "mean_delay_s": [rounded(v) for v in delay],
            "p95_delay_s": [rounded(v) for v in quantiles(ok.finished, ok.delay, 95, seconds)],
            "refused_per_s": [rounded(v, 1) for v in refused_rate],
        },
    }


def summary(run: dict[str, Any], policies: list[Policy]) -> Summary:
    runs = [summarise(policy, run["sla_seconds"]) for policy in policies]
    placement.compare(runs, policies)
    phases.compare(runs)
    return {
        "scenario": run["scenario"],
        "capacity": run.get("capacity"),
        "sla_seconds": run["sla_seconds"],
        "runs": runs,
        "seed": run["seed"],
        "quick": run["quick"],
        "clients": run["clients"],
        "nodes": run["nodes"],
        "proxies": run["proxies"],
        "database": run["database"],
        "machine": {key: run["machine"][key] for key in MACHINE},
        "started": run["started"],
        "command": run["command"],
        "generator_rule": GENERATOR_RULE,
    }
