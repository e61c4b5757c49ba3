"""The burst where one node is slower than the others (compose/topology.toml)."""

from typing import Any

from compose.lab.scenarios.base import Comparison
from loadtests.report.criteria import ON_HAPROXY, Criterion, by_policy, on_envoy

SHARE_ERROR = 0.10


class Heterogeneous(Comparison):
    name = "heterogeneous"

    def criteria(self, summary: dict[str, Any]) -> list[Criterion]:
        runs = by_policy(summary)
        shares = [
            Criterion(
                f"{name} largest share error against capacity",
                runs[name]["max_share_deviation"],
                SHARE_ERROR,
                False,
            )
            for name in ON_HAPROXY
            if name in runs
        ]
        return [*shares, *on_envoy(runs, summary["sla_seconds"]), *super().criteria(summary)]
