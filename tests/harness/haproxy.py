"""HAProxy with the Lua policies."""

import http.client
import re
import subprocess
import urllib.request
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Self

from compose.lab import proxy
from tests.harness import ROOT, programs
from tests.harness.ports import free_ports
from tests.harness.process import Program

# Every request costs 1 here.
POLICY = re.sub(r".*url_param.*\n", "", (ROOT / "haproxy" / "snippets" / "lua-policy.cfg").read_text())
# Answers tell which server the policy chose, if it did.
PLACED = POLICY + "    http-response set-header x-placed %[var(txn.plimsoll)]\n"
# The rules of policy `limits`: nothing but the first tier's refusal.
LIMITED = (ROOT / "haproxy" / "snippets" / "refusal.cfg").read_text()
LIMITED += "    http-response set-header x-placed %s\n"
CONFIG = """\
global
    log stderr format raw local0 notice
    nbthread {threads}
    stats socket {directory}/haproxy.sock mode 660 level admin expose-fd listeners
.if version_atleast(3.2)
    tune.lua.bool-sample-conversion normal
.endif
    lua-prepend-path {root}/lua/?.lua
    lua-prepend-path {root}/lua/?/init.lua
    lua-load-per-thread {directory}/plimsoll.lua

defaults
    mode http
    timeout connect 500ms
    timeout client 10s
    timeout server 10s
    timeout queue 50ms

frontend web
    bind 127.0.0.1:{port}
    http-request use-service lua.plimsoll_metrics if {{ path /plimsoll/metrics }}
    default_backend queries

backend queries
    balance roundrobin
{policy}    http-response set-header x-server %s
    default-server weight 100
"""
SETTINGS = """\
require("plimsoll").start({{
  cluster = "test", backend = "queries", proxy = "{name}", period = 0.1, lease = 1, age_limit = {age},
  policy = "{policy}", redis = {{ addresses = {{ "127.0.0.1:{redis}" }}, timeout = 0.5 }},
}})
"""


def configuration(directory: Path, servers: dict[str, int], threads: int = 1, rules: str = POLICY) -> str:
    """One with a policy, whose settings are in `plimsoll.lua`; `rules` may be followed by others."""
    (port,) = free_ports(1)
    text = CONFIG.format(threads=threads, directory=directory, root=ROOT, port=port, policy=rules)
    return text + "".join(f"    server {name} 127.0.0.1:{at}\n" for name, at in servers.items())


class HAProxy(Program):
    """Its configuration has a stats socket, `<name>.sock`, and first binds the port that clients ask."""

    def __init__(
        self,
        stack: ExitStack | AsyncExitStack,
        directory: Path,
        config: str,
        *,
        name: str = "haproxy",
        program: str = "",
        mode: str = "-db",
    ) -> None:
        self.port = int(re.search(r"bind 127.0.0.1:(\d+)", config)[1])
        self.socket = directory / f"{name}.sock"
        self.requests = 0
        directory.mkdir(exist_ok=True)
        file = directory / f"{name}.cfg"
        file.write_text(config)
        command = [program or programs.haproxy(), mode, "-f", str(file)]
        super().__init__(stack, command, directory / f"{name}.log")

    def start(self, *words: str) -> Self:
        super().start(*words)
        self.eventually("haproxy", self.is_up)
        return self

    def is_up(self) -> bool:
        try:
            return bool(self.ask("show info"))
        except OSError:
            return False

    def reload(self) -> None:
        """By a process that takes over the listeners."""
        super().start("-x", str(self.socket), "-sf", str(self.process.pid))

    def ask(self, command: str) -> str:
        """Output of a command on the stats socket."""
        return proxy.ask(self.socket, command)

    def servers(self) -> dict[str, dict[str, str]]:
        """Its view of those of backend queries."""
        return proxy.servers(self.socket)

    def pid_at_work(self) -> int:
        return int(re.search(r"^Pid: (\d+)", self.ask("show info"), re.MULTILINE)[1])

    def get(self, path: str) -> tuple[int, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            self.requests += 1
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()

    def server_of(self, symbol: str) -> str:
        status, headers = self.get(f"/stock/{symbol}?items=1")
        assert status == 200
        return headers["x-server"]

    def metrics(self) -> dict[tuple[str, str], float]:
        """The policies' metrics, by name and node or class ("" for metrics without)."""
        url = f"http://127.0.0.1:{self.port}/plimsoll/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        checked = ["promtool", "check", "metrics"]
        subprocess.run(checked, input=text, text=True, check=True, capture_output=True)
        label = r'(?:,(?:node|class)="([^"]+)")?'
        samples = re.findall(rf'^(\w+)\{{plimsoll_cluster="test"{label}\}} (\S+)$', text, re.M)
        return {(name, node): float(value) for name, node, value in samples}


def start_with_policy(
    stack: ExitStack | AsyncExitStack, directory: Path, settings: str, config: str, program: str = ""
) -> HAProxy:
    directory.mkdir(exist_ok=True)
    (directory / "plimsoll.lua").write_text(settings)
    return HAProxy(stack, directory, config, program=program).start()
