"""Placement as a whole: real agents keep the table, two real HAProxys enforce it."""

import asyncio
import os
import urllib.request
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from compose.lab import machine
from compose.lab.processes import free_ports, start_tied
from lua.tests.primaries import NODES, Balancer, Clients, Primaries
from lua.tests.traffic import until

AGENT = """\
[agent]
period = "200ms"
[http]
listen = "127.0.0.1:{http}"
[agent_check]
listen = "127.0.0.1:{check}"
[control]
socket = "{directory}/{name}.control"
[redis]
urls = ["redis://127.0.0.1:{redis}"]
[placement]
cluster = "test"
period = "200ms"
lease = "1s"
request_limit = "1s"
initial = "node1"
[[service]]
name = "stocks"
[service.sla]
delay = "1s"
[service.bound]
nominal = 100
[service.controller]
kind = "fixed"
[service.source]
kind = "proxies"
[service.ring]
cluster = "test"
node = "{name}"
lease = "1s"
"""


class Agents:
    """One a node."""

    def __init__(self, directory: Path, redis: int) -> None:
        self.http, self.processes = {}, {}
        for name in NODES:
            http, check = free_ports(2)
            config = directory / f"{name}.toml"
            text = AGENT.format(directory=directory, name=name, http=http, check=check, redis=redis)
            config.write_text(text)
            command = [machine.binary("plimsoll"), "agent", "--config", str(config)]
            self.http[name] = http
            self.processes[name] = start_tied(command, dict(os.environ), directory / f"{name}.log")

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def keeper(self) -> str | None:
        return next((name for name in NODES if self._is_keeper(name)), None)

    def _is_keeper(self, name: str) -> bool:
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self.http[name]}/metrics", timeout=2) as answer,
        ):
            return "plimsoll_placement_keeper 1" in answer.read().decode()
        return False


async def spread(stack: AsyncExitStack, directory: Path, redis: int) -> None:
    nodes = await stack.enter_async_context(Primaries())
    agents = Agents(directory, redis)
    for name in NODES:
        stack.callback(agents.kill, name)
    proxies = [Balancer(directory, f"lb{number}", nodes, redis) for number in range(2)]
    for balancer in proxies:
        stack.callback(balancer.kill)
        await balancer.up()
        await balancer.shows(suspended_threads=0)
    clients = Clients([balancer.port for balancer in proxies], [f"s{number}" for number in range(24)], 24)

    def recent() -> set[str]:
        return {nodes.where[request] for request in list(nodes.where)[-300:]}

    async with clients:
        await until("load", lambda: len(nodes.where) > 100)
        # All are at node1 first: nothing moves before a load was told.
        assert set(list(nodes.where.values())[:10]) == {"node1"}
        await until("all primaries have some", lambda: recent() == set(NODES))
        keeper = await asyncio.to_thread(agents.keeper)
        assert keeper
        agents.kill(keeper)
        # Another agent takes over; the node without one leaves the ring, and its sets go to the others.
        await until("nothing at the one whose agent died", lambda: recent() == set(NODES) - {keeper})
    clients.check(nodes)
    assert set(clients.answers) <= {"200", "503 moving"}


def test_agents_spread_the_load_and_survive_their_keeper(tmp_path, own_redis):
    own_redis.start()

    async def test() -> None:
        async with AsyncExitStack() as stack:
            await spread(stack, tmp_path, own_redis.port)

    asyncio.run(test())
