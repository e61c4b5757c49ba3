"""The guide's walk from an alert to its cause, on the run that it was written from."""

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from dashboards.tests.built import RULES
from dashboards.tests.recorded_run import FILE, notation
from tests.harness import ROOT

GUIDE = ROOT / "docs" / "observability.md"
LABELS = {"cluster": "stocks", "job": "plimsoll", "service": "stocks"}
FIGURES = re.findall(r"^\| (\d+ s) \| `(.+)` \| ([\d.]+)(?: [^|]+)? \|$", GUIDE.read_text(), re.MULTILINE)


def rounded(at: str, query: str, value: str) -> dict[str, Any]:
    """The query as a test of promtool, to as many digits as the guide has."""
    digits = len(value.partition(".")[2])
    return {
        "eval_time": at.replace(" ", ""),
        "expr": f"max(round({query}, 1e-{digits}))",
        "exp_samples": [{"labels": "{}", "value": float(value)}],
    }


def burns(at: str, firing: bool) -> dict[str, Any]:
    fired = {"exp_labels": {**LABELS, "severity": "critical", "window": "1h"}}
    return {"eval_time": at, "alertname": "PlimsollBudgetBurn", "exp_alerts": [fired] if firing else []}


def test_the_recorded_run_has_the_alert_and_the_guides_figures(tmp_path: Path) -> None:
    assert len(FIGURES) == len(re.findall(r"^\| \d+ s \|", GUIDE.read_text(), re.MULTILINE)) > 0
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    run = {
        **yaml.safe_load(FILE.read_text()),
        "alert_rule_test": [burns("155s", False), burns("175s", True), burns("425s", True)],
        "promql_expr_test": [rounded(*figure) for figure in FIGURES],
    }
    cases = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": run["interval"],
        # As Prometheus has them in the file; otherwise in any order, and an alert is a step late or early.
        "group_eval_order": [group["name"] for group in rules["groups"]],
        "tests": [run],
    }
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases, width=1_000_000))
    command = ["promtool", "test", "rules", str(tmp_path / "cases.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_samples_parse_like_promtool() -> None:
    samples = {2: "7", 3: "7", 4: "7", 6: "1.5"}
    assert notation(samples, 10) == "_x2 7x2 _x1 1.5 stale"
    assert notation({0: "1", 1: "2"}, 2) == "1 2"
