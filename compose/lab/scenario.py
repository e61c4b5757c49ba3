"""What the clients do and what happens to the nodes, second by second."""

from dataclasses import dataclass

from compose.lab.errors import LabError

SCENARIOS = ("burst", "removal", "heterogeneous", "mix")
MIXES = {"3:1": 1 / 4, "25:1": 1 / 26, "100:1": 1 / 101}


@dataclass(frozen=True)
class Scenario:
    """Times are in seconds since the clients start."""

    name: str
    warmup: float
    burst: float
    removal: float | None
    duration: float
    drain: float = 5.0
    long_share: float = 0.0
    sla: float = 1.0

    @property
    def event(self) -> float:
        return self.burst if self.removal is None else self.removal

    @property
    def event_text(self) -> str:
        if self.removal is not None:
            return "a slave and its agent are killed"
        return "inter-request time 3.5-4 s -> 1-1.5 s"


def scenario(name: str, quick: bool, mix: str = "25:1", duration: float | None = None) -> Scenario:
    if name not in SCENARIOS:
        raise LabError(f"--scenario {name}: must be one of {', '.join(SCENARIOS)}")
    if mix not in MIXES:
        raise LabError(f"--mix {mix}: must be one of {', '.join(MIXES)}")
    warmup, burst, end = (5.0, 13.0, 38.0) if quick else (10.0, 30.0, 110.0)
    removal = None
    if name == "removal":
        burst, removal = (8.0, 20.0) if quick else (15.0, 50.0)
    if duration is not None:
        least = (removal or burst) + 1
        if duration < least:
            raise LabError(
                f"--duration {duration:g}: must be at least {least:g} s, or the scenario's event is not in it"
            )
        end = duration
    return Scenario(name, warmup, burst, removal, end, long_share=MIXES[mix] if name == "mix" else 0.0)
