"""A minute of one application under overload: round robin beside Plimsoll, live on the terminal."""

import argparse
import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from compose.applab import capacity, picture, policies
from compose.applab.arrivals import Arrivals
from compose.applab.picture import WIDTH, Show
from compose.applab.run import GRACE_S, Options, Planned, generator, plan, wait_ready
from compose.applab.scenario import PATIENCE_S, Scenario, parse, rates
from compose.apps import catalog
from compose.apps.quota import Quota
from compose.lab import machine, scratch
from compose.lab.__main__ import main
from compose.lab.errors import LabError
from compose.lab.processes import Processes, require_running, stop

SIDES = {"round robin": "rr", "with Plimsoll": "fc-prop"}
# Two sets of three nodes, and the clients, are to fit into two cores.
SCENARIO = Scenario("demo", parse("0.5:6,2:18,0.5:18"), quota=0.2)
CAPACITY_S = 2.0
SEED = 1


@dataclass(frozen=True)
class Side:
    """A set of nodes behind its proxy; `directory` has its logs and the clients' records."""

    name: str
    options: Options
    inside: Mapping[str, Quota]
    planned: Planned
    processes: Processes
    directory: Path


@contextlib.contextmanager
def side(name: str) -> Iterator[Side]:
    """A set that serves."""
    [policy] = policies.load([SIDES[name]])
    with contextlib.ExitStack() as leaving:
        run = leaving.enter_context(scratch.directory("plimsoll-lab-"))
        parts = SCENARIO.quotas()
        inside = {
            node: leaving.enter_context(Quota(f"{policy.name}-{node}", part)) for node, part in parts.items()
        }
        options = Options(catalog.app("go"), SCENARIO, SEED, True, run)
        planned = plan(policy, options, inside, dict.fromkeys(inside, 0.0), run)
        processes = leaving.enter_context(Processes(planned.programs, run, run))
        # Nodes with work left would take seconds to end.
        for quota in inside.values():
            leaving.callback(quota.kill)
        wait_ready(options, inside, processes, planned)
        yield Side(name, options, inside, planned, processes, run)


def measured(sides: list[Side]) -> float:
    """Requests/s that one set can do while the other is as busy."""
    ports = [one.planned.addresses.ports for one in sides]
    where = [(of.host(index), port) for of in ports for index, port in enumerate(of.slaves)]
    return sum(capacity.measure(where, CAPACITY_S, SEED)) / len(sides)


class Screen:
    """Draws in place on a terminal that is large enough, and says a line a second elsewhere."""

    def __init__(self, show: Show, height: int) -> None:
        size = shutil.get_terminal_size()
        self._in_place = (
            sys.stdout.isatty()
            and os.environ.get("TERM") != "dumb"
            and size.columns >= WIDTH
            and size.lines > height
        )
        self._colours = self._in_place and not os.environ.get("NO_COLOR")
        self._show, self._drawn, self._told = show, 0, 0

    def update(self, arrivals: Mapping[str, Arrivals], now: float) -> None:
        """Shows the whole seconds until `now`, if there is a new one."""
        seconds = min(int(now), self._show.duration)
        if seconds == self._told:
            return
        sides = {name: picture.by_second(one.records, seconds) for name, one in arrivals.items()}
        if self._in_place:
            lines = picture.picture(self._show, sides, self._colours)
            up = f"\x1b[{self._drawn}A" if self._drawn else ""
            print(up + "\n".join(f"\r\x1b[2K{line}" for line in lines), flush=True)
            self._drawn = len(lines)
        else:
            for second in range(self._told, seconds):
                print(picture.line(self._show, sides, second), flush=True)
        self._told = seconds


def drive(sides: list[Side], show: Show) -> dict[str, Arrivals]:
    """Sends the requests to all sides at once, and draws until the last is answered."""
    height = len(picture.picture(show, {one.name: [] for one in sides}, False))
    screen = Screen(show, height)
    with contextlib.ExitStack() as leaving:
        clients, arrivals = [], {}
        for one in sides:
            ports = one.planned.addresses.ports
            k6 = generator(one.options, ports.frontend, list(show.rates), one.directory)
            leaving.callback(stop, k6)
            clients.append(k6)
            arrivals[one.name] = Arrivals(one.directory / "console.log", ports.names())
        limit = time.monotonic() + show.duration + PATIENCE_S + GRACE_S
        running = True
        while running:
            running = any(k6.poll() is None for k6 in clients)
            for one, k6 in zip(sides, clients, strict=True):
                one.processes.check()
                arrivals[one.name].poll()
                if k6.poll():
                    require_running(k6, one.directory)
            # A record is written once its request has ended.
            screen.update(arrivals, min(one.now() for one in arrivals.values()) - 0.5)
            if time.monotonic() > limit:
                raise LabError(f"k6 has not ended {show.duration + PATIENCE_S + GRACE_S:g} s after its start")
            time.sleep(0.1)
    return arrivals


def work(_: argparse.Namespace) -> int:
    # Whatever is missing is said before anything starts.
    for needed in (machine.haproxy, machine.k6, lambda: machine.binary("plimsoll")):
        needed()
    catalog.installed(catalog.TOOLS / "bin" / "go")
    print("Starting two sets of three nodes, and measuring what they can do ...", flush=True)
    with contextlib.ExitStack() as leaving:
        sides = [leaving.enter_context(side(name)) for name in SIDES]
        leaving.callback(print, "\nStopping all of it ...", flush=True)
        found = measured(sides)
        show = Show(SCENARIO.steps, tuple(rates(SCENARIO.steps, found)), found)
        arrivals = drive(sides, show)
        by_step = {name: picture.by_step(one.records, show.steps) for name, one in arrivals.items()}
        print("", *picture.summary(show, by_step), "", *picture.WHERE_NEXT, sep="\n", flush=True)
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m compose.applab.demo", description=__doc__)
    top.add_argument("--bin-dir", type=Path, help="where plimsoll is; default: $CARGO_TARGET_DIR/release")
    return top


if __name__ == "__main__":
    sys.exit(main(parser(), work))
