"""The Lua policies in a real HAProxy, with a real Redis and real nodes."""

import itertools
import re
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import redis

from tests.harness import ROOT, programs
from tests.harness.eventually import eventually
from tests.harness.functions import Cluster, owner
from tests.harness.haproxy import POLICY, SETTINGS, HAProxy, configuration, start_with_policy
from tests.harness.ports import answers, free_ports
from tests.harness.process import run
from tests.harness.redis import Redis

# An item takes 2 ms, so that a request of a hundred is under way long enough to be counted.
FLAGS = [
    "--workers",
    "8",
    "--process-latency",
    "2ms",
    "--read-latency",
    "1us",
    "--symbols",
    "300",
    "--history",
    "5",
]
POLICIES = [
    *("fc_prop", "round_robin", "weighted_round_robin", "weighted_random"),
    *("basic_li", "job_informed", "load_informed"),
]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory) -> Iterator[dict[str, int]]:
    """Two of them, with their ports, for all tests of this file."""
    directory = tmp_path_factory.mktemp("nodes")
    ports = dict(zip(("node1", "node2"), free_ports(2), strict=True))
    with ExitStack() as stack:
        for name, port in ports.items():
            (link,) = free_ports(1)
            command = [programs.stocks(), "serve", "--name", name, "--role", "master"]
            command += ["--listen", f"127.0.0.1:{port}", "--data-dir", str(directory / name)]
            command += ["--replication-listen", f"127.0.0.1:{link}", *FLAGS]
            node = run(stack, command, directory / f"{name}.log")
            url = f"http://127.0.0.1:{port}/readyz"
            node.eventually("the node is ready", lambda url=url: answers(url), 30)
        yield ports


class Lab:
    """The nodes, and proxies in front of them."""

    def __init__(self, directory: Path, stack: ExitStack, redis: Redis, nodes: dict[str, int]) -> None:
        self._directory, self._stack, self.redis, self._nodes = directory, stack, redis, nodes
        self.cluster = Cluster(redis.client)

    def proxy(
        self,
        name: str = "lb1",
        threads: int = 2,
        policy: str = "fc_hash",
        age: float = 2,
        rules: str = POLICY,
    ) -> HAProxy:
        directory = self._directory / name
        settings = SETTINGS.format(name=name, redis=self.redis.port, policy=policy, age=age)
        return start_with_policy(
            self._stack, directory, settings, configuration(directory, self._nodes, threads, rules)
        )

    def wait_dispatchers(self, count: int) -> None:
        eventually(f"{count} dispatchers", lambda: self.cluster.server.hlen(self.cluster.proxies) == count)

    def wait_in_force(self, *proxies: HAProxy) -> None:
        """Until each dispatcher has the ring in Redis and its part of the shares."""
        eventually("a ring of both", lambda: set(self.cluster.ring_or_none() or ()) == {"node1", "node2"})
        _, _, names, owners = self.cluster.ring()
        keys = [f"S{n:04}" for n in range(40)]
        for asked in proxies:
            eventually(
                "the ring in force",
                lambda asked=asked: all(asked.server_of(key) == owner(key, names, owners) for key in keys),
            )


@pytest.fixture
def lab(stack, tmp_path, own_redis, nodes) -> Lab:
    own_redis.start().load()
    return Lab(tmp_path, stack, own_redis, nodes)


@pytest.fixture
def reported(lab) -> Iterator[Callable[..., None]]:
    """Reports for both nodes in the background, as their agents would."""
    bounds = {"node1": 3000.0, "node2": 1000.0}
    stop = threading.Event()

    def report() -> None:
        while not stop.wait(0.1):
            for node, bound in list(bounds.items()):
                # It may be gone for a while.
                with suppress(redis.RedisError):
                    lab.cluster.report(node, bound, lease=600, slots=4096)

    thread = threading.Thread(target=report)
    thread.start()

    def change(**new: float | None) -> None:
        for node, bound in new.items():
            if bound is None:
                bounds.pop(node)
            else:
                bounds[node] = bound

    yield change
    stop.set()
    thread.join()


def test_the_same_key_goes_to_the_same_node_on_every_proxy(lab, reported):
    one, two = lab.proxy("lb1"), lab.proxy("lb2", threads=1)
    lab.wait_dispatchers(3)
    lab.wait_in_force(one, two)
    reported(node1=1000.0)
    eventually("equal shares", lambda: set(lab.cluster.sizes().values()) == {2048})
    lab.wait_in_force(one, two)
    _, _, names, owners = lab.cluster.ring()
    for number in range(300):
        key = f"S{number:04}"
        assert {one.server_of(key), two.server_of(key)} == {owner(key, names, owners)}


