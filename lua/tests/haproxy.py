"""A HAProxy that runs the Lua policies."""

import http.client
import re
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

from compose.lab import machine, proxy
from compose.lab.processes import start_tied, wait_until
from compose.lab.topology import ROOT

# Every request costs 1 here.
POLICY = re.sub(r".*url_param.*\n", "", (ROOT / "haproxy" / "snippets" / "lua-policy.cfg").read_text())
CONFIG = """\
global
    log stderr format raw local0 notice
    nbthread {threads}
    stats socket {directory}/haproxy.sock mode 660 level admin
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


class Proxy:
    """A HAProxy that runs the policies."""

    def __init__(self, directory: Path, config: str, program: str = "") -> None:
        self.port = int(re.search(r"bind 127.0.0.1:(\d+)", config)[1])
        self.socket = directory / "haproxy.sock"
        file = directory / "haproxy.cfg"
        file.write_text(config)
        self.log = directory / "haproxy.log"
        self.requests = 0
        self.process = start_tied([program or machine.haproxy(), "-db", "-f", str(file)], {}, self.log)
        wait_until("haproxy", lambda: bool(proxy.servers(self.socket)), 10, self.check)

    def check(self) -> None:
        assert self.process.poll() is None, self.log.read_text()

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
        """What the policies show, by name and node ("" where it is of all)."""
        url = f"http://127.0.0.1:{self.port}/plimsoll/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        checked = ["promtool", "check", "metrics"]
        subprocess.run(checked, input=text, text=True, check=True, capture_output=True)
        samples = re.findall(r'^(\w+)\{plimsoll_cluster="test"(?:,node="([^"]+)")?\} (\S+)$', text, re.M)
        return {(name, node): float(value) for name, node, value in samples}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def eventually(what: str, condition: Callable[[], bool], seconds: float = 10) -> None:
    wait_until(what, condition, seconds, lambda: None)
