"""A set-up of real programs for `plimsoll doctor`, in order until a test changes it."""

import json
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness import agent, programs
from tests.harness.agent import Agent
from tests.harness.eventually import eventually
from tests.harness.haproxy import HAProxy
from tests.harness.ports import free_ports

BOUND = 40
NODES = ("node1", "node2")
CONFIG = """\
global
    nbthread 1
    max-spread-checks 100
    stats socket {directory}/haproxy.sock mode 660 level admin

defaults
    mode http
    timeout connect 500ms
    timeout client 10s
    timeout server 10s

frontend web
    bind 127.0.0.1:{port}
    default_backend queries

backend queries
    timeout queue 50ms
    balance leastconn
    default-server weight 100 agent-check agent-inter 100ms
"""
LOG = 'kind = "haproxy-log"\nlisten = "udp://127.0.0.1:{port}"\nnode = "queries/{node}"'
SERVER = '    server {node} 127.0.0.1:{port} agent-port {check} agent-send "queries/{node}\\n"\n'


@dataclass(frozen=True)
class Told:
    """What it said, and its exit status."""

    status: int
    answer: dict[str, Any]

    def codes(self) -> list[tuple[str, str]]:
        return [(it["code"], it["at"]) for it in self.answer["findings"]]

    def found(self, code: str) -> str:
        """Of the one finding with this code."""
        (found,) = [it for it in self.answer["findings"] if it["code"] == code]
        assert found["see"] == f"docs/doctor.md#{code}" and found["why"] and found["do"]
        return found["found"]


def doctor(*words: str) -> Told:
    command = [programs.agent(), "doctor", "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr, done.stderr
    return Told(done.returncode, json.loads(done.stdout))


class Site:
    """Two nodes with agents; a HAProxy in front of them."""

    def __init__(self, stack: ExitStack, directory: Path, program: str = "", **identities: str) -> None:
        self._stack, self._directory, self._program = stack, directory, program
        self.ports = dict(zip(NODES, free_ports(2), strict=True))
        self.agents = {node: self._start_agent(node, identities.get(node)) for node in NODES}
        (port,) = free_ports(1)
        text = CONFIG.format(directory=directory, port=port)
        for node in NODES:
            check = self.agents[node].check_port
            text += SERVER.format(node=node, port=self.ports[node], check=check)
        self.config = text
        self.haproxy: HAProxy | None = None

    def _start_agent(self, node: str, identities: str | None) -> Agent:
        identities = identities or f'["queries/{node}"]'
        own = f'address = "127.0.0.1:{self.ports[node]}"\nidentities = {identities}'
        source = LOG.format(port=free_ports(1)[0], node=node)
        config = agent.service(BOUND, own, source)
        return Agent(self._stack, self._directory, node, config).start()

    def start(self, *changes: tuple[str, str], **environment: str) -> HAProxy:
        """HAProxy, with these changes of its configuration, once all its agents were asked."""
        for old, new in changes:
            assert old in self.config, old
            self.config = self.config.replace(old, new)
        for of_node in self.agents.values():
            of_node.wait_ready()
        started = HAProxy(self._stack, self._directory, self.config, program=self._program)
        started.environment |= environment
        self.haproxy = started.start()
        eventually("agents were asked", self._are_asked)
        return started

    def _are_asked(self) -> bool:
        """Servers without an agent have no state."""
        states = [row["agent_status"] for row in self.haproxy.servers().values()]
        return any(states) and not any(state.endswith(("INI", "UNK")) for state in states)

    def doctor(self, *words: str, config: bool = True) -> Told:
        urls = [word for it in self.agents.values() for word in ("--agent", it.url)]
        files = ["--haproxy-config", str(self._directory / "haproxy.cfg")] if config else []
        return doctor("--haproxy", str(self.haproxy.socket), *files, *urls, *words)
