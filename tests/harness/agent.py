"""The agent: its configuration, of which tests add what they are about, and its process."""

import json
import subprocess
import urllib.request
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, Self

from tests.harness import programs
from tests.harness.ports import answers, free_ports
from tests.harness.process import Program

HEAD = """\
[agent]
period = "{period}"
[http]
listen = "127.0.0.1:{http}"
[agent_check]
listen = "127.0.0.1:{check}"
on_shutdown = "hold"
[control]
socket = "{directory}/{name}.sock"
"""
SERVICE = """\
[[service]]
name = "stocks"
{identity}
[service.sla]
delay = "1s"
[service.bound]
nominal = {bound}
[service.controller]
kind = "fixed"
[service.source]
{source}
"""
PROXIES = 'kind = "proxies"'
START_S = 30


def redis(port: int) -> str:
    return f'[redis]\nurls = ["redis://127.0.0.1:{port}"]\n'


def service(bound: float, identity: str = "", source: str = PROXIES) -> str:
    """One with a fixed bound; tables of the service may follow."""
    return SERVICE.format(bound=bound, identity=identity, source=source)


def ring(node: str, *more: str) -> str:
    return "\n".join(["[service.ring]", 'cluster = "test"', f'node = "{node}"', *more, ""])


class Agent(Program):
    """An agent with this configuration below `HEAD`."""

    def __init__(
        self,
        stack: ExitStack | AsyncExitStack,
        directory: Path,
        name: str,
        config: str,
        *,
        http: int = 0,
        period: str = "200ms",
    ) -> None:
        spare, self.check_port = free_ports(2)
        self.http = http or spare
        self.url = f"http://127.0.0.1:{self.http}"
        self._socket = directory / f"{name}.sock"
        directory.mkdir(exist_ok=True)
        file = directory / f"{name}.toml"
        head = HEAD.format(
            period=period, directory=directory, name=name, http=self.http, check=self.check_port
        )
        file.write_text(head + config)
        command = [programs.agent(), "agent", "--config", str(file)]
        super().__init__(stack, command, directory / f"{name}.log")

    def wait_ready(self) -> Self:
        self.eventually("the agent is ready", lambda: answers(f"{self.url}/readyz"), START_S)
        return self

    def node(self, *words: str) -> None:
        """`plimsoll node …`, as an operator."""
        command = [programs.agent(), "node", "--socket", str(self._socket), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        assert done.returncode == 0, done.stderr

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=5) as answer:
            return answer.read().decode()

    def json(self, path: str) -> Any:
        return json.loads(self.get(path))
