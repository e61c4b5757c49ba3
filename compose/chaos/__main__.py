"""`python -m compose.chaos --seed 7 --seconds 60`: see --help. Needs root, for namespaces."""

import argparse
import os
import shutil
import sys

from compose.chaos import page
from compose.chaos.run import run
from compose.lab.errors import LabError
from compose.lab.run import RESULTS

INSIDE = "--inside"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m compose.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of faults and clients")
    parser.add_argument("--seconds", type=float, default=60, help="for how long faults begin")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        if os.geteuid() != 0:
            raise LabError("needs root: the hosts are namespaces")
        own = ["unshare", "--net", "--mount", "--propagation", "private"]
        python = [sys.executable, "-m", "compose.chaos"]
        os.execvp(own[0], [*own, *python, *sys.argv[1:], INSIDE])
    directory = RESULTS / f"chaos-{options.seed}"
    shutil.rmtree(directory, ignore_errors=True)
    history, violations = run(options.seed, options.seconds, directory)
    path = directory / "report.html"
    page.write(path, history, violations, {"seed": options.seed, "seconds": options.seconds})
    for line in page.summary(history, violations):
        print(line)
    print(path)
    return 1 if violations else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LabError as error:
        sys.exit(f"chaos: {error}")
