"""The dashboards against Grafana's types, the rules of grafana/dashboard-linter, and the project's own."""

import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import ALL
from dashboards.parts import OBJECTIVE, encoded

Found = Iterator[tuple[str, str]]
BUILT = {name: json.loads(encoded(dashboard())) for name, dashboard in ALL.items()}
UNITS = {"short", "none", "percent", "percentunit", "s", "ms", "µs", "reqps", "cps", "bytes", "bool_yes_no"}
# Those that come with Grafana.
PANELS = {"timeseries", "stat", "table", "bargauge", "heatmap", "row"}
SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)?\{([^{}]*)\}")
# Rule, dashboard and panel (empty: all of the dashboard), and why it does not hold there.
EXCEPTIONS = {
    (
        "target-rate-interval-rule",
        "sla",
        "Burn rate over time",
    ): "the windows are those of the alerts, whatever is shown",
    ("target-job-rule", "ring", "Versions"): "proxies are in jobs of their own; `proxy` chooses among them",
    ("target-instance-rule", "ring", "Versions"): "an instance of a proxy is `proxy`",
    (
        "template-job-rule",
        "proxy",
        "",
    ): "HAProxy and Envoy are different jobs; their metrics' names tell them",
    ("template-instance-rule", "proxy", ""): "it is `proxy`: links hand `instance` on, and that is a node",
    ("target-job-rule", "proxy", ""): "HAProxy and Envoy are different jobs; their metrics' names tell them",
    ("target-instance-rule", "proxy", ""): "it is `proxy`: links hand `instance` on, and that is a node",
    ("target-counter-agg-rule", "proxy", "Envoy: nodes"): "envoy_cluster_membership_total is a gauge",
    ("template-job-rule", "lab", ""): "a run is compared by its policies",
    ("template-instance-rule", "lab", ""): "a run is compared by its policies",
    ("target-job-rule", "lab", ""): "a run is compared by its policies",
    ("target-instance-rule", "lab", ""): "a run is compared by its policies",
}


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def targets(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def variables(dashboard: dict[str, Any], kind: str = "query") -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in dashboard["templating"]["list"] if one["type"] == kind}


def filled(expr: str) -> str:
    for name, value in (("$__rate_interval", "1m"), ("$__range", "1h")):
        expr = expr.replace(name, value)
    return re.sub(r"\$\w+", ".+", expr)


def refused(exprs: list[str]) -> set[int]:
    """Which of these promtool does not take."""
    wrong = set()
    for at, expr in enumerate(exprs):
        rule = {"groups": [{"name": "a", "rules": [{"record": "a", "expr": expr}]}]}
        command = ["promtool", "check", "rules", "/dev/stdin"]
        done = subprocess.run(
            command, input=json.dumps(rule), capture_output=True, text=True, check=False, timeout=20
        )
        if done.returncode != 0:
            wrong.add(at)
    return wrong


def template_datasource(dashboard: dict[str, Any]) -> Found:
    found = variables(dashboard, "datasource")
    if list(found) != ["datasource"] or found["datasource"]["query"] != "prometheus":
        yield "", f"data sources are {list(found)}"
    elif found["datasource"]["label"] != "Data source":
        yield "", "the data source's label is not `Data source`"


def template_of(name: str, label: str) -> Callable[[dict[str, Any]], Found]:
    def rule(dashboard: dict[str, Any]) -> Found:
        one = variables(dashboard).get(name)
        if one is None:
            yield "", f"has no variable {name}"
            return
        if one["label"] != label or one["allValue"] != ".+" or not one["multi"] or not one["includeAll"]:
            yield "", f"variable {name} has label {one['label']}, all {one['allValue']}"
        if one["datasource"]["uid"] != "${datasource}":
            yield "", f"variable {name} is not of the chosen data source"

    return rule


def template_label_promql(dashboard: dict[str, Any]) -> Found:
    asked = [one["query"] for one in variables(dashboard).values()]
    parsed = [re.fullmatch(r"label_values\((.+), (\w+)\)", query) for query in asked]
    selectors = [filled(match[1]) if match else "(" for match in parsed]
    for at in refused(selectors):
        yield "", f"variable's query {asked[at]}"


def template_reload(dashboard: dict[str, Any]) -> Found:
    for name, one in variables(dashboard).items():
        if one["refresh"] != 2:
            yield "", f"variable {name} does not follow the time range"


def uneditable(dashboard: dict[str, Any]) -> Found:
    if dashboard["editable"] is not False:
        yield "", "can be edited"


