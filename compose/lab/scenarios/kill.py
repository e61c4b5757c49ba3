"""Base of scenarios that kill a program: times, and limits on the cost."""

from typing import Any

from compose.lab.scenarios.base import Comparison
from compose.lab.timeline import Fault, Times
from loadtests.report.criteria import Criterion, by_policy

# Prefixes of Plimsoll's policies.
PLIMSOLLS = ("fc-", "limits-", "lua-", "module-", "wasm-", "envoy-eds-", "gather")
# Maximum seconds until the rest works at its capacity.
RECOVERY_S = 3


class Kill(Comparison):
    quick = Times(warmup=5.0, burst=8.0, kill=20.0, duration=38.0)
    full = Times(warmup=10.0, burst=15.0, kill=50.0, duration=110.0)
    fault: Fault

    def criteria(self, summary: dict[str, Any]) -> list[Criterion]:
        """Only what was under way may fail, and the rest is soon at its best."""
        runs = by_policy(summary)
        own = [line for name in runs if name.startswith(PLIMSOLLS) for line in recovery(name, runs[name])]
        return [*own, *super().criteria(summary)]


def recovery(name: str, run: dict[str, Any]) -> list[Criterion]:
    found = run["failover"]
    if found is None:
        return []
    lines = [
        Criterion(f"{name} requests sent after the death that failed", found["errors_after"], 0, False),
        Criterion(f"{name} back to the ideal after the death, s", found["recovered_s"], RECOVERY_S, False),
    ]
    if found["back_s"] is not None:
        again = found["recovered_back_s"]
        lines.append(Criterion(f"{name} at the ideal after the return, s", again, RECOVERY_S, False))
    return lines
