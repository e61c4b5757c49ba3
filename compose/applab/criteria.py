"""The targets on real applications, whatever the scenario."""

from typing import Any

from compose.applab.scenario import SCENARIOS, Kind
from compose.lab.render import PROXIES
from loadtests.report.criteria import NATIVE_ENVOY, Criterion, by_policy

# Policies without any setting but the SLA.
JUDGED = ("fc-leastconn", "fc-leastconn-histogram", "fc-prop", "wasm-fc-prop")
OF_STATIC = 0.98
OF_LIBRARIES = 0.98
P95_OF_STATIC = 1.2
REFUSED_BELOW_CAPACITY = 0.005
OF_ORACLE = 0.97
SETTLING_S = 3
LAST_REFUSAL_S = 2


def criteria(summary: dict[str, Any]) -> list[Criterion]:
    """Phase by phase: against what can be timely, the best of the swept static limits, Envoy's own, and
    libraries'."""
    runs, kind = by_policy(summary), SCENARIOS.get(summary["scenario"])
    static = [run["phases"] for run in runs.values() if run["group"] == "static"]
    envoys = [run["phases"] for name, run in runs.items() if name.startswith(NATIVE_ENVOY)]
    libraries = [run["phases"] for run in runs.values() if run["proxy"].split()[0] not in PROXIES]
    return [
        line
        for name in JUDGED
        if name in runs
        for number in range(len(runs[name]["phases"]))
        for line in [
            *of_possible(number, runs[name], kind),
            *in_phase(number, runs[name], static, envoys, libraries),
        ]
    ]


def where(run: dict[str, Any], phase: dict[str, Any]) -> str:
    return f"{run['policy']} at {phase['load']:g}x from {phase['from_s']:g} s"


def is_away(run: dict[str, Any], phase: dict[str, Any]) -> bool:
    return run["event_s"] == phase["from_s"]


def of_possible(number: int, run: dict[str, Any], kind: Kind | None) -> list[Criterion]:
    """Against the oracle that knows what each node can do in the phase, and how soon after a step."""
    mine = run["phases"][number]
    before = run["phases"][number - 1] if number else mine
    found = []
    if before["load"] != mine["load"]:
        found.append(
            Criterion(f"{where(run, mine)}: settling, s", mine["settling_s"], SETTLING_S, False, True)
        )
    if mine["load"] < 1 < before["load"] and not is_away(run, mine):
        last = mine["last_refusal_s"] or 0.0
        found.append(Criterion(f"{where(run, mine)}: last refusal, s", last, LAST_REFUSAL_S, False))
    if kind is not None and is_about_a_node(kind, run, mine):
        part = mine["timely_of_possible"]
        found.append(Criterion(f"{where(run, mine)}: timely, of what can be", part, OF_ORACLE, True, True))
    return found


def is_about_a_node(kind: Kind, run: dict[str, Any], phase: dict[str, Any]) -> bool:
    """Whether one is slow, away, or was."""
    return phase["from_s"] >= run["event_s"] if kind.outage else kind.last < 1


def in_phase(
    number: int,
    run: dict[str, Any],
    static: list[list[Any]],
    envoys: list[list[Any]],
    libraries: list[list[Any]],
) -> list[Criterion]:
    mine = run["phases"][number]
    place = where(run, mine)
    # The load is relative to all nodes, not to those left after an outage.
    if mine["load"] < 1 and not is_away(run, mine):
        return [Criterion(f"{place}: refused", mine["refused_fraction"], REFUSED_BELOW_CAPACITY, False)]
    found = []
    if static:
        best = max((phases[number] for phases in static), key=lambda phase: phase["timely_per_s"])
        timely, p95 = (
            mine[key] / best[key] if mine[key] is not None and best[key] else None
            for key in ("timely_per_s", "p95_delay_s")
        )
        found += [
            Criterion(f"{place}: timely, of the best static limit's", timely, OF_STATIC, True),
            Criterion(f"{place}: p95, of that limit's", p95, P95_OF_STATIC, False),
        ]
    for whose, peers, aim in (("Envoy's", envoys, 1.0), ("the libraries'", libraries, OF_LIBRARIES)):
        if peers:
            most = max(phases[number]["timely_per_s"] for phases in peers)
            part = mine["timely_per_s"] / most if most else None
            found.append(Criterion(f"{place}: timely, of {whose} best", part, aim, True))
    return found
