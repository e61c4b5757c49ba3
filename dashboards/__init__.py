"""Grafana dashboards as code: `python -m dashboards build` writes them as JSON."""

from collections.abc import Callable

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards import lab, node, proxy, ring, sla

# By the name of the file.
ALL: dict[str, Callable[[], Dashboard]] = {
    "sla": sla.dashboard,
    "node": node.dashboard,
    "ring": ring.dashboard,
    "proxy": proxy.dashboard,
    "lab": lab.dashboard,
}
