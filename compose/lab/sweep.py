"""Finds the static maxconn that serves a scenario best: what a user would have to know beforehand."""

import datetime
import json
import shlex
import sys
import tempfile
from pathlib import Path

from compose.lab import machine, render
from compose.lab.progress import Progress
from compose.lab.run import Options, run_policy

DEFAULT_LIMITS = (16, 24, 32, 48, 64, 80, 96)


def sweep(options: Options, limits: list[int], path: Path = render.STATIC) -> int:
    """Runs static-maxconn at each limit and keeps the best, by timely items/s, in `path`."""
    policy = render.policies(["static-maxconn"])[0]
    progress = Progress()
    figures = []
    with tempfile.TemporaryDirectory(prefix="plimsoll-sweep-") as directory:
        for limit in limits:
            progress.say("static-maxconn", f"limit {limit}")
            meta = run_policy(policy, options, Path(directory) / str(limit), limit, progress)
            figures.append({"maxconn": limit, "timely_items_per_s": meta["timely_items_per_s"]})
    best = max(figures, key=lambda figure: figure["timely_items_per_s"])["maxconn"]
    swept = json.loads(path.read_text()) if path.exists() else {}
    swept[options.scenario.name] = {
        "best": best,
        "command": shlex.join(["python", "-m", "compose.lab", *sys.argv[1:]]),
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "seed": options.seed,
        "clients": options.clients,
        "nodes": len(options.topology.slaves),
        "machine": machine.describe(),
        "figures": figures,
    }
    path.write_text(json.dumps(swept, indent=2) + "\n")
    return best
