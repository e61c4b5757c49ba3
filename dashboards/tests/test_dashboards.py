"""The dashboards against Grafana's types, and what the project asks of them."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.parts import OBJECTIVE
from dashboards.sla import REASONS
from dashboards.tests.built import BUILT, panels, variables
from tests.harness import ROOT

# Those that come with Grafana.
PANELS = {"timeseries", "stat", "table", "bargauge", "heatmap", "row"}
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
# Label matchers for the selected variables: of agents, proxies, gathers, and policies of the lab.
SCOPES = (
    {'cluster=~"$cluster"', 'job=~"$job"', 'instance=~"$instance"'},
    {'cluster=~"$cluster"', 'instance=~"$proxy"'},
    {'cluster=~"$cluster"', 'instance=~"$gather"'},
    {'policy=~"$policy"'},
)
# The windows of the alerts, whatever time is shown.
FIXED_WINDOWS = {("sla", "Burn rate over time")}
GAUGES = {"envoy_cluster_membership_total"}


def queries(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def lost(written: Any, read: Any, place: str = "") -> Iterator[str]:
    """Paths at which `read` differs from `written`."""
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
    assert made["editable"] is False
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
def test_the_data_source_and_the_time_can_be_chosen(name: str) -> None:
    made = BUILT[name]
    (source,) = variables(made, "datasource").values()
    assert (source["name"], source["query"]) == ("datasource", "prometheus")
    for one in [*variables(made).values(), *panels(made)]:
        assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    # 2: read again where the time range changes.
    assert {one["refresh"] for one in variables(made).values()} == {2}


@pytest.mark.parametrize("name", BUILT)
def test_panels_have_titles_descriptions_and_known_units(name: str) -> None:
    for panel in panels(BUILT[name]):
        assert panel["title"] and panel["description"] and panel["targets"], panel["title"]
        fields = panel["fieldConfig"]
        own = [p["value"] for over in fields["overrides"] for p in over["properties"] if p["id"] == "unit"]
        assert {fields["defaults"]["unit"], *own} <= UNITS, panel["title"]


@pytest.mark.parametrize("name", BUILT)
def test_every_selector_uses_the_dashboards_variables(name: str) -> None:
    for title, expr in queries(BUILT[name]):
        selectors = re.findall(r"\{([^{}]*)\}", expr)
        assert selectors, f"{title}: {expr}"
        for matchers in selectors:
            assert any(scope <= set(matchers.split(",")) for scope in SCOPES), f"{title}: {expr}"


@pytest.mark.parametrize("name", BUILT)
def test_rates_are_over_as_many_samples_whatever_the_scrape_interval(name: str) -> None:
    for title, expr in queries(BUILT[name]):
        if (name, title) not in FIXED_WINDOWS:
            assert not re.search(r"\bi?rate\([^\[]*\[(?!\$__rate_interval\])", expr), f"{title}: {expr}"


@pytest.mark.parametrize("name", BUILT)
def test_counters_are_shown_by_their_growth(name: str) -> None:
    for title, expr in queries(BUILT[name]):
        for counter in re.finditer(r"(\w+_(?:total|count|sum|bucket))\{[^}]*\}", expr):
            grows = re.search(r"\b(?:i?rate|increase)\($", expr[: counter.start()])
            assert (grows and expr[counter.end() :].startswith("[")) or counter[1] in GAUGES, (
                f"{title}: {expr}"
            )


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


def test_command_writes_the_built_dashboards(tmp_path: Path) -> None:
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


def test_provisioning_has_a_prometheus_source_and_a_file_provider() -> None:
    directory = Path(__file__).parents[1] / "provisioning"
    (source,) = yaml.safe_load((directory / "datasources" / "plimsoll.yaml").read_text())["datasources"]
    (provider,) = yaml.safe_load((directory / "dashboards" / "plimsoll.yaml").read_text())["providers"]
    assert source["type"] == "prometheus"
    assert provider["type"] == "file"


def test_what_nobody_obeys_has_a_name_of_its_own(tmp_path: Path) -> None:
    labels = 'instance="a",service="{service}"'
    values = {"plimsoll_bound": 40, "plimsoll_weight_percent": 60, "plimsoll_bound_jobs": 20}
    shown = {"Bound and backlog": "plimsoll_bound", "Weight": "plimsoll_weight_percent"}
    shown["Jobs"] = "plimsoll_bound_jobs"
    series, cases = [], []
    for service, observes in (("obeyed", 0), ("observed", 1)):
        named = labels.format(service=service)
        known = values | {"plimsoll_observes": observes, "plimsoll_mean_delay_seconds": 1}
        series += [{"series": f"{name}{{{named}}}", "values": str(value)} for name, value in known.items()]
    for title, metric in shown.items():
        panel = next(panel for panel in panels(BUILT["node"]) if panel["title"] == title)
        (expr,) = (one["expr"] for one in panel["targets"] if f"{metric}{{" in one["expr"])
        name = metric.removeprefix("plimsoll_").split("_")[0]
        told = {"obeyed": name, "observed": f"{name}, if obeyed"}
        samples = [
            {"labels": f'{{as="{told}",{labels.format(service=service)}}}', "value": values[metric]}
            for service, told in told.items()
        ]
        expr = re.sub(r'=~"\$\w+"', '=~".*"', expr)
        cases.append({"expr": expr, "eval_time": "0m", "exp_samples": samples})
    file = tmp_path / "observed.yaml"
    file.write_text(yaml.safe_dump({"tests": [{"input_series": series, "promql_expr_test": cases}]}))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_reasons_read_as_on_the_agents_page() -> None:
    source = (ROOT / "agent/outputs/src/http/page/reasons.rs").read_text()
    found = re.findall(r'Reason::(\w+) => "(.*)",', source)
    assert {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(): words for name, words in found} == REASONS


def test_every_reason_has_words() -> None:
    catalogue = (ROOT / "docs" / "metrics.md").read_text()
    (line,) = re.findall(r"^\| `plimsoll_steps_total` .*`reason`: ([^|]+)\|", catalogue, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", line)) == set(REASONS)
