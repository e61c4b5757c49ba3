"""Policy `limits` as a whole: real agents, two real HAProxys, and the first tier beneath."""

from contextlib import ExitStack
from pathlib import Path

from tests.harness import agent
from tests.harness.agent import Agent
from tests.harness.eventually import eventually
from tests.harness.haproxy import LIMITED, SETTINGS, HAProxy, configuration, start_with_policy
from tests.harness.ports import free_ports

NODES = ("node1", "node2")
BOUND = 40
ASKED = 'agent-check agent-port {port} agent-inter 100ms agent-send "queries/{node}\\n"'


class Site:
    """Two nodes' agents and two proxies, which ask them while they do not hear of them."""

    def __init__(self, stack: ExitStack, directory: Path, redis: int) -> None:
        self._stack, self._directory, self._redis = stack, directory, redis
        self.agents = {node: self.start_agent(node) for node in NODES}
        self.proxies = [self._start_proxy(name) for name in ("lb1", "lb2")]

    def start_agent(self, node: str) -> Agent:
        service = agent.service(BOUND, f'identities = ["queries/{node}"]')
        config = agent.redis(self._redis) + service + agent.ring(node, 'lease = "1s"')
        return Agent(self._stack, self._directory, node, config).start()

    def _start_proxy(self, name: str) -> HAProxy:
        settings = SETTINGS.format(name=name, redis=self._redis, policy="limits", age=1)
        ports = dict(zip(NODES, free_ports(2), strict=True))
        config = configuration(self._directory / name, ports, 2, LIMITED)
        for node, port in ports.items():
            check = ASKED.format(port=self.agents[node].check_port, node=node)
            # Two processes at one address.
            check = check.replace("\\n", f" {name}\\n")
            config = config.replace(f"127.0.0.1:{port}\n", f"127.0.0.1:{port} {check}\n")
        return start_with_policy(self._stack, self._directory / name, settings, config)

    def column(self, node: str, field: str) -> list[str]:
        return [proxy.servers()[node][field] for proxy in self.proxies]

    def limit(self, node: str) -> int:
        """Of both proxies together."""
        return sum(int(limit or 0) for limit in self.column(node, "slim"))

    def wait(self, what: str, **limits: int) -> None:
        """Until Redis' shares are in force, which sum to the bounds."""
        for node, limit in limits.items():
            eventually(
                f"{what}: {node} at {limit}",
                lambda node=node, limit=limit: (
                    self.column(node, "agent_status") == ["", ""] and self.limit(node) == limit
                ),
            )


def test_agents_bounds_are_shared_out_and_the_first_tier_catches(stack, tmp_path, own_redis):
    site = Site(stack, tmp_path, own_redis.start().port)
    node1 = site.agents["node1"]
    site.wait("at first", node1=BOUND, node2=BOUND)

    node1.node("force", "bound", "20")
    site.wait("forced", node1=20, node2=BOUND)
    eventually("half the weight", lambda: site.column("node1", "weight") == ["50", "50"])
    node1.node("force", "bound", str(BOUND))
    site.wait("forced back", node1=BOUND)

    for word in (["drain"], ["force", "down"]):
        node1.node(*word)
        eventually(
            f"{word}",
            lambda: (
                not any(
                    status.startswith("UP") or status == "no check"
                    for status in site.column("node1", "status")
                )
            ),
        )
        site.wait("beside it", node2=BOUND)
        node1.node(*(["ready"] if word == ["drain"] else ["force", "up"]))
        site.wait("back", node1=BOUND)

    node1.kill()
    eventually("nothing for a node without an agent", lambda: site.column("node1", "weight") == ["0", "0"])
    site.wait("beside it", node2=BOUND)
    node1.start()
    site.wait("an agent again", node1=BOUND)

    own_redis.kill()
    eventually("agents are asked", lambda: site.column("node2", "agent_status") == ["L7OK", "L7OK"])
    eventually("even parts", lambda: site.column("node2", "slim") == ["20", "20"])
    node1.node("force", "bound", "10")
    eventually("fresh bounds", lambda: site.column("node1", "slim") == ["5", "5"])
    own_redis.start()
    site.wait("Redis again", node1=10, node2=BOUND)
