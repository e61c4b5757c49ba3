"""Policy `limits` in a real HAProxy, with a real Redis; agents and nodes are as they may be."""

import asyncio
import select
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from lua.tests.balancer import Listener
from tests.harness.eventually import eventually, until
from tests.harness.functions import Cluster
from tests.harness.haproxy import LIMITED, SETTINGS, HAProxy, configuration
from tests.harness.ports import free_ports
from tests.harness.redis import Redis
from tests.harness.traffic import Load, Nodes

DEFAULTS = "    default-server weight 100\n"
# What HAProxy has where neither Redis nor an agent says anything.
CONFIGURED = ("100", "50")
TOLD = ("33", "44")
LONG_MS = 3_600_000


class Agent(Listener):
    """What HAProxy asks about a server."""

    def __init__(self, stack: ExitStack) -> None:
        self.line = b"up %s%% maxconn:%s # as told\n" % tuple(word.encode() for word in TOLD)
        super().__init__(stack, self._answer)

    def _answer(self, stream: socket.socket) -> None:
        stream.recv(1000)
        stream.sendall(self.line)


class Site:
    """Redis with two nodes, and proxies in front of them."""

    def __init__(self, stack: ExitStack, directory: Path, redis: Redis) -> None:
        self._stack, self._directory, self.redis = stack, directory, redis
        self.cluster = Cluster(redis.client)
        self.ports = dict(zip(("node1", "node2"), free_ports(2), strict=True))

    def report(self, node1: float = 1600, node2: float = 1600, *, cost: float = 80, **other) -> None:
        """Bounds in items."""
        for node, bound in (("node1", node1), ("node2", node2)):
            jobs = bound / cost
            told = {"mean_cost": cost, "bound_jobs": jobs, "lease": LONG_MS} | other
            self.cluster.report(node, bound, **told)

    def proxy(
        self,
        name: str = "lb1",
        *,
        agents: dict[str, Agent] | None = None,
        change: Callable[[str], str] = str,
        settings: Callable[[str], str] = str,
        program: str = "",
        age: float = 1,
        threads: int = 2,
    ) -> HAProxy:
        directory = self._directory / name
        directory.mkdir()
        text = SETTINGS.format(name=name, redis=self.redis.port, policy="limits", age=age)
        (directory / "plimsoll.lua").write_text(settings(text))
        config = configuration(directory, self.ports, threads, LIMITED)
        config = config.replace(DEFAULTS, f"{DEFAULTS.rstrip()} maxconn {CONFIGURED[1]}\n")
        for node, agent in (agents or {}).items():
            check = f'agent-check agent-port {agent.port} agent-inter 100ms agent-send "queries/{node}\\n"'
            config = config.replace(f":{self.ports[node]}\n", f":{self.ports[node]} {check}\n")
        return HAProxy(self._stack, directory, change(config), program=program).start()


@pytest.fixture
def site(stack, tmp_path, own_redis) -> Site:
    own_redis.start().load()
    return Site(stack, tmp_path, own_redis)


def seen(proxy: HAProxy, node: str) -> tuple[str, str]:
    row = proxy.servers()[node]
    return row["weight"], row["slim"]


def has(proxy: HAProxy, **expected: tuple[str, str]) -> None:
    """Weight and limit by node."""
    proxy.eventually(f"{expected}", lambda: {node: seen(proxy, node) for node in expected} == expected)


def test_weights_and_limits_follow_the_bounds(site):
    site.report(1600, 800)
    proxy = site.proxy()
    has(proxy, node1=("100", "20"), node2=("50", "10"))
    site.report(1600, 1640)
    has(proxy, node1=("98", "20"), node2=("100", "20"))
    # The mean cost changes, and nothing else.
    site.report(1600, 1640, cost=40)
    has(proxy, node1=("98", "40"), node2=("100", "41"))
    # Less than a request each is one.
    site.report(60, 1600)
    has(proxy, node1=("4", "1"), node2=("100", "20"))


def test_a_drained_node_gets_nothing_until_it_is_back(site):
    site.report()
    proxy = site.proxy()
    has(proxy, node1=("100", "20"), node2=("100", "20"))
    site.report(node1=0)
    has(proxy, node1=("0", "20"), node2=("100", "20"))
    site.report(node1=800)
    has(proxy, node1=("50", "10"), node2=("100", "20"))


