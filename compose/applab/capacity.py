"""Capacity of the nodes in requests/s, measured by clients that wait for each response before they go on.

All policies of a run get loads relative to the same capacity. The work of the requests in so short a time is
random (two in a hundred cost ten times as much), so the measure is the work done: the CPU milliseconds of the
finished requests, divided by those of a mean request."""

import http.client
import random
import threading
import time
from collections.abc import Sequence

from compose.applab.scenario import NODES
from compose.lab.errors import LabError

# CPU milliseconds of a request, as in loadtests/k6/apps.js.
LIGHT_MS = (5.0, 15.0)
HEAVY_SHARE, HEAVY_TIMES = 0.02, 10.0
MEAN_MS = sum(LIGHT_MS) / 2 * (1 + HEAVY_SHARE * (HEAVY_TIMES - 1))
CLIENTS_PER_NODE = 6
WARM_UP_S = 1.0
HOW = (
    f"{CLIENTS_PER_NODE} closed-loop clients at each of {NODES} nodes at once, without a proxy; CPU that "
    f"finished requests asked for, over {MEAN_MS:g} ms of a mean one"
)
TIME_LIMIT_S = 10.0


def cost(random_: random.Random) -> float:
    value = random_.uniform(*LIGHT_MS)
    return value * HEAVY_TIMES if random_.random() < HEAVY_SHARE else value


class Client(threading.Thread):
    def __init__(self, address: tuple[str, int], seed: int, begin: float, end: float) -> None:
        super().__init__(daemon=True)
        self._address, self._random, self._begin, self._end = address, random.Random(seed), begin, end
        self.done_ms = 0.0
        self.failed: str | None = None

    def run(self) -> None:
        connection = http.client.HTTPConnection(*self._address, timeout=TIME_LIMIT_S)
        while (sent := time.monotonic()) < self._end and self.failed is None:
            wanted = cost(self._random)
            try:
                connection.request("GET", f"/work?cpu_ms={wanted:.3f}")
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException) as error:
                self.failed = repr(error)
                return
            if answer.status != 200:
                self.failed = f"status {answer.status}"
            self.done_ms += wanted * self._counted(sent, time.monotonic())
        connection.close()

    def _counted(self, sent: float, answered: float) -> float:
        """Share of a request within the measured time; requests at its ends are partly outside."""
        within = min(answered, self._end) - max(sent, self._begin)
        return max(0.0, within) / max(answered - sent, 1e-6)


def measure(addresses: Sequence[tuple[str, int]], seconds: float, seed: int) -> list[float]:
    """Requests/s of each node."""
    begin = time.monotonic() + WARM_UP_S
    clients = [
        [Client(address, seed * 1000 + 100 * n + k, begin, begin + seconds) for k in range(CLIENTS_PER_NODE)]
        for n, address in enumerate(addresses)
    ]
    for client in (client for node in clients for client in node):
        client.start()
    for client in (client for node in clients for client in node):
        client.join()
    for number, node in enumerate(clients, 1):
        for failed in (client.failed for client in node if client.failed):
            raise LabError(f"node{number} failed while its capacity was measured: {failed}")
    return [sum(client.done_ms for client in node) / MEAN_MS / seconds for node in clients]
