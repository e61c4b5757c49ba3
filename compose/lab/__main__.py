"""`python -m compose.lab run|sweep`: see --help."""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from compose.lab import render
from compose.lab.errors import LabError
from compose.lab.run import RESULTS, say_length
from compose.lab.scenarios import registry
from compose.lab.scenarios.base import DEFAULT_MIX, MIXES
from compose.lab.sweep import sweep, tries

MAX_CLIENTS = 18_000  # open files are limited to 20,000 on common machines
MAX_NODES = 50
MAX_PROXIES = 8


def number(low: int, high: int):
    def parse(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number within {low}..{high}")
        return int(text)

    return parse


def clients() -> str:
    """Help text: clients per slave, with the first scenario of each number."""
    found: dict[int, str] = {}
    for scenario in registry.SCENARIOS:
        if scenario.clients_per_slave is not None:
            found.setdefault(scenario.clients_per_slave, scenario.name)
    (most, _), *others = found.items()
    return f"{most} a slave; " + ", ".join(f"{n} in {name}" for n, name in others).replace(
        "in", "in scenario", 1
    )


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m compose.lab", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--scenario", default="burst", metavar="|".join(registry.BY_NAME))
    shared.add_argument("--seed", type=number(0, 2**31 - 1), default=1)
    shared.add_argument("--quick", action="store_true", help="at most 45 s a policy")
    shared.add_argument(
        "--clients",
        type=number(1, MAX_CLIENTS),
        help=f"default: {clients()}",
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
        "--mix", default=DEFAULT_MIX, metavar="|".join(MIXES), help="short to long requests, for scenario mix"
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
    command.set_defaults(redis_away=0, results=RESULTS)
    return top


def to_sweep(arguments: argparse.Namespace) -> list[render.Policy]:
    """The requested policies, or the proxy's policies that have settings to sweep."""
    default = render.policies(render.default_names(arguments.proxy, arguments.scenario))
    if arguments.policies is not None:
        return render.policies(arguments.policies.split())
    return render.policies([policy.name for policy in default if policy.sweep])


def limits(text: str | None) -> list[int] | None:
    if text is None:
        return None
    values = text.split()
    if not values or not all(value.isdecimal() and int(value) > 0 for value in values):
        raise LabError(f"--limits {text!r}: must be positive whole numbers")
    return [int(value) for value in values]


def interrupted(number: int, _: object) -> NoReturn:
    # Once only: a second signal must not break the teardown.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    raise SystemExit(128 + number)


def prepare(bin_dir: Path | None) -> None:
    """Sets the directory of the programs, and handlers for an orderly end on signals."""
    if bin_dir:
        os.environ["PLIMSOLL_BIN_DIR"] = str(bin_dir.resolve())
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, interrupted)


def work(arguments: argparse.Namespace) -> int:
    scenario = registry.named(arguments.scenario)
    if arguments.command == "run":
        return 0 if scenario.run(arguments) else 1
    values, chosen = limits(arguments.limits), to_sweep(arguments)
    runs = sum(len(tries(policy, values)) for policy in chosen)
    options = scenario.options(arguments)
    say_length(runs, options)
    for policy in chosen:
        print(f"best for {policy.name}, {scenario.name}: {sweep(policy, options, values)}")
    return 0


def main(parsed: argparse.ArgumentParser, do: Callable[[argparse.Namespace], int]) -> int:
    """Runs the command, and reports errors and interruptions to the user."""
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
