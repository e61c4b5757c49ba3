"""A Flask application whose requests take CPU time."""

import hashlib
import time

from flask import Flask, Response, abort, request
from prometheus_flask_exporter.multiprocess import GunicornPrometheusMetrics

MAX_CPU_MS = 1000

app = Flask(__name__)
metrics = GunicornPrometheusMetrics(app)


@app.get("/work")
def work() -> Response:
    cpu_ms = request.args.get("cpu_ms", type=float)
    if cpu_ms is None or not 0 < cpu_ms <= MAX_CPU_MS:
        abort(400, f"cpu_ms must be above 0, and at most {MAX_CPU_MS}")
    end = time.thread_time() + cpu_ms / 1000
    digest = b""
    while time.thread_time() < end:
        for _ in range(50):
            digest = hashlib.sha256(digest).digest()
    return Response(digest.hex() + "\n", mimetype="text/plain")


@app.get("/healthz")
def healthz() -> Response:
    return Response("ok\n", mimetype="text/plain")
