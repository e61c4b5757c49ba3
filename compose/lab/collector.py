"""Takes the records k6 posts, writes requests.csv.gz, and keeps what the progress display shows."""

import gzip
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from compose.lab.processes import cpu_seconds

HEADER = "t_s,delay_s,status,class,outcome,items,node,age_s\n"
WRITES = "t_s,delay_s,outcome,node,set\n"


class Collector:
    """An HTTP server on a free port: POST /start, POST /records (a line of lags, then records), GET /metrics.

    `names` are those of nodes and proxies that are known by their addresses only; `events` are what happens,
    in seconds since the clients started. Requests that name an object set are also written to `writes`.
    """

    def __init__(
        self,
        path: Path,
        sla: float,
        names: Mapping[str, str] | None = None,
        events: Mapping[str, float] | None = None,
        writes: Path | None = None,
    ) -> None:
        self._names = names or {}
        self._events = events or {}
        # Whose CPU time is shown: process and role by name.
        self.programs: dict[str, tuple[int, str]] = {}
        self._file = gzip.open(path, "wt", compresslevel=3)  # noqa: SIM115 (closed by __exit__)
        self._file.write(HEADER)
        self._writes = gzip.open(writes, "wt", compresslevel=3) if writes else None  # noqa: SIM115 (closed by __exit__)
        if self._writes:
            self._writes.write(WRITES)
        self._sla = sla
        # Unit of timely throughput.
        self.unit = "transactions" if writes else "items"
        self._lock = threading.Lock()
        self._timely: dict[int, int] = defaultdict(int)
        self.lags: list[float] = []
        self.counts: dict[str, int] = defaultdict(int)
        self.started = threading.Event()
        self.start_monotonic = 0.0
        self._start_unix = 0.0
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                if self.path == "/start":
                    collector.start(float(body) / 1000)
                else:
                    collector.take(body)
                self.send_response(204)
                self.send_header("content-length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                body = collector.metrics().encode()
                self.send_response(200 if self.path == "/metrics" else 404)
                self.send_header("content-type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Keeps the terminal for the progress display."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.address}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            self._file.close()
            if self._writes:
                self._writes.close()

    def start(self, unix_seconds: float) -> None:
        self._start_unix = unix_seconds
        self.start_monotonic = time.monotonic() - (time.time() - unix_seconds)
        self.started.set()

    def now(self) -> float:
        """Seconds since the clients started."""
        return time.monotonic() - self.start_monotonic

    def metrics(self) -> str:
        """Metrics for a dashboard's annotations: the SLA, and the times of events."""
        happened = {"start": 0.0, **self._events} if self.started.is_set() else {}
        lines = [
            "# HELP lab_sla_seconds Delay within which an answer is timely.",
            "# TYPE lab_sla_seconds gauge",
            f"lab_sla_seconds {self._sla}",
            "# HELP lab_event_timestamp_seconds When the clients started, and what happened since.",
            "# TYPE lab_event_timestamp_seconds gauge",
        ]
        lines += [
            f'lab_event_timestamp_seconds{{event="{name}"}} {self._start_unix + at:.3f}'
            for name, at in happened.items()
            if at <= self.now()
        ]
        lines += [
            "# HELP lab_cpu_seconds_total CPU time of the proxies and of the load generator.",
            "# TYPE lab_cpu_seconds_total counter",
        ]
        lines += [
            f'lab_cpu_seconds_total{{program="{name}",role="{role}"}} {used}'
            for name, (process, role) in self.programs.items()
            if (used := cpu_seconds(process))
        ]
        return "\n".join(lines) + "\n"

    def take(self, body: str) -> None:
        lags, _, records = body.partition("\n")
        with self._lock:
            self.lags += [float(lag) / 1000 for lag in lags.split()]
            if not records or self._file.closed:
                return
            for line in records.split("\n"):
                *known, node, age = line.split(",")[:8]
                t, delay, _, kind, outcome, items = known
                node = self._names.get(node, node)
                self._file.write(",".join([*known, node, age]) + "\n")
                counted = int(items) if kind == "query" and not self._writes else 0
                if self._writes and (object_set := line.split(",")[8:]):
                    self._writes.write(",".join([t, delay, outcome, node, *object_set]) + "\n")
                    counted = 1
                self.counts[outcome] += 1
                if outcome == "ok" and float(delay) <= self._sla:
                    self._timely[int(float(t) + float(delay))] += counted

    def timely(self, start: float, end: float) -> float:
        """Of `unit`, what finished within [start, end) and the SLA, per second."""
        with self._lock:
            found = sum(n for second, n in self._timely.items() if int(start) <= second < int(end))
        return found / max(1, int(end) - int(start))

    def lag(self, quantile: float) -> float:
        lags = sorted(self.lags)
        return lags[min(len(lags) - 1, int(quantile * len(lags)))] if lags else 0.0
