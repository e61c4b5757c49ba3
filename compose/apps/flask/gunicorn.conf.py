"""Two sync workers; the metrics of both are on a port of their own, which the master serves."""

import os

from prometheus_flask_exporter.multiprocess import GunicornPrometheusMetrics

workers = 2
worker_class = "sync"
# Its default place is one for all gunicorns of a user.
control_socket_disable = True


def when_ready(server):
    host, _, port = os.environ["METRICS_LISTEN"].rpartition(":")
    GunicornPrometheusMetrics.start_http_server_when_ready(int(port), host)


def child_exit(server, worker):
    GunicornPrometheusMetrics.mark_process_dead_on_child_exit(worker.pid)
