"""Timeline of a run: the clients' work, and the events at the nodes."""

from collections.abc import Callable
from dataclasses import dataclass

from compose.lab.placement import Sets
from compose.lab.stack import Plan
from compose.lab.topology import Topology


@dataclass(frozen=True)
class Times:
    """In seconds since the clients start."""

    warmup: float
    burst: float
    duration: float
    # When something is killed, and when it is started again.
    kill: float | None = None
    back: float | None = None
    # When inter-request times are again those before the burst.
    calm: float | None = None

    @property
    def event(self) -> float:
        return self.burst if self.kill is None else self.kill


@dataclass(frozen=True)
class Work:
    """Work of the clients: requests, their intervals, and the SLA."""

    # Inter-request times before the burst and after it, each evenly within two.
    think: tuple[tuple[float, float], tuple[float, float]] = ((3.5, 4.0), (1.0, 1.5))
    sla: float = 1.0
    long_share: float = 0.0
    # Zipf exponent of stocks and accounts; 0 for a uniform distribution.
    skew: float = 0.0
    # Object sets of transactions, if nodes are primaries; all requests are then transactions.
    sets: Sets | None = None
    # Query of the aggregators to all partitions, if there are aggregators.
    gather: str = ""


@dataclass(frozen=True)
class Fault:
    """Programs that are killed, in this order."""

    text: str
    victims: Callable[[Plan, Topology], list[str]]


@dataclass(frozen=True)
class Timeline:
    """One run of a scenario."""

    scenario: str
    times: Times
    work: Work
    fault: Fault | None = None
    # Whether Redis has a replica, and sentinels that make it the master.
    has_replica: bool = False
    # Time from the event on for which Redis does not respond; 0 for none.
    redis_away: float = 0.0
    drain: float = 5.0

    def events(self, has_redis: bool) -> dict[str, float]:
        """Everything that happens, by name."""
        times = self.times
        found = {} if self.work.sets else {"burst": times.burst}
        if times.kill is not None:
            found[self.scenario] = times.kill
        if times.back is not None:
            found["back"] = times.back
        if times.calm is not None:
            found["calm"] = times.calm
        if has_redis and self.redis_away:
            found |= {"Redis away": times.event, "Redis back": times.event + self.redis_away}
        return found

    def has_event(self, has_redis: bool) -> bool:
        return self.work.sets is None or bool(has_redis and self.redis_away)

    def event_text(self, has_redis: bool) -> str:
        times = self.times
        away = f"Redis is away for {self.redis_away:g} s" if has_redis and self.redis_away else ""
        if self.work.sets:
            return away
        before, after = (f"{low:g}-{high:g} s" for low, high in self.work.think)
        text = f"inter-request time {before} -> {after}"
        if times.calm is not None:
            text += f", and back after {times.calm - times.burst:g} s"
        if self.fault is not None:
            text = self.fault.text
        if times.back is not None:
            text += f", and started again after {times.back - times.event:g} s"
        return f"{text}; {away}" if away else text

    def redis_is_away(self, now: float) -> bool:
        return self.times.event <= now < self.times.event + self.redis_away
