"""`python -m dashboards build [directory]`: writes the dashboards as JSON, for Grafana's provisioning."""

import argparse
import sys
from pathlib import Path

from dashboards import ALL
from dashboards.parts import encoded

GENERATED = Path(__file__).parent / "generated"


def main() -> int:
    top = argparse.ArgumentParser(prog="python -m dashboards", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="build")
    build = commands.add_parser("build", help="write the dashboards as JSON")
    build.add_argument("directory", type=Path, nargs="?", default=GENERATED, help=f"default: {GENERATED}")
    arguments = top.parse_args()
    try:
        arguments.directory.mkdir(parents=True, exist_ok=True)
        for name, dashboard in ALL.items():
            (arguments.directory / f"{name}.json").write_text(encoded(dashboard()))
    except OSError as error:
        print(f"dashboards: {error}", file=sys.stderr)
        return 1
    print(arguments.directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