def panel_datasource(dashboard: dict[str, Any]) -> Found:
    for panel in panels(dashboard):
        if panel["datasource"] != {"type": "prometheus", "uid": "${datasource}"}:
            yield panel["title"], "is not of the chosen data source"


def panel_title_description(dashboard: dict[str, Any]) -> Found:
    for panel in panels(dashboard):
        if not panel.get("title") or not panel.get("description"):
            yield panel.get("title", ""), "has no title or no description"


def panel_units(dashboard: dict[str, Any]) -> Found:
    for panel in panels(dashboard):
        config = panel["fieldConfig"]
        own = [p["value"] for over in config["overrides"] for p in over["properties"] if p["id"] == "unit"]
        if not {config["defaults"].get("unit"), *own} <= UNITS:
            yield panel["title"], f"has units {config['defaults'].get('unit')}, {own}"


def panel_no_targets(dashboard: dict[str, Any]) -> Found:
    for panel in panels(dashboard):
        if not panel.get("targets"):
            yield panel["title"], "asks nothing"


def target_promql(dashboard: dict[str, Any]) -> Found:
    asked = list(targets(dashboard))
    for at in refused([filled(expr) for _, expr in asked]):
        yield asked[at]


def target_rate_interval(dashboard: dict[str, Any]) -> Found:
    for title, expr in targets(dashboard):
        if re.search(r"\bi?rate\([^\[]*\[(?!\$__rate_interval\])", expr):
            yield title, expr


def target_matcher(name: str) -> Callable[[dict[str, Any]], Found]:
    def rule(dashboard: dict[str, Any]) -> Found:
        for title, expr in targets(dashboard):
            if any(f'{name}=~"${name}"' not in matchers for _, matchers in SELECTOR.findall(expr)):
                yield title, expr

    return rule


def target_counter_agg(dashboard: dict[str, Any]) -> Found:
    for title, expr in targets(dashboard):
        for counter in re.finditer(r"\w+_(total|count|sum|bucket)\{[^}]*\}", expr):
            before, after = expr[: counter.start()], expr[counter.end() :]
            if not after.startswith("[") or not re.search(r"\b(rate|irate|increase)\($", before):
                yield title, expr


RULES = {
    "template-datasource-rule": template_datasource,
    "template-job-rule": template_of("job", "Job"),
    "template-instance-rule": template_of("instance", "Instance"),
    "template-label-promql-rule": template_label_promql,
    "template-on-time-change-reload-rule": template_reload,
    "uneditable-dashboard": uneditable,
    "panel-datasource-rule": panel_datasource,
    "panel-title-description-rule": panel_title_description,
    "panel-units-rule": panel_units,
    "panel-no-targets-rule": panel_no_targets,
    "target-promql-rule": target_promql,
    "target-rate-interval-rule": target_rate_interval,
    "target-job-rule": target_matcher("job"),
    "target-instance-rule": target_matcher("instance"),
    "target-counter-agg-rule": target_counter_agg,
}


@pytest.mark.parametrize("dashboard", BUILT)
@pytest.mark.parametrize("rule", RULES)
def test_rule_of_the_linter(rule: str, dashboard: str) -> None:
    allowed = {panel for named, where, panel in EXCEPTIONS if (named, where) == (rule, dashboard)}
    found = list(RULES[rule](BUILT[dashboard]))
    assert [problem for problem in found if "" not in allowed and problem[0] not in allowed] == []
    # An exception that nothing needs would hide the next fault.
    assert {panel for panel in allowed if panel} <= {panel for panel, _ in found}
    assert found or not allowed


def asking(text: str) -> Callable[[dict[str, Any]], None]:
    def change(dashboard: dict[str, Any]) -> None:
        panels(dashboard)[0]["targets"][0]["expr"] = text

    return change


def with_variable(which: str, **fields: Any) -> Callable[[dict[str, Any]], None]:
    def change(dashboard: dict[str, Any]) -> None:
        next(one for one in dashboard["templating"]["list"] if one["name"] == which).update(fields)

    return change


