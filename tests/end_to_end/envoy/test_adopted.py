"""A bootstrap that `plimsoll adopt` has changed, and the agents that it configured, under load."""

import http.client
import os
import re
import signal
import statistics
import subprocess
import threading
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.harness import programs
from tests.harness.http_server import HttpServer
from tests.harness.ports import answers, free_ports
from tests.harness.process import Program

HISTOGRAM = "http_request_duration_seconds"
BOOTSTRAP = """\
admin:
  address: { socket_address: { address: 127.0.0.1, port_value: ADMIN } }
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: LISTENER } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress_http
          route_config:
            virtual_hosts:
            - name: backend
              domains: ["*"]
              routes:
              - match: { prefix: "/" }
                route: { cluster: app }
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: app
    connect_timeout: 1s
    load_assignment:
      cluster_name: app
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: NODE1, port_value: PORT } } }
        - endpoint: { address: { socket_address: { address: NODE2, port_value: PORT } } }
"""  # noqa: E501


class Service:
    """Ends at most `WORKERS` requests each `WORK_S`; its histogram has the wait for a worker as well."""

    WORKERS, WORK_S, BUCKETS = 2, 0.02, (0.05, 0.1, 0.25, 0.5, 1, 2.5)

    def __init__(self, host: str, port: int) -> None:
        self.counts, self.sum, self.running = [0] * (len(self.BUCKETS) + 1), 0.0, 0
        self._lock, self._workers = threading.Lock(), threading.Semaphore(self.WORKERS)
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = service.metrics() if self.path == "/metrics" else service.work()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = HttpServer(Handler, host, port)
        self.name = host.encode()

    def work(self) -> bytes:
        began = time.monotonic()
        with self._lock:
            self.running += 1
        with self._workers:
            time.sleep(self.WORK_S)
        took = time.monotonic() - began
        with self._lock:
            self.running -= 1
            self.sum += took
            self.counts[sum(took > bound for bound in self.BUCKETS)] += 1
        return self.name

    def metrics(self) -> bytes:
        name = HISTOGRAM
        with self._lock:
            bounds = [*map(str, self.BUCKETS), "+Inf"]
            rows = [
                f'{name}_bucket{{le="{le}"}} {sum(self.counts[: at + 1])}' for at, le in enumerate(bounds)
            ]
            rows += [f"{name}_sum {self.sum}", f"{name}_count {sum(self.counts)}"]
            rows += ["# TYPE busy gauge", f"busy {self.running}"]
        return "\n".join([f"# TYPE {name} histogram", *rows, ""]).encode()


class Clients:
    """So many at a time; who is refused comes again after a while."""

    def __init__(self, port: int, count: int) -> None:
        self.port, self.answers = port, []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        while not self._stop.is_set():
            began = time.monotonic()
            connection.request("GET", "/")
            answer = connection.getresponse()
            body, reason = answer.read(), answer.getheader("plimsoll-reason")
            self.answers.append((answer.status, body, reason, time.monotonic() - began))
            if answer.status != 200:
                self._stop.wait(0.2)
        connection.close()

    def recent(self, count: int = 200) -> tuple[int, float, set[bytes]]:
        """Of the last answers: how many were refused, the median delay of the others, and who gave them."""
        recent = self.answers[-count:]
        assert {status for status, *_ in recent} <= {200, 503}
        refused = sum(reason == "full" for *_, reason, _ in recent)
        served = [(body, took) for status, body, _, took in recent if status == 200]
        median = statistics.median(took for _, took in served) if served else float("inf")
        return refused, median, {body for body, _ in served}

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def test_an_adopted_cluster_is_served_and_bounded(tmp_path: Path):
    # Agents listen at a fixed port, so the nodes have addresses of this process' own.
    own = os.getpid()
    hosts = [f"127.{1 + own % 250}.{own // 250 % 250}.{node}" for node in (11, 12)]
    port, listener, admin = free_ports(3)
    text = BOOTSTRAP
    for name, value in [
        ("ADMIN", admin),
        ("LISTENER", listener),
        ("NODE1", hosts[0]),
        ("NODE2", hosts[1]),
        ("PORT", port),
    ]:
        text = text.replace(name, str(value))
    config = tmp_path / "envoy.yaml"
    config.write_text(text)
    with ExitStack() as stack:
        metrics = ["--metrics", "http://NODE/metrics", "--histogram", HISTOGRAM, "--gauge", "busy"]
        words = ["--cluster", "app", "--sla", "250ms", *metrics, "--agents", f"{tmp_path}/agents", "--write"]
        command = [programs.agent(), "adopt", str(config), "--envoy", programs.envoy(), *words]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        agents = []
        for host in hosts:
            stack.callback(Service(host, port).server.stop)
            file = tmp_path / "agents" / f"{host}.toml"
            written = file.read_text().replace("http://NODE/", f"http://{host}:{port}/")
            for path in ("/var/lib/plimsoll", "/run/plimsoll"):
                (tmp_path / host).mkdir(exist_ok=True)
                written = written.replace(path, str(tmp_path / host))
            # By default at loopback, which the agents of this test share.
            file.write_text(f'{written}[agent_check]\nlisten = "{host}:9101"\n')
            command = [programs.agent(), "agent", "--config", str(file)]
            agents.append(Program(stack, command, tmp_path / f"{host}.log").start())
        options = ["--concurrency", "1", "-l", "warning", "--disable-hot-restart"]
        envoy = Program(
            stack, [programs.envoy(), "-c", str(config), *options], tmp_path / "envoy.log"
        ).start()
        for host, agent in zip(hosts, agents, strict=True):
            agent.eventually("the agent", lambda host=host: answers(f"http://{host}:9464/readyz"), 30)
        envoy.eventually("Envoy", lambda: answers(f"http://127.0.0.1:{admin}/ready"), 30)

        clients = Clients(listener, 80)
        stack.callback(clients.stop)
        nodes = {host.encode() for host in hosts}
        envoy.eventually(
            "both nodes are late while the agents observe",
            lambda: len(clients.answers) > 400 and clients.recent()[1] > 0.3 and clients.recent()[2] == nodes,
        )
        assert all(status == 200 for status, *_ in clients.answers)

        switch = re.search(
            r"^  (sed -i '.*') /etc/plimsoll/agent.toml && systemctl reload plimsoll$", said, re.M
        )
        for host, agent in zip(hosts, agents, strict=True):
            subprocess.run(f"{switch[1]} {tmp_path}/agents/{host}.toml", shell=True, check=True)
            agent.process.send_signal(signal.SIGHUP)

        def is_bounded() -> bool:
            refused, median, served_by = clients.recent()
            return refused > 0 and median < 0.25 and served_by == nodes

        envoy.eventually("some are refused, and the others in time", is_bounded, 60)
        clients.stop()

        def is_open() -> bool:
            connection = http.client.HTTPConnection("127.0.0.1", listener, timeout=10)
            statuses = set()
            for _ in range(20):
                connection.request("GET", "/")
                answer = connection.getresponse()
                answer.read()
                statuses.add(answer.status)
            connection.close()
            return statuses == {200}

        envoy.eventually("nobody is refused after it", is_open)
        for agent in agents:
            agent.check()