def test_a_dead_agents_node_gets_nothing_while_others_live(site):
    site.report()
    proxy = site.proxy()
    has(proxy, node1=("100", "20"), node2=("100", "20"))
    for node, left in (("node1", ("100", "20")), ("node2", CONFIGURED)):
        site.cluster.report(node, 1600, lease=0)
        if node == "node1":
            has(proxy, node1=("0", "20"), node2=left)
    # With no agent left nobody knows anything.
    has(proxy, node1=CONFIGURED, node2=CONFIGURED)
    site.report()
    has(proxy, node1=("100", "20"), node2=("100", "20"))


def test_without_redis_the_last_state_holds_for_age_limit_and_then_the_configured_one(site):
    site.report(1600, 800)
    proxy = site.proxy(age=1.5)
    has(proxy, node1=("100", "20"), node2=("50", "10"))
    site.redis.kill()
    proxy.wait_said("shares: ")
    has(proxy, node1=("100", "20"), node2=("50", "10"))
    has(proxy, node1=CONFIGURED, node2=CONFIGURED)
    site.redis.start().load()
    site.report(1600, 800)
    has(proxy, node1=("100", "20"), node2=("50", "10"))


def test_the_agent_is_asked_only_while_nothing_is_known_from_redis(site, stack):
    agents = {node: Agent(stack) for node in ("node1", "node2")}
    proxy = site.proxy(agents=agents)
    asked = lambda node: proxy.servers()[node]["agent_status"]  # noqa: E731
    has(proxy, node1=TOLD, node2=TOLD)
    site.report()
    has(proxy, node1=("100", "20"), node2=("100", "20"))
    assert asked("node1") == asked("node2") == ""
    site.redis.kill()
    has(proxy, node1=TOLD, node2=TOLD)
    site.redis.start().load()
    site.report()
    has(proxy, node1=("100", "20"), node2=("100", "20"))
    # Of a node that is gone, the agent may say more.
    site.cluster.report("node1", 1600, lease=0)
    proxy.eventually("node1's is asked", lambda: asked("node1") == "L7OK")
    assert asked("node2") == ""


def test_drains_and_failures_come_by_the_agent_as_well(site, stack, haproxy):
    agent = Agent(stack)
    site.report()
    proxy = site.proxy(agents={"node1": agent}, program=haproxy)
    has(proxy, node1=("100", "20"))
    status = lambda: proxy.servers()["node1"]["status"]  # noqa: E731
    for line, expected in ((b"drain up 33% maxconn:44\n", "DRAIN"), (b"down # by its probe\n", "DOWN")):
        agent.line = line
        site.report(node1=0)
        proxy.eventually(expected, lambda expected=expected: status().startswith(expected))
        # Redis has it first, and the agent has the last word.
        site.report()
        agent.line = b"ready up 33% maxconn:44\n"
        has(proxy, node1=("100", "20"))
        assert status() == "no check"


def test_an_operators_weight_and_limit_do_not_last_and_a_state_does(site):
    site.report()
    proxy = site.proxy()
    has(proxy, node1=("100", "20"))
    for command in ("set server queries/node1 weight 7", "set maxconn server queries/node1 7"):
        proxy.ask(command)
        has(proxy, node1=("100", "20"))
    for state in ("maint", "drain"):
        proxy.ask(f"set server queries/node1 state {state}")
        site.report(node1=800)
        proxy.eventually("news", lambda: seen(proxy, "node2") == ("100", "20"))
        assert proxy.servers()["node1"]["status"].lower().startswith(state)
        proxy.ask("set server queries/node1 state ready")
        has(proxy, node1=("50", "10"))
        site.report()
        has(proxy, node1=("100", "20"))


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"bound": 1e15, "bound_jobs": 1e15, "mean_cost": 1}, ("100", str(2**31 - 1))),
        ({"bound": 1e15, "bound_jobs": 1e15, "mean_cost": 1e-9}, ("100", str(2**31 - 1))),
        ({"bound": 1e-9, "bound_jobs": 1e-9, "mean_cost": 1}, ("100", "1")),
        # What it may be, by its own figures.
        ({"bound": 1e15, "bound_jobs": 3, "mean_cost": 1}, ("100", "3")),
        # A cost of nothing is nobody's: as if there were no agent.
        ({"bound": 1600, "bound_jobs": 20, "mean_cost": 0}, CONFIGURED),
    ],
)
def test_what_cannot_be_is_kept_within_what_haproxy_takes(site, record, expected):
    site.cluster.report("node1", record.pop("bound"), capacity=1, lease=LONG_MS, **record)
    site.cluster.report("node2", 1600, bound_jobs=20, capacity=1, lease=LONG_MS)
    proxy = site.proxy()
    has(proxy, node1=expected, node2=("100", "20"))


