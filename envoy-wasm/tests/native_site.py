"""Stock Envoy with the configuration of an example, real agents, and nodes and peers as tests want them."""

import http.client
import json
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml
from envoy_site import Envoy, eventually, start_agent

from compose.lab import machine
from compose.lab.errors import LabError
from compose.lab.processes import answers, free_ports, start_tied, wait_until
from compose.lab.topology import ROOT

EXAMPLES = ROOT / "envoy-wasm" / "examples"
AGENT = """\
[agent]
period = "100ms"
[http]
listen = "127.0.0.1:{http}"
[agent_check]
listen = "127.0.0.1:{check}"
on_shutdown = "hold"
[control]
socket = "{directory}/{name}.sock"
[envoy]
{envoy}
[[service]]
name = "stocks"
address = "{address}"
[service.sla]
delay = "1s"
[service.bound]
nominal = {bound}
[service.controller]
kind = "fixed"
[service.source]
kind = "prometheus"
url = "http://127.0.0.1:{metrics}/metrics"
histogram = "work_seconds"
"""


class Answering:
    """An HTTP server; `say` gives its answers, by method and path, as status and body."""

    def __init__(
        self, say: Callable[[str, str], tuple[int, bytes]], host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.say = say
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                status, body = site.say(self.command, self.path)
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((host, port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Work:
    """Metrics of a service that finishes so many requests of so many seconds between any two scrapes."""

    def __init__(self, requests: int, seconds: float) -> None:
        self.requests, self.seconds, self._count, self._lock = requests, seconds, 0, threading.Lock()

    def __call__(self, _method: str, _path: str) -> tuple[int, bytes]:
        with self._lock:
            self._count += self.requests
            count = self._count
        buckets = "".join(
            f'work_seconds_bucket{{le="{le}"}} {count if self.seconds <= float(le) else 0}\n'
            for le in ("0.01", "0.1", "1", "+Inf")
        )
        return 200, (
            f"# TYPE work_seconds histogram\n{buckets}"
            f"work_seconds_sum {count * self.seconds}\nwork_seconds_count {count}\n"
        ).encode()


def seen_by(address: str, admitted: float, ended: float, backlog: float, bound: float) -> bytes:
    """`/v1/node` of an agent whose node sees this."""
    flow = {"admitted": admitted, "ended": ended, "backlog": backlog, "bound": bound}
    service = {
        "address": address, "health": "up", "override": {"drain": False, "health": None},
        "decision": {"bound": bound}, "weight_bound": bound, "backlog": backlog, "flow": flow,
        "shed": {"fraction": 0.0, "asked": False},
    }  # fmt: skip
    return json.dumps({"services": {"stocks": service}}).encode()


class NativeSite:
    """Nodes, agents and one Envoy."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory, self.stack = directory, stack
        self.agents: dict[str, Any] = {}

    def answering(self, say: Callable[[str, str], tuple[int, bytes]], **where: Any) -> Answering:
        server = Answering(say, **where)
        self.stack.callback(server.stop)
        return server

    def node(self, name: str, **where: Any) -> Answering:
        """Answers with its name."""
        return self.answering(lambda _method, _path: (200, name.encode()), **where)

    def agent(
        self, name: str, address: str, http: int, envoy: str, bound: int = 1000, metrics: int = 9
    ) -> None:
        text = AGENT.format(
            http=http, check=free_ports(1)[0], directory=self.directory, name=name, envoy=envoy,
            address=address, bound=bound, metrics=metrics,
        )  # fmt: skip
        process = self.agents[name] = start_agent(self.stack, self.directory, name, text)

        def check() -> None:
            assert process.poll() is None, (self.directory / f"{name}.log").read_text()

        wait_until(name, lambda: answers(f"http://127.0.0.1:{http}/readyz"), 30, check)

    def set_node(self, name: str, *words: str) -> None:
        """`plimsoll node …` for one of the agents."""
        socket = str(self.directory / f"{name}.sock")
        command = [machine.binary("plimsoll"), "node", "--socket", socket, *words]
        assert start_tied(command, {}, self.directory / "node.log").wait(10) == 0

    def config(self, example: str, agents: list[int]) -> dict[str, Any]:
        """An example with these agents, asked often, and without checks that would compete with theirs."""
        config = yaml.safe_load((EXAMPLES / example).read_text())
        clusters = {cluster["name"]: cluster for cluster in config["static_resources"]["clusters"]}
        for cluster in clusters.values():
            for key in ("health_checks", "outlier_detection"):
                cluster.pop(key, None)
        source = clusters["queries"].get("eds_cluster_config", {}).get("eds_config")
        if source:
            source["api_config_source"]["refresh_delay"] = "0.1s"
        if "plimsoll_agents" in clusters:
            clusters["plimsoll_agents"]["load_assignment"]["endpoints"] = [endpoints(agents)]
        return config

    def envoy(self, config: dict[str, Any]) -> Envoy:
        envoy = Envoy(self.directory / "envoy", config, 1)
        self.stack.callback(envoy.kill)
        envoy.start()
        return envoy


def endpoints(ports: list[int], host: str = "127.0.0.1") -> dict[str, Any]:
    socket = lambda port: {"socket_address": {"address": host, "port_value": port}}  # noqa: E731
    return {"lb_endpoints": [{"endpoint": {"address": socket(port)}} for port in ports]}


def share(envoy: Envoy, requests: int = 100, path: str = "/stock/{}") -> Counter[str]:
    """Where requests went, each of its own key: the node's name, or the status of what Envoy refused."""
    found: Counter[str] = Counter()
    connection = http.client.HTTPConnection("127.0.0.1", envoy.port, timeout=10)
    for number in range(requests):
        connection.request("GET", path.format(number))
        answer = connection.getresponse()
        body = answer.read().decode()
        found[body if answer.status == 200 else str(answer.status)] += 1
    connection.close()
    return found


def until_shared(envoy: Envoy, what: str, holds: Callable[[Counter[str]], bool]) -> Counter[str]:
    """What `share` gives once it is so."""
    found: Counter[str] = Counter()

    def is_so() -> bool:
        nonlocal found
        found = share(envoy)
        return holds(found)

    try:
        eventually(what, is_so)
    except LabError as error:
        raise LabError(f"{what}: {dict(found)}") from error
    return found
