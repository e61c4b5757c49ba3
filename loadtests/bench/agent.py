"""The agent beside one node at 1,000 requests/s: CPU and memory by source, and by where jobs are counted.

`python -m loadtests.bench.agent`. wrk loads a node through HAProxy, which logs each request to the agent and
reports to Redis by the full policy, so every source sees the same load. Agents run one after another.
"""

import argparse
import getpass
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from compose.lab.patroni import Member
from compose.lab.processes import cpu_seconds, tied
from loadtests.bench import load
from loadtests.bench.haproxy import SNIPPETS
from tests.harness import agent, haproxy, programs
from tests.harness.agent import Agent
from tests.harness.eventually import eventually
from tests.harness.functions import Cluster
from tests.harness.haproxy import HAProxy
from tests.harness.ports import answers, free_ports
from tests.harness.postgres import Database
from tests.harness.process import Program
from tests.harness.redis import Redis

RATE = 1000
NODE = "node1"
# Requests in the node: so many that the bound is no limit.
BOUND = 100_000
SETTLE_S = 3
MARIADB = "/usr/sbin/mariadbd"


class Site:
    """A node with a histogram and a gauge, HAProxy with the full policy, Redis, PostgreSQL and MariaDB."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self.stack, self.directory = stack, directory
        self.log_port, self.node_port = free_ports(2)
        self._start_node()
        self.redis = Redis(stack, directory).start().load()
        self.haproxy = self._start_haproxy()
        self.postgres = Database(stack, Member("pg", directory / "pg", 5432, 0), directory / "pg.log")
        self.postgres.make()
        self.mariadb_socket = self._start_mariadb()

    def _start_node(self) -> None:
        command = [programs.stocks(), "serve", "--listen", f"127.0.0.1:{self.node_port}"]
        command += ["--data-dir", str(self.directory / "stocks"), "--workers", "64", "--slowdown", "0.001"]
        node = Program(self.stack, command, self.directory / "node.log").start()
        node.eventually("the node", lambda: answers(f"http://127.0.0.1:{self.node_port}/metrics"))

    def _start_haproxy(self) -> HAProxy:
        directory = self.directory / "haproxy"
        text = haproxy.configuration(directory, {NODE: self.node_port})
        (log_format,) = re.findall(r"^ +log-format .*\n", (SNIPPETS / "log-format.cfg").read_text(), re.M)
        logged = f"    log 127.0.0.1:{self.log_port} format raw local0\n{log_format}"
        text = text.replace("frontend web\n", f"frontend web\n{logged}")
        directory.mkdir()
        settings = haproxy.SETTINGS.format(name="haproxy1", policy="fc_prop", age=10, redis=self.redis.port)
        # The periods of an installation, not of a test.
        settings = settings.replace("period = 0.1, lease = 1,", "period = 1, lease = 3,")
        (directory / "plimsoll.lua").write_text(settings)
        return HAProxy(self.stack, directory, text).start()

    def _start_mariadb(self) -> Path:
        directory = self.directory / "mariadb"
        directory.mkdir(mode=0o700)
        user, socket = getpass.getuser(), directory / "socket"
        common = ["--no-defaults", f"--user={user}", f"--datadir={directory / 'data'}"]
        install = ["mariadb-install-db", *common, "--auth-root-authentication-method=normal"]
        subprocess.run([*install, "--skip-test-db"], check=True, capture_output=True)
        server = [*tied("KILL"), MARIADB, *common, f"--socket={socket}", "--skip-networking"]
        program = Program(self.stack, server, self.directory / "mariadb.log").start()
        program.eventually("MariaDB", socket.is_socket, 60)
        return socket

    def config(self, source: str, jobs: str) -> str:
        text = agent.redis(self.redis.port) if source == "proxies" else ""
        text += agent.service(BOUND, "", SOURCES[source](self))
        if jobs != "none":
            text += f'[service.jobs]\nkind = "{jobs}"\n{JOBS[jobs](self)}\n'
        return text + agent.ring(NODE) if source == "proxies" else text


SOURCES: dict[str, Callable[[Site], str]] = {
    "prometheus": lambda site: (
        f'kind = "prometheus"\nurl = "http://127.0.0.1:{site.node_port}/metrics"\n'
        'histogram = "stocks_request_duration_seconds"'
    ),
    "haproxy-log": lambda site: (
        f'kind = "haproxy-log"\nlisten = "udp://127.0.0.1:{site.log_port}"\nnode = "queries/{NODE}"'
    ),
    "proxies": lambda _site: 'kind = "proxies"',
}
JOBS: dict[str, Callable[[Site], str]] = {
    "none": lambda _site: "",
    "prometheus": lambda site: f'gauge = "stocks_jobs"\nurl = "http://127.0.0.1:{site.node_port}/metrics"',
    "backlog": lambda site: f"port = {site.node_port}",
    "sockets": lambda site: f"port = {site.node_port}",
    "mysql": lambda site: f'address = "unix://{site.mariadb_socket}"\nuser = "root"',
    "postgresql": lambda site: f'address = "unix://{site.postgres.member.socket}"\nuser = "postgres"',
}


def measure(site: Site, source: str, jobs: str, seconds: int) -> tuple[float, float, float]:
    """Share of a core in percent, MiB resident, and requests/s that the agent saw."""
    with ExitStack() as stack:
        name = f"{source}-{jobs}"
        program = Agent(stack, site.directory, name, site.config(source, jobs), period="1s").start()
        program.wait_ready()
        if source == "proxies":
            eventually("the node in the ring", Cluster(site.redis.client).ring_or_none)
        load.paced(site.haproxy.port, None, RATE, seconds=SETTLE_S)
        ended = lambda: _counter(program, "plimsoll_requests_total")  # noqa: E731
        spent, count, began = cpu_seconds(program.process.pid), ended(), time.monotonic()
        load.paced(site.haproxy.port, None, RATE, seconds=seconds)
        took = time.monotonic() - began
        share = 100 * (cpu_seconds(program.process.pid) - spent) / took
        return share, program.resident_mib(), (ended() - count) / took


def _counter(program: Agent, name: str) -> float:
    lines = program.get("/metrics").splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.agent", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=20, help="of each (%(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as directory, ExitStack() as stack:
        # PostgreSQL does not run as root.
        Path(directory).chmod(0o755)
        site = Site(stack, Path(directory))
        kinds = [(source, "none") for source in SOURCES]
        kinds += [
            ("prometheus" if jobs == "backlog" else "haproxy-log", jobs) for jobs in JOBS if jobs != "none"
        ]
        for source, jobs in kinds:
            share, mib, rate = measure(site, source, jobs, args.seconds)
            print(
                f"source {source:>11}, jobs {jobs:>10}: {share:.2f} % of a core, {mib:.1f} MiB,"
                f" {rate:,.0f} requests/s"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