def test_a_record_that_cannot_be_read_is_nobodys(site):
    site.report()
    proxy = site.proxy()
    has(proxy, node1=("100", "20"), node2=("100", "20"))
    _, *rest = site.redis.client.hget(site.cluster.nodes, "node1").split()
    site.redis.client.hset(site.cluster.nodes, "node1", b" ".join([b"nan", *rest]))
    has(proxy, node1=("0", "20"), node2=("100", "20"))


def test_a_server_that_no_agent_knows_stays_as_it_is(site):
    site.cluster.report("node2", 1600, bound_jobs=20, lease=LONG_MS)
    site.cluster.report("elsewhere", 3200, bound_jobs=40, lease=LONG_MS)
    proxy = site.proxy()
    has(proxy, node2=("100", "20"))
    assert seen(proxy, "node1") == CONFIGURED


def test_servers_may_come_and_go_at_run_time(site, haproxy):
    site.report()
    proxy = site.proxy(program=haproxy)
    has(proxy, node1=("100", "20"), node2=("100", "20"))
    if "2.6" in proxy.ask("show info").split("Version: ")[1].split("\n")[0]:
        return
    site.cluster.report("node3", 800, bound_jobs=10, lease=LONG_MS)
    for _ in range(2):
        proxy.ask(f"add server queries/node3 127.0.0.1:{site.ports['node1']} weight 9")
        proxy.ask("enable server queries/node3")
        has(proxy, node1=("100", "20"), node3=("50", "10"))
        proxy.ask("set server queries/node3 state maint")
        eventually("it is deleted", lambda: "deleted" in proxy.ask("del server queries/node3"))
    site.report(node1=800)
    has(proxy, node1=("50", "10"), node2=("100", "20"))
    assert "begins again" not in proxy.said()


def test_a_balance_that_takes_no_weights_has_limits(site):
    site.report(1600, 800)
    proxy = site.proxy(change=lambda config: config.replace("balance roundrobin", "balance static-rr"))
    has(proxy, node1=("100", "20"), node2=("100", "10"))
    site.report(1600, 0)
    has(proxy, node1=("100", "20"), node2=("0", "10"))
    site.report(1600, 800)
    has(proxy, node1=("100", "20"), node2=("100", "10"))


def test_servers_without_weight_or_limit_are_as_good(site):
    site.report(1600, 800)
    proxy = site.proxy(
        age=1, change=lambda config: config.replace(f"weight 100 maxconn {CONFIGURED[1]}", "inter 1s")
    )
    has(proxy, node1=("100", "20"), node2=("50", "10"))
    site.redis.kill()
    has(proxy, node1=("1", ""), node2=("1", ""))


def test_a_state_file_brings_back_weights_and_no_silent_agents(site, stack, tmp_path):
    agents = {node: Agent(stack) for node in ("node1", "node2")}
    file = tmp_path / "state"

    def with_state(config: str) -> str:
        config = config.replace("global\n", f"global\n    server-state-file {file}\n")
        return config.replace("defaults\n", "defaults\n    load-server-state-from-file global\n")

    file.touch()
    site.report(1600, 800)
    proxy = site.proxy(agents=agents, change=with_state)
    has(proxy, node1=("100", "20"), node2=("50", "10"))
    file.write_text(proxy.ask("show servers state"))
    site.redis.kill()
    proxy.reload()
    proxy.eventually("the old one's end", lambda: proxy.processes[0].poll() is not None)
    has(proxy, node1=TOLD, node2=TOLD)
    site.redis.start().load()
    site.report(1600, 800)
    has(proxy, node1=("100", "20"), node2=("50", "10"))


def test_a_wrong_backend_is_told_by_name(site):
    with pytest.raises(AssertionError, match="backend: there is no backend elsewhere"):
        site.proxy(settings=lambda text: text.replace('"queries"', '"elsewhere"'))