def test_a_refusal_is_told_and_touches_no_node(lab, reported):
    reported(node1=1.0, node2=1.0)
    asked = lab.proxy(threads=1)
    lab.wait_dispatchers(1)
    lab.wait_in_force(asked)
    with ThreadPoolExecutor(12) as pool:
        results = list(pool.map(lambda n: asked.get(f"/stock/S{n:04}?items=200"), range(12)))
    refused = [headers for status, headers in results if status == 503]
    assert refused
    for headers in refused:
        assert headers["plimsoll-reason"] == "full"
        assert headers["retry-after"] == "1"
        assert "x-server" not in headers


def settled(asked: HAProxy) -> dict[tuple[str, str], float]:
    """What is shown once every request so far is in it."""
    shown: dict[tuple[str, str], float] = {}

    def all_in() -> bool:
        shown.update(asked.metrics())
        parts = ("admitted", "refused", "undecided")
        return sum(shown[f"plimsoll_{part}_total", ""] for part in parts) == asked.requests

    eventually("every request is in the metrics", all_in)
    return shown


def test_what_the_threads_did_is_shown(lab, reported):
    told = "    http-request set-var(txn.plimsoll_class) int(2) if { path_sub /S001 }\n"
    asked = lab.proxy(rules=told + POLICY.replace("xxh32,", 'xxh32,concat("/",txn.plimsoll_class),'))
    lab.wait_dispatchers(2)
    lab.wait_in_force(asked)
    before = settled(asked)
    nodes = Counter(asked.server_of(f"S{number:04}") for number in range(60))
    now = settled(asked)
    assert now["plimsoll_admitted_total", ""] - before["plimsoll_admitted_total", ""] == 60
    for node, count in nodes.items():
        key = ("plimsoll_node_answered_total", node)
        assert now[key] - before[key] == count
    of_class = ("plimsoll_class_admitted_total", "2")
    assert now[of_class] - before[of_class] == 10
    version, _, _, _ = lab.cluster.ring()
    assert now["plimsoll_proxy_ring_version", ""] == version
    assert now["plimsoll_in_flight_requests", ""] == 0
    assert now["plimsoll_refused_total", ""] == 0
    # In whole requests of mean cost, 80 here.
    eventually(
        "the whole bound is shared",
        lambda: 2920 < asked.metrics()["plimsoll_node_share_cost", "node1"] <= 3000,
    )
    # As docs/metrics.md has them.
    catalogue = (ROOT / "docs" / "metrics.md").read_text().split("## What the proxies export")[1]
    assert {name for name, _ in now} == set(re.findall(r"^\| `(\w+)` .*\| HAProxy", catalogue, re.MULTILINE))


def test_refusals_and_a_silent_redis_are_shown(lab, reported):
    reported(node1=1.0, node2=1.0)
    asked = lab.proxy(threads=1, age=1)
    lab.wait_dispatchers(1)
    lab.wait_in_force(asked)
    with ThreadPoolExecutor(12) as pool:
        statuses = Counter(pool.map(lambda n: asked.get(f"/stock/S{n:04}?items=200")[0], range(12)))
    eventually("refusals", lambda: asked.metrics()["plimsoll_refused_total", ""] == statuses[503])
    lab.redis.kill()

    def left_to_the_balance() -> bool:
        asked.server_of("S0001")
        now = asked.metrics()
        return now["plimsoll_undecided_total", ""] > 0 and now["plimsoll_news_age_seconds", ""] > 1

    eventually("it is out of touch", left_to_the_balance)


