"""Grafana dashboards as code: `python -m dashboards build` writes them as JSON."""

from collections.abc import Callable

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards import gathers, lab, node, placement, proxy, ring, sla, updates

# By the name of the file.
ALL: dict[str, Callable[[], Dashboard]] = {
    "sla": sla.dashboard,
    "node": node.dashboard,
    "ring": ring.dashboard,
    "placement": placement.dashboard,
    "updates": updates.dashboard,
    "gathers": gathers.dashboard,
    "proxy": proxy.dashboard,
    "lab": lab.dashboard,
}
