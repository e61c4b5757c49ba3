"""The nodes of a run: one application several times, each time in a cgroup with its part of a core."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from compose.applab.render import Addresses
from compose.apps.catalog import App
from compose.apps.quota import Quota
from compose.lab.processes import Processes, Program, answers, wait_until

READY_S = 30


@contextlib.contextmanager
def quotas(parts: Mapping[str, float]) -> Iterator[dict[str, Quota]]:
    """A cgroup a node, with so much of a core."""
    with contextlib.ExitStack() as leaving:
        yield {name: leaving.enter_context(Quota(name, part)) for name, part in parts.items()}


def programs(
    app: App, inside: Mapping[str, Quota], addresses: Addresses, run: Path
) -> dict[str, dict[str, list[str] | Program]]:
    """Programs of each node, by node."""
    ports = addresses.ports
    # Some applications' programs are of another user.
    run.chmod(0o755)
    found = {}
    for index, (name, quota) in enumerate(inside.items()):
        own = run / name
        own.mkdir()
        made = app.programs(name, ports.host(index), ports.slaves[index], own, addresses.metrics[index])
        found[name] = {program: quota.inside(command) for program, command in made.items()}
    return found


def wait_ready(
    app: App,
    parts: Mapping[str, float],
    inside: Mapping[str, Quota],
    processes: Processes,
    addresses: Addresses,
) -> None:
    """Starts the nodes with a whole core each, as they would start slowly within their quotas."""
    ports = addresses.ports
    for quota in inside.values():
        quota.set(1.0)
    for index, port in enumerate(ports.slaves):
        url = app.ready(ports.host(index), port)
        wait_until(f"node{index + 1}", lambda url=url: answers(url), READY_S, processes.check)
    for name, quota in inside.items():
        quota.set(parts[name])


def source(app: App, index: int, addresses: Addresses) -> dict[str, Any] | None:
    """An agent's [service.source] from the application's own metrics; None where it has no histogram."""
    if app.source is None:
        return None
    ports = addresses.ports
    return app.source | {
        "url": app.metrics_url(ports.host(index), ports.slaves[index], addresses.metrics[index])
    }
