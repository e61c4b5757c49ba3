"""The dashboards against the rules of grafana/dashboard-linter."""

import copy
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dashboards.tests.built import BUILT, panels, variables

Found = Iterator[tuple[str, str]]
UNITS = {
    "short",
    "none",
    "percent",
    "percentunit",
    "s",
    "ms",
    "µs",
    "reqps",
    "cps",
    "bytes",
    "Bps",
    "bool_yes_no",
}
SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)?\{([^{}]*)\}")
# Panels that ask proxies, on dashboards of agents.
OF_PROXIES = {
    "ring": ["Versions"],
    "placement": ["Versions", "Writes at primaries", "Writes refused", "Doubts"],
    "updates": ["Pushed updates", "Pushed updates held", "Bytes held", "Pushed items"],
}
OF_GATHERS = [
    "Gathers",
    "Whole",
    "Delay",
    "Gathers under way",
    "Partitions missed",
    "Gathers by outcome",
    "Delay of gathers",
    "Partitions without an answer",
    "Rows",
    "Bytes of answers",
    "Gathers under way over time",
]
# Rule, dashboard and panel (empty: all of the dashboard), and why it does not hold there.
EXCEPTIONS = {
    (
        "target-rate-interval-rule",
        "sla",
        "Burn rate over time",
    ): "the windows are those of the alerts, whatever is shown",
    **{
        (rule, where, panel): "proxies are in jobs of their own; `proxy` chooses among them"
        for rule in ("target-job-rule", "target-instance-rule")
        for where, titles in OF_PROXIES.items()
        for panel in titles
    },
    **{
        (rule, "gathers", panel): "`plimsoll gather` is in a job of its own; `gather` chooses among them"
        for rule in ("target-job-rule", "target-instance-rule")
        for panel in OF_GATHERS
    },
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


def targets(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


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
