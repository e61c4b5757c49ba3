"""`python -m compose.lab run|sweep`: see --help."""

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from compose.lab import failover, render, topology
from compose.lab.errors import LabError
from compose.lab.observe import Prometheus
from compose.lab.run import RESULTS, Options, run
from compose.lab.scenario import MIXES, SCENARIOS, scenario
from compose.lab.sweep import sweep, tries

CLIENTS_PER_SLAVE = 300
# They think less where they only write.
WRITERS_PER_SLAVE = 24
# Each asks every partition at once.
GATHERERS_PER_SLAVE = 4
MAX_CLIENTS = 18_000  # open files are limited to 20,000 on common machines
MAX_NODES = 50
MAX_PROXIES = 8


def number(low: int, high: int):
    def parse(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number within {low}..{high}")
        return int(text)

    return parse


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m compose.lab", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--scenario", default="burst", metavar="|".join(SCENARIOS))
    shared.add_argument("--seed", type=number(0, 2**31 - 1), default=1)
    shared.add_argument("--quick", action="store_true", help="at most 45 s a policy")
    shared.add_argument(
        "--clients",
        type=number(1, MAX_CLIENTS),
        help="default: 300 a slave; 24 in scenario placement, 4 in aggregator-failover",
    )
    shared.add_argument(
        "--nodes", type=number(1, MAX_NODES), help="slaves; default: those of compose/topology.toml"
    )
    shared.add_argument(
        "--proxies",
        type=number(1, MAX_PROXIES),
        help="proxies on one cluster; default: 1, and 2 where one is killed",
    )
    shared.add_argument(
        "--mix", default="25:1", metavar="|".join(MIXES), help="short to long requests, for scenario mix"
    )
    shared.add_argument(
        "--bin-dir", type=Path, help="where stocks and plimsoll are; default: $CARGO_TARGET_DIR/release"
    )
    shared.add_argument("--duration", type=float, help="seconds the clients run")
    shared.add_argument(
        "--database",
        choices=("sqlite", "postgres"),
        default="sqlite",
        help="what the nodes keep their data in",
    )
    shared.add_argument(
        "--proxy",
        default="haproxy",
        metavar="|".join(render.PROXIES),
        help="whose policies are the default; in master-failover, which one",
    )
    command = commands.add_parser("run", parents=[shared], help="run policies in turn and report")
    command.add_argument("--policies", help="names of loadtests/policies.toml, of either proxy")
    command.add_argument("--results", type=Path, default=RESULTS)
    command.add_argument(
        "--redis-away",
        type=number(1, 3600),
        default=0,
        help="seconds that Redis is stopped, from the event on",
    )
    command.add_argument(
        "--observe",
        nargs="?",
        const=0,
        type=number(1024, 65535),
        metavar="PORT",
        help="a Prometheus beside the lab, on a free port or this one; it stays up after the run",
    )
    command = commands.add_parser("sweep", parents=[shared], help="find the best settings of policies")
    command.add_argument("--policies", help="those with settings to sweep")
    command.add_argument("--limits", help="values to try in place of those in loadtests/policies.toml")
    return top


def options(arguments: argparse.Namespace) -> Options:
    if arguments.scenario == failover.NAME:
        raise LabError(f"--scenario {arguments.scenario}: has nothing to sweep")
    away = getattr(arguments, "redis_away", 0)
    chosen = scenario(arguments.scenario, arguments.quick, arguments.mix, arguments.duration, away)
    nodes = topology.load(arguments.scenario, arguments.nodes)
    if arguments.scenario in ("removal", "rejoin") and len(nodes.slaves) < 2:
        raise LabError(f"--nodes 1: scenario {arguments.scenario} needs at least 2, since one is killed")
    proxies = arguments.proxies or (2 if arguments.scenario == "balancer-failover" else 1)
    if arguments.scenario == "balancer-failover" and proxies < 2:
        raise LabError("--proxies 1: scenario balancer-failover needs at least 2, since one is killed")
    if arguments.scenario == "updates" and arguments.database != "sqlite":
        raise LabError(f"--database {arguments.database}: in scenario updates each node moves its own prices")
    is_gathering = arguments.scenario == "aggregator-failover"
    if is_gathering and arguments.database != "postgres":
        raise LabError(
            f"--database {arguments.database}: in scenario aggregator-failover partitions are PostgreSQL's: "
            "DB=postgres"
        )
    if chosen.sets and arguments.database != "sqlite":
        raise LabError(
            f"--database {arguments.database}: in scenario placement all nodes take writes, with SQLite only"
        )
    a_slave = WRITERS_PER_SLAVE if chosen.sets else CLIENTS_PER_SLAVE
    if is_gathering:
        a_slave = GATHERERS_PER_SLAVE
    clients = arguments.clients or a_slave * len(nodes.slaves)
    results = getattr(arguments, "results", RESULTS)
    return Options(
        scenario=chosen,
        topology=nodes,
        seed=arguments.seed,
        quick=arguments.quick,
        clients=clients,
        proxies=proxies,
        results=results,
        database=arguments.database,
    )


