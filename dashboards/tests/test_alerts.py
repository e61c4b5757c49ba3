"""The recording rules and alerts: promtool's opinion, cases, and what is said about them elsewhere."""

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from dashboards.tests.built import RULES as FILE
from tests.harness import ROOT

CASES = Path(__file__).with_name("alerts.yaml")
RUNBOOK = "https://github.com/plimsoll/plimsoll/blob/main/docs/runbook.md#"
SEVERITIES = {"critical", "warning"}

RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
NAMES = {alert["alert"] for alert in ALERTS}


def promtool(*words: str) -> None:
    result = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_promtool_accepts_the_rules():
    promtool("check", "rules", "--lint=all", "--lint-fatal", str(FILE))


def test_alerts_fire_when_they_must_and_only_then(tmp_path):
    rules = yaml.safe_load(FILE.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    (tmp_path / CASES.name).write_text(CASES.read_text())
    promtool("test", "rules", str(tmp_path / CASES.name))


def test_every_alert_has_cases_of_both_kinds():
    tests = yaml.safe_load(CASES.read_text())["tests"]
    cases = [case for test in tests for case in test.get("alert_rule_test", ())]
    fires = {case["alertname"]: case["exp_alerts"][0]["exp_labels"] for case in cases if case["exp_alerts"]}
    quiet = {case["alertname"] for case in cases if not case["exp_alerts"]}
    assert set(fires) == quiet == NAMES
    for alert in ALERTS:
        used = re.findall(r"\$labels\.(\w+)", str(alert["annotations"]))
        missing = set(used) - set(fires[alert["alert"]])
        assert not missing, f"{alert['alert']} says {missing}, which it does not have"


def test_every_alert_has_a_summary_and_a_runbook_link():
    for alert in ALERTS:
        name = alert["alert"]
        assert alert["labels"]["severity"] in SEVERITIES, name
        assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}, name
        assert alert["annotations"]["runbook_url"] == RUNBOOK + name.lower(), name


def test_the_runbook_has_every_alert_and_no_other():
    entries = re.findall(r"^## (Plimsoll\w+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE)
    assert len(entries) == len(set(entries))
    assert set(entries) == NAMES


def test_rules_query_exported_metrics_only():
    catalogue = re.findall(r"^\| `(plimsoll_\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    for rule in RULES:
        expression = re.sub(r"\{[^}]*\}|\([a-z_, ]*\)", "", rule["expr"])
        for name in re.findall(r"[\w:]*plimsoll[\w:]*", expression):
            assert name in recorded or name.removesuffix("_bucket") in catalogue, name
