"""Which cores the proxy, its clients, and all else run on."""

import os
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Cores:
    """Sets of cores, as `taskset` names them; none where there are too few to set any aside."""

    proxy: str
    clients: str
    others: str

    def __str__(self) -> str:
        return f"proxy on {self.proxy}, wrk on {self.clients}, all else on {self.others}"


def cores(threads: int, usable: set[int] | None = None) -> Cores | None:
    """One for each of the proxy's threads, one for wrk, the rest for nodes, agents and Redis."""
    found = sorted(usable or os.sched_getaffinity(0))
    if len(found) < threads + 2:
        return None
    listed = lambda numbers: ",".join(map(str, numbers))  # noqa: E731
    return Cores(listed(found[:threads]), listed(found[threads : threads + 1]), listed(found[threads + 1 :]))


def pin(pid: int, where: str) -> None:
    """All threads that it has."""
    command = ["taskset", "--all-tasks", "--cpu-list", "--pid", where, str(pid)]
    subprocess.run(command, check=True, capture_output=True)
