"""A node's service as guides have it: a delay histogram, requests in progress, and its name."""

import sys
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

BOUNDS = [0.01, 0.1, 0.5, 1, 2.5]


class Counts:
    def __init__(self) -> None:
        self.lock = Lock()
        self.buckets, self.total, self.running = [0] * (len(BOUNDS) + 1), 0.0, 0

    def text(self) -> str:
        name = "http_request_duration_seconds"
        with self.lock:
            lines = [f"# TYPE {name} histogram"]
            for index, bound in enumerate([*BOUNDS, "+Inf"]):
                lines.append(f'{name}_bucket{{le="{bound}"}} {sum(self.buckets[: index + 1])}')
            lines += [f"{name}_sum {self.total}", f"{name}_count {sum(self.buckets)}"]
            lines += ["# TYPE http_requests_in_progress gauge", f"http_requests_in_progress {self.running}"]
        return "\n".join(lines) + "\n"

    def add(self, seconds: float) -> None:
        with self.lock:
            self.buckets[sum(seconds > bound for bound in BOUNDS)] += 1
            self.total += seconds


COUNTS = Counts()
# Has no rows.
PARTITION = '{"columns":["cid","similarity"]}\n{"end":{"rows":0}}\n'


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        began = time.monotonic()
        self.rfile.read(int(self.headers.get("content-length", 0)))
        url = urllib.parse.urlsplit(self.path)
        told = url.path in ("/metrics", "/healthz", "/readyz")
        if not told:
            with COUNTS.lock:
                COUNTS.running += 1
            COUNTS.add(time.monotonic() - began)
            with COUNTS.lock:
                COUNTS.running -= 1
        body = {"/metrics": COUNTS.text(), "/partition-query": PARTITION}.get(url.path, "done\n").encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.send_header("x-node", sys.argv[1])
        self.send_header("x-items", "1")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Health checks leave early."""


Server(("", int(sys.argv[2])), Handler).serve_forever()
