"""Interface of a scenario for the lab's commands and the report; base of scenarios that compare policies."""

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

# Share of long requests, by name of the mix.
MIXES = {"3:1": 1 / 4, "25:1": 1 / 26, "100:1": 1 / 101}
DEFAULT_MIX = "25:1"


class Scenario(ABC):
    """Scenario of the lab; `args` are the options of `python -m compose.lab run --help`."""

    name: str
    # Clients per slave, if their number depends on that of the slaves.
    clients_per_slave: int | None = None

    @abstractmethod
    def validate(self, args: Namespace) -> None:
        """Raises LabError for options that the scenario does not support."""

    @abstractmethod
    def options(self, args: Namespace) -> Options:
        """Options of each policy's run, also in a sweep."""

    @abstractmethod
    def run(self, args: Namespace) -> bool:
        """Runs the scenario and writes its results; returns whether it succeeded."""

    @abstractmethod
    def criteria(self, summary: dict[str, Any]) -> list[Criterion]:
        """Targets with measured values, for the policies in summary.json."""


@dataclass(frozen=True)
class Requirement:
    """Condition on every policy, and the message for policies that do not meet it."""

    is_met: Callable[[Policy], bool]
    otherwise: str


class Comparison(Scenario):
    """Runs policies in turn on the same work, by default a burst."""

    quick = Times(warmup=5.0, burst=13.0, duration=38.0)
    full = Times(warmup=10.0, burst=30.0, duration=110.0)
    fault: Fault | None = None
    has_replica = False
    clients_per_slave = 300
    # Minimum numbers; the number of proxies is also the default.
    min_slaves = 1
    min_proxies = 1
    # Database that the scenario does not support, and the reason.
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

    def validate(self, args: Namespace) -> None:
        slaves = len(topology.load(self.name, args.nodes).slaves)
        self.check_enough("nodes", slaves, self.min_slaves)
        self.check_enough("proxies", args.proxies or self.min_proxies, self.min_proxies)
        if self.refused_database and args.database == self.refused_database[0]:
            raise LabError(f"--database {args.database}: in scenario {self.name} {self.refused_database[1]}")

    def check_enough(self, option: str, number: int, least: int) -> None:
        if number < least:
            raise LabError(
                f"--{option} {number}: scenario {self.name} needs at least {least}, since one is killed"
            )

    def options(self, args: Namespace) -> Options:
        timeline = self.plan(args.quick, args.mix, args.duration, args.redis_away)
        self.validate(args)
        nodes = topology.load(self.name, args.nodes)
        return Options(
            timeline=timeline,
            topology=nodes,
            seed=args.seed,
            quick=args.quick,
            clients=args.clients or self.clients_per_slave * len(nodes.slaves),
            proxies=args.proxies or self.min_proxies,
            results=args.results,
            database=args.database,
        )

    def policies(self, args: Namespace) -> list[Policy]:
        """The requested policies, or the proxy's defaults for the scenario."""
        names = render.default_names(args.proxy, self.name)
        chosen = render.policies(names if args.policies is None else args.policies.split())
        if self.requirement and (
            without := [policy.name for policy in chosen if not self.requirement.is_met(policy)]
        ):
            raise LabError(f"--policies {' '.join(without)}: {self.requirement.otherwise}")
        if args.redis_away and not any(policy.has_ring for policy in chosen):
            raise LabError(f"--redis-away: no Redis is used by {', '.join(p.name for p in chosen)}")
        return chosen

    def run(self, args: Namespace) -> bool:
        options, chosen = self.options(args), self.policies(args)
        say_length(len(chosen), options)
        run_and_report(options, chosen, args.observe)
        return True

    def criteria(self, summary: dict[str, Any]) -> list[Criterion]:
        """What holds in every comparison; those that have targets of their own add them."""
        found = on_module(by_policy(summary))
        # What is killed takes some of the ideal with it.
        return found if self.fault else [*found, *on_several(summary)]
