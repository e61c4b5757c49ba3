"""A HAProxy that takes pushed updates, with its agents and its service."""

import http.client
import re
import threading
import urllib.request
from collections import defaultdict
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.harness import ROOT, programs
from tests.harness.eventually import eventually
from tests.harness.http_server import HttpServer
from tests.harness.ports import answers, free_ports
from tests.harness.process import Program

RULES = (ROOT / "haproxy" / "snippets" / "lua-updates.cfg").read_text()
CONFIG = """\
global
    log stderr format raw local0 notice
    nbthread 2
.if version_atleast(3.2)
    tune.lua.bool-sample-conversion normal
.endif
    lua-prepend-path {root}/lua/?.lua
    lua-prepend-path {root}/lua/?/init.lua
    lua-load-per-thread {directory}/updates.lua

defaults
    mode http
    timeout connect 500ms
    timeout client 10s
    timeout server 10s

frontend feed
    bind 127.0.0.1:{port} thread 1
    http-request use-service lua.plimsoll_update_metrics if {{ path /plimsoll/updates }}
{rules}    default_backend service

backend service
    server service 127.0.0.1:{service}
"""


class Service(HttpServer):
    """Stores what it is sent, and all of it in order; fails or waits as a test likes."""

    def __init__(self) -> None:
        self.stored: dict[str, str] = {}
        self.taken: dict[str, list[str]] = defaultdict(list)
        self.heads: list[str] = []
        self.status, self.go = 200, threading.Event()
        self.waiting = threading.Event()
        self.go.set()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.do_PUT()

            def do_PUT(self) -> None:
                value = self.rfile.read(int(self.headers["content-length"])).decode()
                service.heads.append(str(self.headers))
                service.waiting.set()
                service.go.wait(20)
                if service.status == 200:
                    item = self.path.split("/")[2]
                    service.stored[item] = value
                    service.taken[item].append(value)
                self.send_response(service.status)
                self.send_header("content-length", "0")
                self.end_headers()

        super().__init__(Handler)


class Agent(HttpServer):
    """Agent whose periods a test sets."""

    def __init__(self) -> None:
        self.text, self.status, self.requests = "1 5\n", 200, 0
        # Whether it sends half a status line, and no more until the client leaves.
        self.halves = False
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                assert self.path == "/v1/updates"
                assert self.headers["accept"] == "text/plain"
                if agent.halves:
                    agent.requests += 1
                    self.connection.sendall(b"HTTP/1.1 200")
                    self.rfile.read(1)
                    return
                tag = f'"{hash(agent.text)}"'
                known = self.headers["if-none-match"] == tag and agent.status == 200
                body = b"" if known else agent.text.encode()
                self.send_response(304 if known else agent.status)
                self.send_header("etag", tag)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                agent.requests += 1

        super().__init__(Handler)

    def wants(self, **periods: float) -> None:
        self.text = "7 60\n" + "".join(f"{item} {period}\n" for item, period in periods.items())
        self.heard()

    def heard(self) -> None:
        """Waits until HAProxy has polled the agent and applied the response."""
        requests = self.requests
        eventually("the agent is polled", lambda: self.requests >= requests + 3)


class Site:
    def __init__(self, directory: Path, stack: ExitStack, agents: int, program: str = "") -> None:
        self.directory = directory
        self.service, self.agents = Service(), [Agent() for _ in range(agents)]
        for server in (self.service, *self.agents):
            stack.callback(server.stop)
        (self.port,) = free_ports(1)
        addresses = ", ".join(f'"127.0.0.1:{agent.port}"' for agent in self.agents)
        (directory / "updates.lua").write_text(
            f'require("plimsoll.updates").start({{ agents = {{ {addresses} }}, period = 0.1, age_limit = 1, '
            f'forward = "127.0.0.1:{self.port}", max_bytes = 20000 }})\n'
        )
        self.config = directory / "haproxy.cfg"
        self.config.write_text(
            CONFIG.format(
                root=ROOT, directory=directory, port=self.port, rules=RULES, service=self.service.port
            )
        )
        master = str(directory / "master.sock")
        command = [program or programs.haproxy(), "-W", "-S", master, "-f", str(self.config)]
        self.haproxy = Program(stack, command, directory / "haproxy.log").start()
        stack.callback(self.service.go.set)
        self.haproxy.eventually("haproxy", lambda: answers(self.url))
        for agent in self.agents:
            agent.heard()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/plimsoll/updates"

    def push(self, item: str, value: str, method: str = "PUT", **headers: str) -> tuple[int, str]:
        """Status, and what became of it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=15)
        try:
            named = {name.replace("_", "-"): text for name, text in headers.items()}
            connection.request(method, f"/quote/{item}", value, named)
            answer = connection.getresponse()
            answer.read()
            return answer.status, answer.getheader("plimsoll-update", "")
        finally:
            connection.close()

    def counts(self) -> dict[str, int]:
        with urllib.request.urlopen(self.url, timeout=5) as answer:
            text = answer.read().decode()
        found = re.findall(r'^plimsoll_pushed_updates_total\{outcome="(\w+)"\} (\d+)$', text, re.M)
        return {outcome: int(count) for outcome, count in found}


@pytest.fixture
def site(stack: ExitStack, tmp_path: Path, request: pytest.FixtureRequest) -> Site:
    """With one agent, or as many as the parameter says."""
    return Site(tmp_path, stack, getattr(request, "param", 1))
