"""Finds the settings that serve a scenario best: what a user would have to know beforehand."""

import datetime
import itertools
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from compose.lab import machine, swept
from compose.lab.errors import LabError
from compose.lab.progress import Progress
from compose.lab.render import Policy
from compose.lab.run import Options, made, run_policy


def tries(policy: Policy, limits: list[int] | None = None) -> list[dict[str, Any]]:
    """Every combination of a policy's settings; `limits` are tried in place of the values of its only one."""
    if not policy.sweep:
        raise LabError(f"--policies {policy.name}: it has no settings to sweep")
    values = list(policy.sweep.values())
    if limits:
        if len(values) != 1:
            raise LabError(f"--limits: {policy.name} has several settings: {', '.join(policy.sweep)}")
        values = [limits]
    return [dict(zip(policy.sweep, chosen, strict=True)) for chosen in itertools.product(*values)]


def words(settings: dict[str, Any]) -> str:
    return ", ".join(f"{'.'.join(name.split('.')[-2:])} {value}" for name, value in settings.items())


def sweep(policy: Policy, options: Options, limits: list[int] | None = None, path: Path = swept.PATH) -> str:
    """Runs a policy at each of its settings and keeps the best, by timely items/s, in `path`."""
    progress = Progress([policy.name])
    figures = []
    with (
        tempfile.TemporaryDirectory(prefix="plimsoll-sweep-") as directory,
        made(options, Path(directory)) as databases,
    ):
        for number, settings in enumerate(tries(policy, limits)):
            progress.say(policy.name, words(settings))
            meta = run_policy(
                policy,
                options,
                Path(directory) / str(number),
                policy.settings | settings,
                progress,
                databases=databases,
            )
            figures.append({"settings": settings, "timely_items_per_s": meta["timely_items_per_s"]})
    best = max(figures, key=lambda figure: figure["timely_items_per_s"])["settings"]
    entry = {
        "best": best,
        "command": shlex.join(["python", "-m", "compose.lab", *sys.argv[1:]]),
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "seed": options.seed,
        "clients": options.clients,
        "nodes": len(options.topology.slaves),
        "machine": machine.describe(),
        "figures": figures,
    }
    swept.save(policy.name, options.timeline.scenario, entry, path)
    return words(best)
