"""The agent under the limits of its own unit of systemd, attacked at all of its ports at once."""

import resource
import socket
import statistics
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent.cli.tests import crowd
from tests.harness import ROOT, programs
from tests.harness.agent import Agent, redis, ring, service
from tests.harness.eventually import LIMIT_S, LOADED_LIMIT_S
from tests.harness.limits import Limits, limited
from tests.harness.ports import free_ports, listens
from tests.harness.redis import Redis

UNIT = ROOT / "agent" / "cli" / "packaging" / "plimsoll.service"
CONNECTIONS = 10_000
ATTACK_SECONDS = 8
MAX_RESIDENT_KIB = 64 << 10
# Of fair requests, half of them; the attack takes as much of the machine as it gets.
MAX_MEDIAN_SECONDS = 1

pytestmark = programs.needs(programs.agent)


@pytest.fixture
def many_files():
    """Room for the attackers' connections in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CONNECTIONS + 500
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(
            f"{CONNECTIONS} connections need {needed} open files, and {hard} are allowed here (ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def check(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as client:
        client.sendall(b"stocks fair\n")
        return client.makefile().readline()


def is_healthy(url: str) -> bool:
    with urllib.request.urlopen(f"{url}/healthz", timeout=LIMIT_S) as answer:
        return answer.status == 200


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def test_the_agent_stays_up_and_small_under_its_units_limits(
    stack: ExitStack, tmp_path: Path, own_redis: Redis, many_files
):
    limits = Limits.of_unit(UNIT)
    cgroup = stack.enter_context(limited(f"plimsoll-unit-{own_redis.port}", limits))
    log, orca = free_ports(2)
    own_redis.start().load()
    config = f'[envoy]\norca_listen = "127.0.0.1:{orca}"\n' + redis(own_redis.port)
    source = f'kind = "haproxy-log"\nlisten = "tcp://127.0.0.1:{log}"\nnode = "queries/node1"'
    config += service(40, source=source) + ring("node1")
    agent = Agent(stack, tmp_path, "agent", config)
    agent.command, agent.environment = [*cgroup.words(limits), *agent.command], limits.environment
    agent.start().wait_ready()
    agent.eventually("all ports listen", lambda: all(map(listens, (agent.check_port, log, orca))))
    pid = agent.process.pid
    many = crowd.Crowd(
        CONNECTIONS,
        [
            (agent.http, crowd.HEAD, b"x"),
            (agent.http, crowd.BODY, b"x" * 100),
            (agent.http, b"", b""),
            (agent.check_port, b"stocks slow", b"x"),
            (agent.check_port, b"", b""),
            (log, b"plimsoll queries/node1 ", b"0 "),
            (orca, crowd.HTTP2, b"\0\0\0\4\0\0\0\0\0"),
            (orca, b"", b""),
        ],
    )
    floods = {
        "agent checks": crowd.agent_checks(agent.check_port),
        "requests": crowd.requests(agent.http),
        "exchanges": crowd.exchanges(agent.http),
        "log lines": crowd.log_lines(log),
        "orders": crowd.orders(str(tmp_path / "agent.sock")),
    }
    took, tasks = [], 0
    with crowd.attacked(many, floods) as counts:
        start = time.monotonic()
        # On a busy machine the crowd takes longer to come.
        while time.monotonic() < start + ATTACK_SECONDS or many.opened < CONNECTIONS:
            assert time.monotonic() < start + LOADED_LIMIT_S, f"{many.opened} connections"
            began = time.monotonic()
            assert is_healthy(agent.url)
            assert check(agent.check_port).startswith("up ")
            took.append((time.monotonic() - began) / 2)
            tasks = max(tasks, int(status(pid)["Threads"]))
            agent.check()
        opened = many.opened
    peak = int(status(pid)["VmHWM"].split()[0])
    print(
        f"{opened} connections opened, {counts}; resident at most {peak / 1024:.1f} MiB, {tasks} tasks; "
        f"{len(took)} fair answers, {statistics.median(took):.3f} s at the median, {max(took):.3f} s at most"
    )
    # Once it is over, too.
    agent.check()
    assert is_healthy(agent.url)
    assert check(agent.check_port).startswith("up ")
    assert all(counts.values()), counts
    assert statistics.median(took) < MAX_MEDIAN_SECONDS
    assert peak < MAX_RESIDENT_KIB
    assert tasks < limits.tasks
    assert cgroup.refused_tasks() == 0
    assert cgroup.out_of_memory_kills() == 0
    assert "panicked" not in agent.said()
