"""Two proxies in front of one node, one of which is stopped for longer than its lease."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from tests.harness.eventually import until
from tests.harness.functions import Cluster
from tests.harness.traffic import Load, connect

CLIENTS = 80
NODE = "node1"


class Proxy(Protocol):
    port: int

    def pause(self) -> None: ...

    def resume(self) -> None: ...


def load(proxy: Proxy) -> Load:
    return Load([proxy.port], CLIENTS, idle=0.005)


@dataclass
class Pair:
    cluster: Cluster
    bound: int
    # Each with the beginning of its dispatchers' names.
    stopped: tuple[str, Proxy]
    other: tuple[str, Proxy]

    def share(self, proxy: tuple[str, Proxy]) -> float:
        """Its share of the node's bound, as Redis knows it."""
        shares = self.cluster.server.hgetall(self.cluster.shares).items()
        prefix = f"{NODE} {proxy[0]}/".encode()
        return sum(float(text.split()[0]) for name, text in shares if name.startswith(prefix))

    async def stop(self) -> None:
        """With most of the bound, and nothing in flight."""
        async with load(self.stopped[1]):
            await until("its share", lambda: self.share(self.stopped) > self.bound / 2)
        self.stopped[1].pause()

    async def resume(self) -> Load:
        """With requests that were sent meanwhile; what they were told."""
        proxy = self.stopped[1]
        late = load(proxy)
        streams = [await connect(proxy.port) for _ in range(CLIENTS)]
        asked = [asyncio.create_task(late.ask(*both, f"/stock/S{n:04}")) for n, both in enumerate(streams)]
        # Each has written its request before it waits.
        await asyncio.sleep(0)
        proxy.resume()
        await asyncio.gather(*asked)
        for _, writer in streams:
            writer.close()
        return late