def test_requests_that_clients_abandon_are_not_counted_forever(lab, reported):
    reported(node1=4.0, node2=4.0)
    asked = lab.proxy(threads=1)
    lab.wait_dispatchers(1)
    lab.wait_in_force(asked)
    for number in itertools.chain(range(40), range(40)):
        with socket.create_connection(("127.0.0.1", asked.port)) as stream:
            stream.sendall(f"GET /stock/S{number:04}?items=200 HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            # Gone without the answer.
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    def all_admitted() -> bool:
        with ThreadPoolExecutor(4) as pool:
            statuses = pool.map(lambda n: asked.get(f"/stock/S{n:04}?items=1")[0], range(4))
            return set(statuses) == {200}

    eventually("room for four at once", all_admitted)


def test_collecting_among_many_requests_is_not_interrupted(lab, reported):
    """HAProxy interrupts a task after 10,000 instructions, and lets requests in between."""
    reported(node1=1e6, node2=1e6)
    asked = lab.proxy(threads=1)
    lab.wait_dispatchers(1)
    lab.wait_in_force(asked)
    subprocess.run(
        ["wrk", "-t1", "-c1500", "-d3s", f"http://127.0.0.1:{asked.port}/stock/S0001?items=1"],
        check=True,
        capture_output=True,
    )
    reported(node1=4.0, node2=4.0)

    def bound_is_kept() -> bool:
        with ThreadPoolExecutor(40) as pool:
            asked_for = (f"/stock/S{n:04}?items=100" for n in range(40))
            statuses = Counter(pool.map(lambda path: asked.get(path)[0], asked_for))
        return 4 <= statuses[200] <= 10 and statuses[503] == 40 - statuses[200]

    eventually("eight at once, and no more", bound_is_kept)
    assert "error" not in asked.said()


def test_without_redis_at_start_the_balance_rules_and_with_it_the_ring(stack, tmp_path, own_redis, nodes):
    lab = Lab(tmp_path, stack, own_redis, nodes)
    asked = lab.proxy(threads=1)
    assert Counter(asked.server_of("S0001") for _ in range(10)) == {"node1": 5, "node2": 5}
    asked.wait_said("plimsoll lb1/1")
    own_redis.start().load()
    for node in ("node1", "node2"):
        lab.cluster.report(node, 1000, slots=4096)
    lab.wait_in_force(asked)


def test_redis_lost_the_last_ring_holds_until_it_is_too_old(lab, reported):
    asked = lab.proxy(threads=1, age=1.5)
    lab.wait_dispatchers(1)
    lab.wait_in_force(asked)
    _, _, names, owners = lab.cluster.ring()
    lab.redis.kill()
    lost = time.monotonic()
    while time.monotonic() - lost < 1:
        assert asked.server_of("S0007") == owner("S0007", names, owners)
    eventually("the balance rules", lambda: asked.server_of("S0007") != asked.server_of("S0007"))
    lab.redis.start().load()
    lab.wait_in_force(asked)


def test_a_dead_agent_gives_its_server_the_configured_weight_back(lab, reported):
    asked = lab.proxy(threads=1, policy="fc_prop")
    lab.wait_dispatchers(1)
    eventually(
        "node2 is known",
        lambda: asked.server_of("S0001") is not None and lab.cluster.server.hlen(lab.cluster.shares) == 2,
    )
    asked.ask("set server queries/node2 weight 30%")
    assert asked.servers()["node2"]["weight"] == "30"
    reported(node2=None)
    eventually("its weight is back", lambda: asked.servers()["node2"]["weight"] == "100")
    assert "agent of node2 is gone" in asked.said()
    assert {asked.server_of(f"S{n:04}") for n in range(20)} == {"node1"}


def test_a_proxy_that_dies_gives_its_share_back(lab, reported):
    stays, dies = lab.proxy("lb1", threads=1), lab.proxy("lb2", threads=1)
    lab.wait_dispatchers(2)
    dies.kill()
    lab.wait_dispatchers(1)
    granted = lambda: float(lab.cluster.server.hget(lab.cluster.shares, "node1 lb1/1").split()[0])  # noqa: E731
    eventually("the whole bound", lambda: granted() == pytest.approx(3000))
    stays.check()


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_serves_both_nodes(lab, reported, policy):
    asked = lab.proxy(threads=1, policy=policy)
    lab.wait_dispatchers(1)
    seen: Counter[str] = Counter()

    def both() -> bool:
        # At once: `fc_prop` sends one after the other to the node with the higher bound.
        with ThreadPoolExecutor(20) as pool:
            seen.update(pool.map(asked.server_of, (f"S{n:04}" for n in range(20))))
        return {"node1", "node2"} <= set(seen)

    eventually("both nodes", both)
    asked.check()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('policy = "fc_hash"', 'policy = "fastest"', "policy: must be one of"),
        ("period = 0.1", "perod = 0.1", "perod: unknown key"),
        ('backend = "queries"', 'backend = "nowhere"', "there is no backend nowhere"),
        ('backend = "queries"', 'backend = "many"', "many has 256 servers, the most is 255"),
        (
            "})\n",
            "})\n" + SETTINGS.format(name="lb2", redis=6379, policy="fc_prop", age=2),
            "is called twice",
        ),
    ],
)
def test_a_wrong_setting_keeps_haproxy_from_starting(tmp_path, old, new, words):
    settings = SETTINGS.format(name="lb1", redis=6379, policy="fc_hash", age=2)
    assert old in settings
    (tmp_path / "plimsoll.lua").write_text(settings.replace(old, new))
    config = configuration(tmp_path, {"node1": 1})
    config += "backend many\n    server-template node 256 127.0.0.1:1\n"
    (tmp_path / "haproxy.cfg").write_text(config)
    done = subprocess.run(
        # Not only checked: which backends there are is known at the start.
        [programs.haproxy(), "-db", "-f", str(tmp_path / "haproxy.cfg")],
        capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip
    assert done.returncode != 0
    assert words in done.stderr
