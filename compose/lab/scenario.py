"""What the clients do and what happens to the nodes, second by second."""

from dataclasses import dataclass, replace

from compose.lab.errors import LabError
from compose.lab.placement import Sets

SCENARIOS = (
    *("burst", "removal", "heterogeneous", "mix", "phases", "updates", "placement", "placement-even"),
    *("rejoin", "balancer-failover", "redis-failover", "aggregator-failover", "master-failover"),
)
# Who is killed, and what is said of it.
VICTIMS = {
    "removal": "a slave and its agent are killed",
    "rejoin": "a slave and its agent are killed",
    "balancer-failover": "one of the proxies is killed",
    "redis-failover": "the Redis master is killed",
    "aggregator-failover": "one of the aggregators is killed",
}
BURST = ((3.5, 4.0), (1.0, 1.5))
# Scheduling is to matter and not admission: below what the nodes can do, in the end by little.
PHASES = ((4.5, 5.0), (3.2, 3.7))
# Twice the load for a while: below what the nodes can do beside all updates, and above it.
UPDATES = ((7.0, 8.0), (3.5, 4.0))
# Of Zipf's law, so that there are hot and cold items.
UPDATES_SKEW = 1.0
UPDATES_SLA = 2.0
# One primary is to be overloaded by far, and all nodes together are not.
PLACEMENT = ((0.3, 0.5), (0.3, 0.5))
# A query to every partition logs in at each, and all are on one machine.
GATHERS = ((0.8, 1.2), (0.8, 1.2))
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
    # When what was killed is started again.
    rejoin: float | None = None
    # How long Redis answers nobody, from the event on; 0: it always does.
    redis_away: float = 0.0
    # Inter-request times before the burst and after it, each evenly within two.
    think: tuple[tuple[float, float], tuple[float, float]] = BURST
    # When inter-request times are again those before the burst.
    calm: float | None = None
    # Zipf's exponent of stocks and accounts; 0: all are asked for as often.
    skew: float = 0.0
    # What transactions are about, where nodes are primaries; then there is nothing but transactions.
    sets: Sets | None = None

    @property
    def event(self) -> float:
        return self.burst if self.removal is None else self.removal

    def events(self, has_redis: bool) -> dict[str, float]:
        """Everything that happens, by name."""
        found = {} if self.sets else {"burst": self.burst}
        if self.removal is not None:
            found[self.name] = self.removal
        if self.rejoin is not None:
            found["back"] = self.rejoin
        if self.calm is not None:
            found["calm"] = self.calm
        if has_redis and self.redis_away:
            found |= {"Redis away": self.event, "Redis back": self.event + self.redis_away}
        return found

    def has_event(self, has_redis: bool) -> bool:
        return self.sets is None or bool(has_redis and self.redis_away)

    def event_text(self, has_redis: bool) -> str:
        away = f"Redis is away for {self.redis_away:g} s" if has_redis and self.redis_away else ""
        if self.sets:
            return away
        before, after = (f"{low:g}-{high:g} s" for low, high in self.think)
        text = f"inter-request time {before} -> {after}"
        if self.calm is not None:
            text += f", and back after {self.calm - self.burst:g} s"
        if self.removal is not None:
            text = VICTIMS[self.name]
        if self.rejoin is not None:
            text += f", and started again after {self.rejoin - self.event:g} s"
        return f"{text}; {away}" if away else text

    def redis_is_away(self, now: float) -> bool:
        return self.event <= now < self.event + self.redis_away


def scenario(
    name: str, quick: bool, mix: str = "25:1", duration: float | None = None, redis_away: float = 0.0
) -> Scenario:
    if name not in SCENARIOS:
        raise LabError(f"--scenario {name}: must be one of {', '.join(SCENARIOS)}")
    if mix not in MIXES:
        raise LabError(f"--mix {mix}: must be one of {', '.join(MIXES)}")
    warmup, burst, end = (5.0, 13.0, 38.0) if quick else (10.0, 30.0, 110.0)
    removal = calm = rejoin = None
    if name in VICTIMS:
        burst, removal = (8.0, 20.0) if quick else (15.0, 50.0)
    if name == "rejoin":
        removal, rejoin = (16.0, 26.0) if quick else (40.0, 70.0)
    if name == "updates":
        warmup, burst, calm, end = (8.0, 14.0, 34.0, 68.0) if quick else (10.0, 30.0, 90.0, 130.0)
    if duration is not None:
        least = (calm or rejoin or removal or burst) + 1
        if duration < least:
            raise LabError(
                f"--duration {duration:g}: must be at least {least:g} s, or the scenario's event is not in it"
            )
        end = duration
    most = end - (removal or burst)
    if redis_away > most:
        raise LabError(
            f"--redis-away {redis_away:g}: must be at most {most:g} s, the time from the event to the end"
        )
    made = Scenario(name, warmup, burst, removal, end, redis_away=redis_away)
    own = {
        "mix": {"long_share": MIXES[mix]},
        "rejoin": {"rejoin": rejoin},
        "phases": {"think": PHASES},
        "aggregator-failover": {"think": GATHERS},
        "updates": {"think": UPDATES, "calm": calm, "skew": UPDATES_SKEW, "sla": UPDATES_SLA},
        "placement": {"think": PLACEMENT, "sets": Sets()},
        "placement-even": {"think": PLACEMENT, "sets": Sets(evenly=True)},
    }
    return replace(made, **own.get(name, {}))