@pytest.mark.parametrize(("minconn", "let_in"), [("", 2), ("minconn 4 ", 4)], ids=["without", "with"])
def test_no_more_are_let_in_than_the_limit_but_for_minconn(site, stack, minconn, let_in):
    """Below `fullconn`, HAProxy itself lets in as many as `minconn`."""
    hangs = Listener(stack, lambda stream: stream.recv(1000) and stream.recv(1000))
    site.ports["node1"] = hangs.port
    site.report(160, 1600)
    proxy = site.proxy(change=lambda config: config.replace("100 maxconn", f"100 {minconn}maxconn"))
    has(proxy, node1=("10", "2"), node2=("100", "20"))
    proxy.ask("set server queries/node2 state maint")
    clients = [stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port))) for _ in range(8)]
    for client in clients:
        client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    refused = lambda: len(select.select(clients, [], [], 0)[0])  # noqa: E731
    proxy.eventually("refusals", lambda: refused() == len(clients) - let_in)
    assert proxy.servers()["node1"]["scur"] == str(let_in)


async def follow_demand(site: Site, count: int) -> None:
    # A proxy whose share is less than a request has one all the same.
    spare = count - 1
    async with Nodes(("node1", "node2"), 0.3) as nodes:
        site.ports = nodes.ports
        site.report()
        proxies = [site.proxy(f"lb{number}") for number in range(1, count + 1)]

        def limits(node: str) -> list[int]:
            return [int(seen(proxy, node)[1]) for proxy in proxies]

        for busy in (0, count - 1):

            def has_most(busy: int = busy) -> bool:
                shared = [limits(node) for node in nodes.ports]
                return all(one[busy] >= 15 and 20 - spare <= sum(one) <= 20 + spare for one in shared)

            async with Load([proxies[busy].port], clients=80, idle=0.005):
                await until(f"{busy} has most", has_most)
        assert max(nodes.peak.values()) <= 20 + spare


@pytest.mark.parametrize("proxies", [2, 4])
def test_shares_follow_demand_from_proxy_to_proxy(site, proxies):
    asyncio.run(follow_demand(site, proxies))


async def reload_under_load(site: Site) -> None:
    async with Nodes(("node1", "node2"), 0.05) as nodes:
        site.ports = nodes.ports
        site.report()
        proxy = site.proxy()
        has(proxy, node1=("100", "20"), node2=("100", "20"))
        async with Load([proxy.port], clients=80, idle=0.005) as load:
            # Keeps the old process while the new one is at work.
            long = asyncio.create_task(load.ask_until_admitted("/stock/long"))
            await nodes.arrived.wait()
            await asyncio.to_thread(proxy.reload)
            shares = lambda: site.redis.client.hkeys(site.cluster.proxies)  # noqa: E731
            await until("both in Redis", lambda: len(shares()) == 2)
            await until("the new one's share", lambda: int(seen(proxy, "node1")[1]) < 20)
            # What either let in before has ended.
            await nodes.turned_over()
            enough = load.answers["200"] + 500
            await until("answers", lambda: load.answers["200"] > enough)
            assert max(nodes.peak.values()) <= 20 + 2
            nodes.release.set()
            assert await long == "200"
            await until("the old one's end", lambda: proxy.processes[0].poll() is not None)
        assert load.lost == []
        assert set(load.answers) == {"200", "503 full"}


def test_a_reload_loses_no_request_and_passes_no_bound(site):
    asyncio.run(reload_under_load(site))


def test_metrics_are_those_that_somebody_sees(site):
    site.report(1600, 800)
    (elsewhere,) = free_ports(1)
    answer = f"listen nodes\n    bind 127.0.0.1:{site.ports['node1']}\n    http-request return status 200\n"
    site.ports["node2"] = elsewhere
    proxy = site.proxy(change=lambda config: config + answer)
    eventually("shares", lambda: proxy.metrics().get(("plimsoll_node_share_cost", "node1")) == 1600)
    answers = [proxy.get("/")[0] for _ in range(6)]
    told = {
        ("plimsoll_node_answered_total", "node1"): float(answers.count(200)),
        ("plimsoll_node_failed_total", "node2"): 0.0,
    }
    proxy.eventually(f"{told}", lambda: told.items() <= proxy.metrics().items())
    shown = proxy.metrics()
    assert shown["plimsoll_proxy_ring_version", ""] >= 1
    assert 0 <= shown["plimsoll_news_age_seconds", ""] < 1
    assert shown["plimsoll_task_failures_total", ""] == 0
    # No request is looked at.
    assert not {name for name, _ in shown} & {
        "plimsoll_refused_total",
        "plimsoll_undecided_total",
        "plimsoll_node_cost_total",
    }
