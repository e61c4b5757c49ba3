"""Compares families of overload control: `make families`; see --help.

Each cell is an application, a scenario and a seed, with all policies in turn on the same requests. Its own
page and records are those of `make lab`, and its command is printed, to run it again."""

import argparse
import datetime
import json
import math
import sys
from pathlib import Path

from compose.applab import policies, run
from compose.apps import catalog
from compose.lab.__main__ import main
from compose.lab.errors import LabError
from compose.lab.run import RESULTS, report
from loadtests.families import cells, table
from loadtests.families.cells import Cell


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m loadtests.families",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument(
        "--quick", action="store_true", help="two applications, two scenarios, shorter, one seed"
    )
    top.add_argument(
        "--swept", action="store_true", help="each at all settings of its sweep, not its defaults"
    )
    top.add_argument("--apps", help=f"some of {' '.join(cells.APPS)}")
    top.add_argument("--scenarios", help=f"some of {' '.join(cells.SCENARIOS)}")
    top.add_argument("--seeds", help="such as 1 2 3")
    top.add_argument("--policies", help="names of loadtests/app-policies.toml")
    top.add_argument("--results", type=Path, default=RESULTS)
    top.add_argument("--bin-dir", type=Path, help="where plimsoll is; default: $CARGO_TARGET_DIR/release")
    return top


def seeds(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split()]
    except ValueError:
        raise LabError(f"--seeds {text}: must be numbers, such as 1 2 3") from None


def planned(arguments: argparse.Namespace) -> tuple[list[Cell], list[str]]:
    quick = arguments.quick
    apps = arguments.apps.split() if arguments.apps else cells.QUICK_APPS if quick else cells.APPS
    scenarios = cells.QUICK_SCENARIOS if quick else cells.SCENARIOS
    if arguments.scenarios:
        scenarios = arguments.scenarios.split()
    numbers = cells.QUICK_SEEDS if quick else cells.SEEDS
    if arguments.seeds:
        numbers = seeds(arguments.seeds)
    names = cells.SWEPT if arguments.swept else cells.DEFAULTS
    if arguments.policies:
        names = arguments.policies.split()
    found = cells.cells(list(apps), list(scenarios), list(numbers), quick)
    for cell in found:
        catalog.app(cell.app)
        cell.steps()
    return found, list(names)


def work(arguments: argparse.Namespace) -> int:
    found, names = planned(arguments)
    chosen = policies.load(names)
    length = sum(cell.seconds(len(chosen), run.AROUND_S, run.once_s(False)) for cell in found)
    print(f"{len(found)} cells of {len(chosen)} runs: about {math.ceil(length / 60)} min", file=sys.stderr)
    now = datetime.datetime.now(datetime.UTC)
    directory = arguments.results / f"{now:%Y%m%dT%H%M%SZ}-families"
    directory.mkdir(parents=True)
    summaries = []
    for number, cell in enumerate(found, 1):
        print(f"cell {number} of {len(found)}: {cell.command(chosen)}", file=sys.stderr, flush=True)
        # Also in a quick comparison the capacity is measured for as long as it takes to know it.
        options = run.Options(catalog.app(cell.app), cell.steps(), cell.seed, False, arguments.results)
        one = run.run(options, chosen)
        report(one)
        summaries.append(json.loads((one / "summary.json").read_text()))
        # Whole after each cell, as a run takes hours.
        text = table.markdown(summaries)
        (directory / "families.md").write_text(text)
        with (directory / "cells.txt").open("a") as file:
            print(one.name, cell.command(chosen), file=file)
    print(text)
    print(directory / "families.md")
    return 0


if __name__ == "__main__":
    sys.exit(main(parser(), work))
