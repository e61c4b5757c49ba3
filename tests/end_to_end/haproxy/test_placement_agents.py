"""Placement as a whole: real agents keep the table, two real HAProxys enforce it."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from tests.harness import agent
from tests.harness.agent import Agent
from tests.harness.eventually import until
from tests.harness.haproxy_placement import Balancer
from tests.harness.primaries import NODES, Clients, Primaries

PLACEMENT = """\
[placement]
cluster = "test"
period = "200ms"
lease = "1s"
request_limit = "1s"
initial = "node1"
"""


def start_agent(stack: AsyncExitStack, directory: Path, name: str, redis: int) -> Agent:
    ring = agent.ring(name, 'lease = "1s"')
    config = agent.redis(redis) + PLACEMENT + agent.service(100) + ring
    return Agent(stack, directory, name, config).start()


def keeper_of(agents: dict[str, Agent]) -> str:
    return next(name for name in NODES if "plimsoll_placement_keeper 1" in agents[name].get("/metrics"))


async def spread(stack: AsyncExitStack, directory: Path, redis: int) -> None:
    nodes = await stack.enter_async_context(Primaries())
    agents = {name: start_agent(stack, directory, name, redis) for name in NODES}
    proxies = [Balancer(stack, directory, f"lb{number}", nodes, redis) for number in range(2)]
    for balancer in proxies:
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
        keeper = await asyncio.to_thread(keeper_of, agents)
        agents[keeper].kill()
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
