"""Nodes that answer at once, a Redis, an agent, and reports of all nodes that have none of their own."""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.harness import agent, programs
from tests.harness.agent import Agent
from tests.harness.functions import Cluster
from tests.harness.ports import free_ports
from tests.harness.process import Program
from tests.harness.redis import Redis

# As the harness names it.
CLUSTER = "test"
# So much that the share of a proxy that was idle is enough for what comes at once.
BOUND = 100_000_000
NODES = """\
global
    maxconn 4000
defaults
    mode http
    timeout client 60s
frontend nodes
{binds}
    http-request return status 200 hdr x-items 80{headers} content-type text/plain string "ok"
"""
# The first node's agent is real and answers Envoys; the other nodes' reports come from here.
REAL = "node1"
REPORT_S = 1.0


class Site:
    def __init__(self, stack: ExitStack, directory: Path, nodes: int, headers: str = "") -> None:
        """Answers have these headers too, as HAProxy writes them."""
        self.stack, self.directory = stack, directory
        self.ports = free_ports(nodes)
        self.others: list[Program] = [self._start_nodes(headers)]
        self.redis = Redis(stack, directory).start().load()
        self.others.append(self.redis)
        self.cluster = Cluster(self.redis.client)
        self._reports()
        self.agent = self._start_agent()
        self.others.append(self.agent)
        names = {self.name(number) for number in range(nodes)}
        self.agent.eventually("a ring of all nodes", lambda: set(self.cluster.ring_or_none() or ()) == names)

    @staticmethod
    def name(number: int) -> str:
        return f"node{number + 1}"

    def _start_nodes(self, headers: str) -> Program:
        binds = "\n".join(f"    bind 127.0.0.1:{port}" for port in self.ports)
        file = self.directory / "nodes.cfg"
        file.write_text(NODES.format(binds=binds, headers=headers))
        command = [programs.haproxy(), "-db", "-f", str(file)]
        return Program(self.stack, command, self.directory / "nodes.log").start()

    def _start_agent(self) -> Agent:
        address = f'address = "127.0.0.1:{self.ports[0]}"'
        config = agent.redis(self.redis.port) + agent.service(BOUND, address) + agent.ring(REAL)
        return Agent(self.stack, self.directory, REAL, config, period="1s").start().wait_ready()

    def _reports(self) -> None:
        over = threading.Event()

        def report() -> None:
            jobs = 0
            while not over.is_set():
                jobs += 1
                for number, port in enumerate(self.ports[1:], 1):
                    self.cluster.report(
                        self.name(number),
                        BOUND,
                        bound_jobs=BOUND / 80,
                        jobs=(jobs + number) % 30,
                        address=f"127.0.0.1:{port}",
                        slots=16384,
                    )
                over.wait(REPORT_S)

        reporter = threading.Thread(target=report)
        reporter.start()
        self.stack.callback(reporter.join)
        self.stack.callback(over.set)

    def has_shares(self, proxy: str) -> bool:
        """Whether a proxy has a share of every node's bound."""
        shares = self.cluster.server.hgetall(self.cluster.shares)
        own = [text for name, text in shares.items() if name.decode().split()[1].startswith(proxy)]
        return len(own) >= len(self.ports) and all(float(text.split()[0]) > 0 for text in own)


@contextmanager
def new_site(nodes: int, headers: str = "") -> Iterator[Site]:
    """In a directory of its own; everything that was started on its stack ends with it."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="plimsoll-bench-"))
        yield Site(stack, Path(directory), nodes, headers)