def names(arguments: argparse.Namespace) -> list[str]:
    """The policies asked for, or the proxy's own: all of them, or those with settings to sweep."""
    chosen = render.default_names(arguments.proxy, arguments.scenario)
    if arguments.policies is not None:
        return arguments.policies.split()
    if arguments.command == "run":
        return chosen
    return [policy.name for policy in render.policies(chosen) if policy.sweep]


def limits(text: str | None) -> list[int] | None:
    if text is None:
        return None
    values = text.split()
    if not values or not all(value.isdecimal() and int(value) > 0 for value in values):
        raise LabError(f"--limits {text!r}: must be positive whole numbers")
    return [int(value) for value in values]


def report(directory: Path) -> None:
    if importlib.util.find_spec("loadtests.report") is None:
        print(f"records are in {directory}; there is no loadtests.report to read them", file=sys.stderr)
        return
    done = subprocess.run(
        [sys.executable, "-m", "loadtests.report", str(directory)], cwd=topology.ROOT, check=False
    )
    if done.returncode != 0:
        raise LabError(f"the report failed with status {done.returncode}; the records are in {directory}")


def fail_over(arguments: argparse.Namespace) -> bool:
    """The scenario that has nodes, clients and times of its own; whether it kept its promises."""
    if arguments.database != "postgres":
        raise LabError(f"--database {arguments.database}: scenario {failover.NAME} needs postgres")
    for name in ("policies", "nodes", "clients", "proxies", "duration", "observe", "quick"):
        if getattr(arguments, name) not in (None, False):
            raise LabError(f"--{name}: scenario {failover.NAME} has its own")
    render.check_proxy(arguments.proxy)
    return failover.run(arguments.results, arguments.proxy)


def observe_and_run(arguments: argparse.Namespace) -> None:
    if arguments.observe is None:
        report(run(options(arguments), names(arguments)))
        return
    with Prometheus(arguments.observe or None) as observer:
        report(run(options(arguments), names(arguments), observer))
        process = observer.keep()
    print(f"Prometheus has the run: {observer.url} (to stop it: kill {process})")


def interrupted(number: int, _: object) -> NoReturn:
    # Once only: a second signal must not break the teardown.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    raise SystemExit(128 + number)


def prepare(bin_dir: Path | None) -> None:
    """Where the programs are, and an end in order for each signal that ends this."""
    if bin_dir:
        os.environ["PLIMSOLL_BIN_DIR"] = str(bin_dir.resolve())
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, interrupted)


def work(arguments: argparse.Namespace) -> int:
    if arguments.command == "run" and arguments.scenario == failover.NAME:
        return 0 if fail_over(arguments) else 1
    if arguments.command == "sweep":
        values, chosen = limits(arguments.limits), render.policies(names(arguments))
        for policy in chosen:
            tries(policy, values)
        for policy in chosen:
            best = sweep(policy, options(arguments), values)
            print(f"best for {policy.name}, {arguments.scenario}: {best}")
    else:
        observe_and_run(arguments)
    return 0


def main(parsed: argparse.ArgumentParser, do: Callable[[argparse.Namespace], int]) -> int:
    """Does what was asked for; errors and an interruption are said as a user is to read them."""
    arguments = parsed.parse_args()
    prepare(arguments.bin_dir)
    try:
        return do(arguments)
    except LabError as error:
        print(f"\nlab: {error}", file=sys.stderr)
        return 1
    except SystemExit:
        print("\nlab: interrupted; everything is stopped", file=sys.stderr)
        raise


if __name__ == "__main__":
    sys.exit(main(parser(), work))
