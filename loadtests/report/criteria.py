"""Targets, each with what was measured; a scenario's are in its module (compose/lab/scenarios)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

# Plimsoll's policies on each proxy; the others with Envoy's start are its own.
ON_HAPROXY = ("fc-prop", "fc-hash")
ON_ENVOY = (
    "envoy-eds-fc-prop",
    "envoy-eds-fc-hash",
    "wasm-fc-prop",
    "wasm-fc-hash",
    "module-fc-prop",
    "module-fc-hash",
)
NATIVE_ENVOY = "envoy-"
# Of the filter's timely items, by the module with the same policy: 1 % is noise.
OF_WASM = 0.99
# Where several proxies share the bounds as limits.
OF_IDEAL_LIMITS = 0.99
OF_IDEAL = 0.9
OF_IDEAL_SETTLED = 0.95


@dataclass
class Criterion:
    text: str
    measured: float | None
    limit: float
    at_least: bool
    # A quick run has too little time for it, or knows the capacity too roughly.
    needs_full_run: bool = False
    is_judged: bool = True

    @property
    def passed(self) -> bool:
        if self.measured is None:
            return False
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def line(self) -> str:
        sign = "at least" if self.at_least else "at most"
        measured = "none" if self.measured is None else figure(self.measured)
        text = f"{self.text}: {measured} ({sign} {figure(self.limit)})"
        if not self.is_judged:
            return f"skip  {text}, not judged in a quick run"
        return f"{'pass' if self.passed else 'FAIL'}  {text}"


def judged(checks: Iterable[Criterion], quick: bool) -> list[Criterion]:
    """The same for a run that was quick or not."""
    return [replace(check, is_judged=not (quick and check.needs_full_run)) for check in checks]


def figure(value: float) -> str:
    # Four digits, so that 0.9496 does not read as the 0.95 that it fails.
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def by_policy(summary: dict[str, Any]) -> dict[str, Any]:
    return {run["policy"]: run for run in summary["runs"]}


def against(name: str, peer: str, runs: dict[str, Any], limit: float) -> Criterion:
    other = runs[peer]["timely_items_per_s"]
    value = runs[name]["timely_items_per_s"] / other if other else None
    return Criterion(f"{name} / {peer}, timely items/s", value, limit, True)


def settled(name: str, run: dict[str, Any], sla: float) -> list[Criterion]:
    after = run["timely_of_ideal_after_event"]
    return [
        Criterion(f"{name} timely of ideal from 5 s after the event", after, OF_IDEAL_SETTLED, True, True),
        Criterion(f"{name} timely of ideal, whole time", run["timely_of_ideal"], OF_IDEAL, True, True),
        Criterion(f"{name} mean delay, s", run["mean_delay_s"], sla, False),
    ]


def on_module(runs: dict[str, Any]) -> list[Criterion]:
    """The module against the filter of the same run."""
    pairs = [(name, name.replace("module-", "wasm-", 1)) for name in runs if name.startswith("module-")]
    return [against(name, peer, runs, OF_WASM) for name, peer in pairs if peer in runs]


def on_several(summary: dict[str, Any]) -> list[Criterion]:
    """What is lost where several proxies share the bounds as limits."""
    if summary["proxies"] < 2:
        return []
    return [
        Criterion(
            f"{name} timely of ideal, {summary['proxies']} proxies",
            run["timely_of_ideal"],
            OF_IDEAL_LIMITS,
            True,
            True,
        )
        for name, run in by_policy(summary).items()
        if name.startswith("limits-")
    ]


def on_envoy(runs: dict[str, Any], sla: float) -> list[Criterion]:
    """Against every policy of Envoy's own that ran."""
    peers = [peer for peer in runs if peer.startswith(NATIVE_ENVOY) and peer not in ON_ENVOY]
    found = []
    for name in (name for name in ON_ENVOY if name in runs):
        found += [against(name, peer, runs, 1.0) for peer in peers]
        found += settled(name, runs[name], sla)
    return found
