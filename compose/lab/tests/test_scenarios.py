"""A scenario is its module and a line of the registry: nothing else goes by its name, and people find it."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from compose.applab.scenario import SCENARIOS as ON_APPLICATIONS
from compose.lab import render, topology
from compose.lab.scenarios import registry
from compose.lab.topology import ROOT
from loadtests.report.criteria import Criterion

NAMES = set(registry.BY_NAME) | set(ON_APPLICATIONS)
WITHIN = ("compose/lab", "compose/applab", "loadtests/report")


def comparisons(source: str) -> Iterator[int]:
    """Lines that compare something with a scenario's name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.MatchValue):
            compared = [node.value]
        elif isinstance(node, ast.Compare):
            ends = zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
            compared = [one for left, how, right in ends for one in said(left, how, right)]
        else:
            continue
        if any(isinstance(one, ast.Constant) and one.value in NAMES for one in compared):
            yield node.lineno


def said(left: ast.expr, how: ast.cmpop, right: ast.expr) -> list[ast.expr]:
    if isinstance(how, (ast.Eq, ast.NotEq)):
        return [left, right]
    # A key in a table does not depend on the scenario.
    return right.elts if isinstance(right, (ast.Tuple, ast.List, ast.Set)) else []


def sources() -> list[Path]:
    found = [path for folder in WITHIN for path in (ROOT / folder).rglob("*.py")]
    return [path for path in found if not {"tests", "scenarios"} & set(path.relative_to(ROOT).parts)]


def test_nothing_outside_the_scenarios_compares_a_name() -> None:
    assert len(sources()) > 30
    assert {str(path): lines for path in sources() if (lines := list(comparisons(path.read_text())))} == {}


@pytest.mark.parametrize(
    "line", ['a.name == "burst"', '"kill" != a', 'a in ("mix", "x")', "match a:\n  case 'updates': b"]
)
def test_a_comparison_is_found(line: str) -> None:
    assert list(comparisons(line))


@pytest.mark.parametrize("line", ['"updates" in a', 'a == "fc-prop"', 'a["burst"]'])
def test_other_lines_are_no_comparisons(line: str) -> None:
    assert not list(comparisons(line))


def test_of_the_report_only_its_command_knows_the_lab() -> None:
    modules = (ROOT / "loadtests" / "report").glob("*.py")
    imports = re.compile(r"^\s*(?:from|import) compose\b", re.MULTILINE)
    assert [path.name for path in modules if imports.search(path.read_text())] == ["__main__.py"]


def test_make_help_lists_every_scenario() -> None:
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    # A list may go on in the next line.
    listed = re.findall(r"SCENARIO=((?:[\w-]+\|\s*)+[\w-]+)", told)
    assert [re.split(r"\|\s*", names) for names in listed] == [list(registry.BY_NAME), list(ON_APPLICATIONS)]


def test_every_scenario_is_described() -> None:
    text = (ROOT / "docs" / "lab-results.md").read_text()
    assert {name for name in NAMES if not re.search(rf"`{name}`|SCENARIO={name}\b", text)} == set()


def test_tables_of_scenarios_are_of_those_that_there_are() -> None:
    policies = render.table()["defaults"]["scenario"]
    nodes = tomllib.loads(topology.TOPOLOGY.read_text())["scenario"]
    assert set(policies) | set(nodes) <= set(registry.BY_NAME)


def test_results_of_a_scenario_that_is_gone_have_no_targets() -> None:
    assert registry.criteria({"scenario": "thesis", "runs": []}) == []


def test_a_ledger_is_judged_from_its_summary() -> None:
    figures = dict.fromkeys(
        ("writes_lost", "reads_failed", "read_gap_s", "reads_too_far_behind", "deposed_writes"), 0
    )
    figures |= {"resumed_s": 25.0, "stale_left_reads_s": 1.0}
    summary = {"scenario": "master-failover", "figures": figures, "patroni": {"ttl": 20}, "max_lag_s": 5.0}
    failed = [check for check in registry.criteria(summary) if not check.passed]
    assert failed == [
        Criterion("seconds from the primary's death to the first write acknowledged", 25.0, 22.0, False)
    ]
