"""A wrong setting keeps Envoy from starting, and is named in the log; metrics are as documented."""

import re
import subprocess
import urllib.request
from contextlib import ExitStack

import pytest
from envoy_site import Site

from tests.harness import ROOT, programs
from tests.harness.envoy import Envoy, filter_of, set_filter
from tests.harness.eventually import eventually

WRONG = {
    "period": ("1s", "period: invalid type"),
    "cost": ({"form": {"query": "items"}}, "cost.form: unknown field"),
    "agent": ("x", "agent: unknown field"),
}


@pytest.fixture(scope="module")
def ends(fake_site: tuple[Site, object], module_stack: ExitStack) -> dict[str, tuple[int, str]]:
    """Exit status and log of an Envoy with each of the wrong settings."""
    site, _ = fake_site
    envoys = {}
    for field, (value, _) in WRONG.items():
        config = site.config()
        set_filter(config["static_resources"]["listeners"][0], **{field: value})
        envoys[field] = Envoy(module_stack, site.directory / f"wrong-{field}", config, 1)
    found = {}
    for field, envoy in envoys.items():
        process = envoy.begin()
        found[field] = (process.wait(30), envoy.said())
    return found


@pytest.mark.parametrize("field", WRONG)
def test_a_wrong_setting_is_named(ends, field):
    status, log = ends[field]
    assert status == 1
    assert f"plimsoll: {WRONG[field][1]}" in log


def test_validation_mode_names_a_wrong_setting(fake_site, stack):
    """`--mode validate` runs the module as well."""
    site, _ = fake_site
    config = site.config(spill=7)
    envoy = Envoy(stack, site.directory / "validated", config, 1)
    command = [programs.envoy(), "--mode", "validate", "-c", str(envoy.file)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert result.returncode == 1
    assert "plimsoll: spill: must be a number within 0..1, is 7" in result.stderr


@pytest.mark.parametrize("filter_kind", ["wasm"], indirect=True)
def test_settings_must_be_a_string(fake_site, stack):
    site, _ = fake_site
    config = site.config()
    kind = "type.googleapis.com/google.protobuf.Struct"
    value = filter_of(config["static_resources"]["listeners"][0])
    value |= {"@type": kind, "value": {"cluster": "test"}}
    envoy = Envoy(stack, site.directory / "struct", config, 1)
    assert envoy.begin().wait(30) == 1
    problem = "plimsoll: configuration: must be a JSON object in a google.protobuf.StringValue"
    assert problem in envoy.said()


def series_of(envoy: Envoy) -> dict[tuple[str, frozenset[str]], float]:
    """Plimsoll's values for Prometheus, by name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{envoy.admin}/stats/prometheus", timeout=5) as answer:
        found = re.findall(r"^(plimsoll_\w+)\{(.*)\} (\S+)$", answer.read().decode(), re.MULTILINE)
    return {(name, frozenset(labels.split(","))): float(value) for name, labels, value in found}


def test_metrics_for_prometheus_are_those_documented(shared, filter_kind):
    envoy = shared.envoy(**{"class": {"header": "x-class"}})
    shared.wait_in_force(envoy)
    envoy.get("/stock/S0001", [("x-class", "2")])
    cluster = 'plimsoll_cluster="test"'
    admitted = ("plimsoll_class_admitted_total", frozenset({cluster, 'class="2"'}))
    eventually("a request of class 2", lambda: series_of(envoy)[admitted] == 1)
    catalogue = (ROOT / "docs/metrics.md").read_text().split("## What the proxies export")[1]
    who = "Envoy" if filter_kind.name == "wasm" else "(Envoy|Envoy's module)"
    names = [found[1] for found in re.finditer(rf"^\| `(\w+)` .*{who} \|", catalogue, re.MULTILINE)]
    expected = set()
    for name in names:
        classes = [{f'class="{number}"'} for number in range(4)] if "_class_" in name else [set()]
        expected |= {(name, frozenset({cluster, *labels})) for labels in classes}
    assert set(series_of(envoy)) == expected
