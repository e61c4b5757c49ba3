"""The targets on real applications, whatever the scenario."""

from typing import Any

from loadtests.report.criteria import NATIVE_ENVOY, Criterion, by_policy

# Policies without any setting but the SLA.
JUDGED = ("fc-leastconn", "fc-leastconn-histogram", "fc-prop", "wasm-fc-prop")
OF_STATIC = 0.98
P95_OF_STATIC = 1.2
REFUSED_BELOW_CAPACITY = 0.005


def criteria(summary: dict[str, Any]) -> list[Criterion]:
    """Phase by phase, against the best value of the swept static limit, and against Envoy's own."""
    runs = by_policy(summary)
    static = [run["phases"] for run in runs.values() if run["group"] == "static"]
    envoys = [run["phases"] for name, run in runs.items() if name.startswith(NATIVE_ENVOY)]
    return [
        line
        for name in JUDGED
        if name in runs
        for number in range(len(runs[name]["phases"]))
        for line in in_phase(number, runs[name], static, envoys)
    ]


def in_phase(
    number: int, run: dict[str, Any], static: list[list[Any]], envoys: list[list[Any]]
) -> list[Criterion]:
    mine = run["phases"][number]
    where = f"{run['policy']} at {mine['load']:g}x from {mine['from_s']:g} s"
    # What a load asks of the nodes that are left is not said in it.
    is_away = run["event_s"] == mine["from_s"]
    if mine["load"] < 1 and not is_away:
        return [Criterion(f"{where}: refused", mine["refused_fraction"], REFUSED_BELOW_CAPACITY, False)]
    found = []
    if static:
        best = max((phases[number] for phases in static), key=lambda phase: phase["timely_per_s"])
        timely, p95 = (
            mine[key] / best[key] if mine[key] is not None and best[key] else None
            for key in ("timely_per_s", "p95_delay_s")
        )
        found += [
            Criterion(f"{where}: timely, of the best static limit's", timely, OF_STATIC, True),
            Criterion(f"{where}: p95, of that limit's", p95, P95_OF_STATIC, False),
        ]
    if envoys:
        most = max(phases[number]["timely_per_s"] for phases in envoys)
        part = mine["timely_per_s"] / most if most else None
        found.append(Criterion(f"{where}: timely, of Envoy's best", part, 1.0, True))
    return found
