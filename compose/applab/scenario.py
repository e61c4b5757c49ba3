"""Scenarios: load over time, relative to the nodes' capacity, and the outage of a node."""

import math
from dataclasses import dataclass

from compose.applab.outage import Kill, Outage, Pause
from compose.lab.errors import LabError

SLA_S = 0.5
# Timeout of a client.
PATIENCE_S = 5.0
NODES = 3
# CPU quota of each node, in cores.
QUOTA = 0.25
MAX_STEPS = 20
MAX_LOAD = 100.0
MAX_SECONDS = 3600.0
# Requests/s at which k6, the proxy and three nodes still fit into two cores.
MAX_REQUESTS_PER_S = 600.0


@dataclass(frozen=True)
class Step:
    load: float
    seconds: float


@dataclass(frozen=True)
class Scenario:
    name: str
    steps: tuple[Step, ...]
    # Outage of the last node, from the second step to the third.
    outage: Outage | None = None
    # Factor on the last node's quota.
    last: float = 1.0
    # CPU quota of each node, in cores.
    quota: float = QUOTA
    # Part of the requests that are of the highest class, the others being of the lowest; 0: none has a class.
    important: float = 0.0
    # Times that a client tries again what was not served.
    retries: int = 0

    @property
    def patience(self) -> float:
        """Seconds until the last attempt of a request has timed out."""
        return PATIENCE_S * (1 + self.retries)

    @property
    def duration(self) -> float:
        return sum(step.seconds for step in self.steps)

    def begins(self, step: int) -> float:
        return sum(one.seconds for one in self.steps[:step])

    def quotas(self) -> dict[str, float]:
        """CPU quota in cores, by node."""
        names = [f"node{number + 1}" for number in range(NODES)]
        return {name: self.quota * (self.last if name == names[-1] else 1.0) for name in names}

    def event_text(self) -> str | None:
        return self.outage and self.outage.text(f"node{NODES}", self.steps[1].seconds)


@dataclass(frozen=True)
class Kind:
    """Defaults of a scenario."""

    # Load and seconds of each step, and those of a quick run.
    full: str
    quick: str
    outage: Outage | None = None
    # Default factor on the last node's quota; with 1 the scenario has no such option.
    last: float = 1.0
    # As in Scenario.
    important: float = 0.0
    retries: int = 0


OVERLOAD = Kind("0.5:20,1.5:25,3:25,0.5:20", "0.5:6,1.5:8,3:8,0.5:8")
SCENARIOS = {
    "overload": OVERLOAD,
    "slow-node": Kind("0.7:25,1.5:25", "0.7:10,1.5:10", last=0.5),
    "pause": Kind("0.85:15,0.85:3,0.85:17", "0.85:6,0.85:3,0.85:6", Pause()),
    "kill": Kind("0.85:15,0.85:10,0.85:15", "0.85:6,0.85:5,0.85:6", Kill()),
    "steady": Kind("0.85:300", "0.85:30"),
    "nominal": OVERLOAD,
    "classes": Kind("0.5:15,3:30,0.5:15", "0.5:6,3:10,0.5:6", important=0.2),
    "retries": Kind("0.5:15,1.5:20,0.5:35", "0.5:6,1.5:8,0.5:20", retries=3),
}


def parse(text: str) -> tuple[Step, ...]:
    """`0.5:20,3:25`: load, in parts of the capacity, and for how many seconds."""
    found = []
    for number, word in enumerate(text.split(","), 1):
        where = f"--load {text!r}: step {number}, {word!r}"
        load, colon, length = word.partition(":")
        try:
            step = Step(float(load), float(length))
        except ValueError:
            step = None
        if step is None or not colon:
            raise LabError(f"{where}: must be load:seconds, as in 1.5:25")
        if not 0 < step.load <= MAX_LOAD:
            raise LabError(f"{where}: the load must be above 0 and at most {MAX_LOAD:g} times the capacity")
        if not 1 <= step.seconds <= MAX_SECONDS:
            raise LabError(f"{where}: must last within 1..{MAX_SECONDS:g} s")
        found.append(step)
    if len(found) > MAX_STEPS:
        raise LabError(f"--load: {len(found)} steps, at most {MAX_STEPS}")
    if sum(step.seconds for step in found) > MAX_SECONDS:
        raise LabError(f"--load {text!r}: must last at most {MAX_SECONDS:g} s together")
    return tuple(found)


def scenario(name: str, load: str | None = None, quick: bool = False, value: float | None = None) -> Scenario:
    if name not in SCENARIOS:
        raise LabError(f"--scenario {name}: with an application it must be one of {', '.join(SCENARIOS)}")
    kind = SCENARIOS[name]
    if value is not None:
        check_value(value, kind)
    steps = parse((kind.quick if quick else kind.full) if load is None else load)
    if kind.outage and len(steps) < 3:
        raise LabError(
            f"--load {load!r}: scenario {name} needs three steps: before, while a node is away, and after"
        )
    last = kind.last if value is None else value
    return Scenario(name, steps, kind.outage, last, important=kind.important, retries=kind.retries)


def check_value(value: float, kind: Kind) -> None:
    if kind.last == 1:
        slow = ", ".join(name for name, other in SCENARIOS.items() if other.last < 1)
        raise LabError(f"--value {value:g}: only scenario {slow} has one")
    if not (math.isfinite(value) and 0.05 <= value <= 1):
        raise LabError(
            f"--value {value:g}: must be within 0.05..1, the part of its quota that node{NODES} keeps"
        )


def rates(steps: tuple[Step, ...], capacity: float) -> list[float]:
    """Requests/s of each step, where the nodes together can do `capacity`."""
    for step in steps:
        if step.load * capacity > MAX_REQUESTS_PER_S:
            raise LabError(
                f"--load {step.load:g}: of a capacity of {capacity:.1f} requests/s that is "
                f"{step.load * capacity:,.0f} requests/s; k6 beside the nodes sends at most "
                f"{MAX_REQUESTS_PER_S:g}"
            )
    return [step.load * capacity for step in steps]