MATCHERS = 'job=~"$job",instance=~"$instance"'


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("template-datasource-rule", with_variable("datasource", query="loki")),
        ("template-job-rule", with_variable("job", allValue=".*")),
        ("template-instance-rule", with_variable("instance", name="node")),
        ("template-label-promql-rule", with_variable("job", query="label_values(up{, job)")),
        ("template-on-time-change-reload-rule", with_variable("job", refresh=1)),
        ("uneditable-dashboard", lambda made: made.update(editable=True)),
        ("panel-datasource-rule", lambda made: made["panels"][0]["datasource"].update(uid="mine")),
        ("panel-title-description-rule", lambda made: made["panels"][0].update(description="")),
        (
            "panel-units-rule",
            lambda made: made["panels"][0]["fieldConfig"]["defaults"].update(unit="parsecs"),
        ),
        ("panel-no-targets-rule", lambda made: made["panels"][0].update(targets=[])),
        ("target-promql-rule", asking("sum(up")),
        ("target-rate-interval-rule", asking(f"sum(rate(a_total{{{MATCHERS}}}[5m]))")),
        ("target-job-rule", asking('up{instance=~"$instance"}')),
        ("target-instance-rule", asking('up{job=~"$job"}')),
        ("target-counter-agg-rule", asking(f"sum(a_total{{{MATCHERS}}})")),
        ("target-counter-agg-rule", asking(f"deriv(a_total{{{MATCHERS}}}[$__rate_interval])")),
    ],
)
def test_a_rule_finds_what_breaks_it(rule: str, change: Callable[[dict[str, Any]], None]) -> None:
    broken = copy.deepcopy(BUILT["node"])
    assert list(RULES[rule](broken)) == []
    change(broken)
    assert list(RULES[rule](broken)) != []


def lost(written: Any, read: Any, place: str = "") -> Iterator[str]:
    """Where `read` has not what was written."""
    if isinstance(written, dict) and isinstance(read, dict):
        for key, value in written.items():
            yield from lost(value, read.get(key), f"{place}.{key}")
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for at, pair in enumerate(zip(written, read, strict=True)):
            yield from lost(*pair, f"{place}[{at}]")
    elif written != read:
        yield place


@pytest.mark.parametrize("name", BUILT)
def test_grafanas_types_know_every_field(name: str) -> None:
    register_default_plugins()
    read = json.loads(json.dumps(Dashboard.from_json(BUILT[name]), cls=JSONEncoder))
    # Prometheus' own fields of an annotation are none of the dashboard's.
    own = re.compile(r"\.annotations\.list\[\d+\]\.(titleFormat|useValueForTime)")
    assert [place for place in lost(BUILT[name], read) if not own.fullmatch(place)] == []


@pytest.mark.parametrize("name", BUILT)
def test_a_dashboard_can_be_provisioned(name: str) -> None:
    made = BUILT[name]
    assert made["uid"] == f"plimsoll-{name}"
    assert made["id"] is None
    assert made["graphTooltip"] == 1
    assert made["tags"] == ["plimsoll"]
    (link,) = made["links"]
    assert (link["type"], link["tags"], link["keepTime"], link["includeVars"]) == (
        "dashboards",
        ["plimsoll"],
        True,
        True,
    )
    assert {panel["type"] for panel in made["panels"]} <= PANELS
    numbers = [panel["id"] for panel in made["panels"]]
    assert len(numbers) == len(set(numbers))
    titles = [panel["title"] for panel in made["panels"]]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("name", BUILT)
def test_panels_lie_side_by_side(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BUILT[name]["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_alerts_are_about_the_same_objective() -> None:
    text = (Path(__file__).parents[1] / "rules" / "plimsoll.yaml").read_text()
    (ratio,) = re.findall(r"record: plimsoll:slo:ratio\n +expr: vector\((.+)\)", text)
    assert float(ratio) == OBJECTIVE


def test_links_to_a_dashboard_lead_to_one() -> None:
    led = re.findall(r'"/d/([\w-]+)\?', json.dumps(BUILT))
    assert led
    assert set(led) <= {made["uid"] for made in BUILT.values()}


def test_the_command_writes_what_the_types_give(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dashboards", "build", str(tmp_path / "made")]
    subprocess.run(command, cwd=Path(__file__).parents[2], check=True, timeout=60, stdout=subprocess.DEVNULL)
    written = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "made").glob("*.json")}
    assert {name: made["uid"] for name, made in written.items()} == {
        name: made["uid"] for name, made in BUILT.items()
    }


def test_the_command_names_a_directory_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "dashboards", "build", str(tmp_path / "file")]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], check=False, timeout=60, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert str(tmp_path / "file") in done.stderr
    assert "Traceback" not in done.stderr


def test_provisioning_names_what_the_dashboards_ask_for() -> None:
    directory = Path(__file__).parents[1] / "provisioning"
    (source,) = yaml.safe_load((directory / "datasources" / "plimsoll.yaml").read_text())["datasources"]
    (provider,) = yaml.safe_load((directory / "dashboards" / "plimsoll.yaml").read_text())["providers"]
    assert source["type"] == "prometheus"
    assert provider["type"] == "file"
