"""`python -m compose.applab`: the lab on real applications; see --help."""

import argparse
import sys
from pathlib import Path

from compose.applab import policies
from compose.applab.run import Options, run
from compose.applab.scenario import SCENARIOS, scenario
from compose.apps import catalog
from compose.lab.__main__ import main, number
from compose.lab.run import RESULTS, report


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m compose.applab", description=__doc__)
    top.add_argument("--app", required=True, help="an application of compose/apps")
    top.add_argument("--scenario", default="overload", metavar="|".join(SCENARIOS))
    top.add_argument(
        "--policies", help="names of loadtests/app-policies.toml; `static` is a sweep, `static-4` a value"
    )
    top.add_argument("--seed", type=number(0, 2**31 - 1), default=1)
    top.add_argument("--load", help="load:seconds of each step, in parts of the capacity; as in 0.5:20,3:25")
    top.add_argument(
        "--value", type=float, help="scenario slow-node: the part of its quota that the last node keeps"
    )
    top.add_argument("--quick", action="store_true", help="shorter steps")
    top.add_argument("--results", type=Path, default=RESULTS)
    top.add_argument("--bin-dir", type=Path, help="where plimsoll is; default: $CARGO_TARGET_DIR/release")
    return top


def work(arguments: argparse.Namespace) -> int:
    app = catalog.app(arguments.app)
    chosen = scenario(arguments.scenario, arguments.load, arguments.quick, arguments.value)
    wanted = policies.default_names(chosen.name, app.source is not None)
    names = wanted if arguments.policies is None else arguments.policies.split()
    options = Options(app, chosen, arguments.seed, arguments.quick, arguments.results)
    report(run(options, policies.load(names)))
    return 0


if __name__ == "__main__":
    sys.exit(main(parser(), work))
