"""The dashboards as Grafana reads them, and where the rules are."""

import json
from typing import Any

from dashboards import ALL
from dashboards.parts import encoded
from tests.harness import ROOT

RULES = ROOT / "dashboards" / "rules" / "plimsoll.yaml"
BUILT = {name: json.loads(encoded(dashboard())) for name, dashboard in ALL.items()}


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def variables(dashboard: dict[str, Any], kind: str = "query") -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in dashboard["templating"]["list"] if one["type"] == kind}
