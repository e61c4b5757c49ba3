"""Outages of a node, and the return from them."""

from typing import Protocol

from compose.apps.quota import Quota
from compose.lab.processes import Processes


class Outage(Protocol):
    """Kind of outage; `programs` are the node's, all within `quota`."""

    # Whether the node's programs end.
    kills: bool

    def text(self, node: str, seconds: float) -> str: ...

    def begin(self, quota: Quota, processes: Processes, programs: list[str]) -> None: ...

    def end(self, quota: Quota, processes: Processes, programs: list[str]) -> bool:
        """Ends the outage; false while it cannot be ended yet."""


class Pause:
    kills = False

    def text(self, node: str, seconds: float) -> str:
        return f"{node} stops for {seconds:g} s"

    def begin(self, quota: Quota, processes: Processes, programs: list[str]) -> None:
        quota.pause()

    def end(self, quota: Quota, processes: Processes, programs: list[str]) -> bool:
        quota.resume()
        return True


class Kill:
    kills = True

    def text(self, node: str, seconds: float) -> str:
        return f"{node} is killed, and back after {seconds:g} s"

    def begin(self, quota: Quota, processes: Processes, programs: list[str]) -> None:
        # The agent first: it is not to tell the proxy about the node's death.
        for name in programs:
            if name.endswith("-agent"):
                processes.signal(name, "KILL")
        quota.kill()

    def end(self, quota: Quota, processes: Processes, programs: list[str]) -> bool:
        if not all(map(processes.has_ended, programs)):
            return False
        for name in programs:
            processes.start(name)
        return True
