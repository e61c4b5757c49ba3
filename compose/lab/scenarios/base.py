"""What a scenario is to the lab's commands and to the report, and what those that compare policies share."""

from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from compose.lab import render, topology
from compose.lab.errors import LabError
from compose.lab.render import Policy
from compose.lab.run import Options, run_and_report, say_length
from compose.lab.timeline import Fault, Timeline, Times, Work
from loadtests.report.criteria import Criterion, by_policy, on_module, on_several

# Of requests, those that are long, by the name of the mix.
MIXES = {"3:1": 1 / 4, "25:1": 1 / 26, "100:1": 1 / 101}
DEFAULT_MIX = "25:1"


class Scenario(ABC):
    """`asked` is what the command line says, in the words of `python -m compose.lab run --help`."""

    name: str
    # Where the number of clients follows from that of the slaves.
    clients_per_slave: int | None = None

    @abstractmethod
    def validate(self, asked: Namespace) -> None:
        """Refuses what the scenario cannot have."""

    @abstractmethod
    def options(self, asked: Namespace) -> Options:
        """How each policy is run, for a sweep too."""

    @abstractmethod
    def run(self, asked: Namespace) -> bool:
        """Runs it and writes its results; whether that is a success."""

    @abstractmethod
    def criteria(self, summary: dict[str, Any]) -> list[Criterion]:
        """The targets, each with what is measured, for the policies that summary.json has."""


@dataclass(frozen=True)
class Requirement:
    """What every policy must have, and what is said of those that have not."""

    is_met: Callable[[Policy], bool]
    otherwise: str


class Comparison(Scenario):
    """Policies in turn on the same work; it is a burst unless a scenario has times and work of its own."""

    quick = Times(warmup=5.0, burst=13.0, duration=38.0)
    full = Times(warmup=10.0, burst=30.0, duration=110.0)
    fault: Fault | None = None
    has_replica = False
    clients_per_slave = 300
    # At least so many; of proxies there are no more unless that is asked for.
    min_slaves = 1
    min_proxies = 1
    # One that the scenario cannot have, and why.
    refused_database: tuple[str, str] | None = None
    requirement: Requirement | None = None

    def work(self, mix: str) -> Work:
        return Work()

    def plan(
        self,
        quick: bool = False,
        mix: str = DEFAULT_MIX,
        duration: float | None = None,
        redis_away: float = 0.0,
    ) -> Timeline:
        if mix not in MIXES:
            raise LabError(f"--mix {mix}: must be one of {', '.join(MIXES)}")
        times = self.quick if quick else self.full
        if duration is not None:
            least = (times.calm or times.back or times.event) + 1
            if duration < least:
                raise LabError(
                    f"--duration {duration:g}: must be at least {least:g} s, "
                    "or the scenario's event is not in it"
                )
            times = replace(times, duration=duration)
        most = times.duration - times.event
        if redis_away > most:
            raise LabError(
                f"--redis-away {redis_away:g}: must be at most {most:g} s, the time from the event to the end"
            )
        return Timeline(self.name, times, self.work(mix), self.fault, self.has_replica, redis_away)

    def validate(self, asked: Namespace) -> None:
        slaves = len(topology.load(self.name, asked.nodes).slaves)
        self.check_enough("nodes", slaves, self.min_slaves)
        self.check_enough("proxies", asked.proxies or self.min_proxies, self.min_proxies)
        if self.refused_database and asked.database == self.refused_database[0]:
            raise LabError(f"--database {asked.database}: in scenario {self.name} {self.refused_database[1]}")

    def check_enough(self, option: str, number: int, least: int) -> None:
        if number < least:
            raise LabError(
                f"--{option} {number}: scenario {self.name} needs at least {least}, since one is killed"
            )

    def options(self, asked: Namespace) -> Options:
        timeline = self.plan(asked.quick, asked.mix, asked.duration, asked.redis_away)
        self.validate(asked)
        nodes = topology.load(self.name, asked.nodes)
        return Options(
            timeline=timeline,
            topology=nodes,
            seed=asked.seed,
            quick=asked.quick,
            clients=asked.clients or self.clients_per_slave * len(nodes.slaves),
            proxies=asked.proxies or self.min_proxies,
            results=asked.results,
            database=asked.database,
        )

    def policies(self, asked: Namespace) -> list[Policy]:
        """Those asked for, or what the proxy has for the scenario."""
        names = render.default_names(asked.proxy, self.name)
        chosen = render.policies(names if asked.policies is None else asked.policies.split())
        if self.requirement and (
            without := [policy.name for policy in chosen if not self.requirement.is_met(policy)]
        ):
            raise LabError(f"--policies {' '.join(without)}: {self.requirement.otherwise}")
        if asked.redis_away and not any(policy.has_ring for policy in chosen):
            raise LabError(f"--redis-away: no Redis is used by {', '.join(p.name for p in chosen)}")
        return chosen

    def run(self, asked: Namespace) -> bool:
        options, chosen = self.options(asked), self.policies(asked)
        say_length(len(chosen), options)
        run_and_report(options, chosen, asked.observe)
        return True

    def criteria(self, summary: dict[str, Any]) -> list[Criterion]:
        """What holds in every comparison; those that have targets of their own add them."""
        found = on_module(by_policy(summary))
        # What is killed takes some of the ideal with it.
        return found if self.fault else [*found, *on_several(summary)]
