"""Envoy with Plimsoll at full rate for long: `python -m loadtests.bench.soak`.

Prints its memory after each tenth of the time, and what is left in flight when the clients are gone.
"""

import argparse
import statistics
import sys

from loadtests.bench import envoy, load
from loadtests.bench.site import Site, new_site

NODES, WORKERS, PARTS = 5, 2, 10


def soak(site: Site, kind: str, seconds: int) -> None:
    program = envoy.start(site, kind, WORKERS)
    # V8 and the allocator settle in the first part.
    part = max(seconds // PARTS, 1)
    sizes, rates = [], []
    for _ in range(PARTS):
        rates.append(load.closed(program.port, None, seconds=part).per_second)
        sizes.append(program.resident_mib())
    in_flight = lambda: [program.stats()[f"in_flight_{what}"] for what in ("requests", "cost")]  # noqa: E731
    program.eventually("nothing in flight", lambda: in_flight() == [0, 0])
    print(
        f"{kind}: {PARTS * part} s at {statistics.mean(rates):,.0f} requests/s:"
        f" {', '.join(f'{size:.1f}' for size in sizes)} MiB;"
        f" grew by {sizes[-1] - sizes[0]:+.1f} MiB after the first tenth; in flight at the end: 0"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default=",".join(envoy.DECIDING), help="(%(default)s)")
    parser.add_argument("--seconds", type=int, default=600, help="of each (%(default)s)")
    args = parser.parse_args()
    for kind in args.kinds.split(","):
        with new_site(NODES) as site:
            soak(site, kind, args.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
