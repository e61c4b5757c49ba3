"""Placement by HAProxy."""

import asyncio
import re
import time
from contextlib import AsyncExitStack
from pathlib import Path

from tests.harness import ROOT
from tests.harness.eventually import LOADED_LIMIT_S, POLL_S, until
from tests.harness.haproxy import HAProxy
from tests.harness.placement import Site
from tests.harness.ports import free_ports
from tests.harness.primaries import Primaries
from tests.harness.process import Program

SNIPPET = (ROOT / "haproxy" / "snippets" / "placement.cfg").read_text()
THREADS = 2
CONFIG = """\
global
    log stderr format raw local0 notice
    nbthread {threads}
    stats socket {directory}/{name}.sock mode 660 level admin expose-fd listeners
.if version_atleast(3.2)
    tune.lua.bool-sample-conversion normal
.endif
    lua-prepend-path {root}/lua/?.lua
    lua-prepend-path {root}/lua/?/init.lua
    lua-load-per-thread {directory}/{name}.lua

defaults
    mode http
    timeout connect 500ms
    timeout client 60s
    timeout server 60s
    # Retries, which a backend with writes must not have.
    retries 3
    retry-on all-retryable-errors
    option redispatch 1
{defaults}
frontend web
    bind 127.0.0.1:{port}
    http-request use-service lua.plimsoll_metrics if {{ path /plimsoll/metrics }}
    default_backend transactions

backend transactions
{snippet}    http-response set-header x-server %s
"""
SETTINGS = """\
require("plimsoll").start({{
  cluster = "test", proxy = "{name}", period = {period},
  redis = {{ addresses = {{ "127.0.0.1:{redis}" }}, timeout = 0.5 }},
  placement = {{ backend = "transactions", wait = {wait} }},
}})
"""


class Balancer(HAProxy):
    """A HAProxy in front of the primaries; a second one may follow it."""

    def __init__(
        self, stack: AsyncExitStack, directory: Path, name: str, nodes: Primaries, redis_port: int,
        wait: float = 5, period: float = 0.1, defaults: str = "", extra: str = "",
        snippet: str = SNIPPET, program: str = "", proxy_name: str = "",
    ) -> None:  # fmt: skip
        settings = SETTINGS.format(name=proxy_name or name, period=period, redis=redis_port, wait=wait)
        (directory / f"{name}.lua").write_text(settings)
        config = CONFIG.format(
            threads=THREADS, directory=directory, name=name, root=ROOT, port=free_ports(1)[0],
            snippet=snippet, defaults=defaults,
        )  # fmt: skip
        config += extra
        config += "".join(f"    server {node} 127.0.0.1:{port}\n" for node, port in nodes.ports.items())
        super().__init__(stack, directory, config, name=name, program=program)
        # Nodes are of this loop, and must not wait for it.
        Program.start(self)

    async def up(self) -> "Balancer":
        await until("haproxy", self.is_up, check=self.check)
        return self

    async def placements(self) -> dict[str, float]:
        """The metrics of placement."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET /plimsoll/metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        text = (await reader.read()).decode()
        writer.close()
        samples = re.findall(
            r'^plimsoll_placement_(\w+)\{plimsoll_cluster="test"(?:,reason="(\w+)")?\} (\S+)$', text, re.M
        )
        return {name + (f" {reason}" if reason else ""): float(value) for name, reason, value in samples}

    async def shows(self, **wanted: float) -> None:
        """Threads tell what they did once a second."""
        deadline = time.monotonic() + LOADED_LIMIT_S
        while not wanted.items() <= (shown := await self.placements()).items():
            assert time.monotonic() < deadline, f"{shown} and not {wanted}"
            await asyncio.sleep(POLL_S)


class HAProxySite(Site):
    """With two proxies of two threads each."""

    proxies: list[Balancer]

    async def start(self, proxies: int = 2, ports: tuple[int, ...] = (), **options) -> "HAProxySite":
        """`ports`: of Redis, or what leads there, of the first proxies."""
        await self.open()
        for number in range(proxies):
            port = ports[number] if number < len(ports) else self.redis.port
            balancer = Balancer(self.stack, self.directory, f"lb{number}", self.nodes, port, **options)
            self.proxies.append(balancer)
        for balancer in self.proxies:
            await balancer.up()
        await self.joined(THREADS * proxies)
        return self
