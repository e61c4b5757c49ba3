"""What is run: cells of an application, a scenario and a seed, each with all policies in turn."""

import shlex
from dataclasses import dataclass

from compose.applab.policies import Policy
from compose.applab.scenario import Scenario, scenario

# Those that need a limit have the one that a sweep found, which is in their names.
FLOOR = ("rr", "leastconn", "random")
STATIC = ("static-3",)
PLIMSOLL = ("fc-leastconn", "wasm-fc-prop")
ENVOY = ("envoy-adaptive-concurrency",)
LIBRARIES = (
    "failsafe-limiter",
    "failsafe-throttler",
    "netflix-gradient2",
    "netflix-vegas",
    "netflix-aimd",
    "tower-p2c-3",
)
DEFAULTS = (*FLOOR, *STATIC, *PLIMSOLL, *ENVOY, *LIBRARIES)
SWEPT = (
    "static",
    "fc-leastconn",
    "envoy-adaptive-concurrency-swept",
    "failsafe-limiter-swept",
    "failsafe-throttler-swept",
    "netflix-gradient2-swept",
    "netflix-vegas-swept",
    "netflix-aimd-swept",
    "tower-p2c",
)
APPS = ("go", "flask", "express", "php", "postgres")
SCENARIOS = ("overload", "slow-node", "pause", "steady")
SEEDS = (1, 2, 3)
# Those that differ most: requests that all run at once, and one event loop.
QUICK_APPS = ("go", "express")
QUICK_SCENARIOS = ("overload", "slow-node")
QUICK_SEEDS = (1,)
# Long enough for the libraries' own windows: failsafe-go's limiter updates after 50 requests.
QUICK_LOADS = {"overload": "0.5:6,3:15,0.5:6", "slow-node": "0.7:8,1.5:12"}


@dataclass(frozen=True)
class Cell:
    app: str
    scenario: str
    seed: int
    # Load over time, if it is not the scenario's own.
    load: str | None = None

    def steps(self) -> Scenario:
        return scenario(self.scenario, self.load)

    def seconds(self, policies: int, around_s: float, once_s: float) -> float:
        return policies * (self.steps().duration + around_s) + once_s

    def command(self, policies: list[Policy]) -> str:
        """Runs this cell again."""
        names = " ".join(policy.name for policy in policies)
        load = f" LOAD={self.load}" if self.load else ""
        return (
            f"make lab APP={self.app} SCENARIO={self.scenario} SEED={self.seed}{load} "
            f"POLICIES={shlex.quote(names)}"
        )


def cells(apps: list[str], scenarios: list[str], seeds: list[int], quick: bool) -> list[Cell]:
    """Seeds outermost, so that what one seed has of a cell is far from what the next one has."""
    return [
        Cell(app, name, seed, QUICK_LOADS.get(name) if quick else None)
        for seed in seeds
        for app in apps
        for name in scenarios
    ]
