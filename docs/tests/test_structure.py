"""The house: which crate may know which, and no circles within one (ARCHITECTURE.md)."""

import re
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from compose.lab.topology import ROOT

CRATES = {
    **{f.parent.name: f.parent for f in ROOT.glob("agent/*/Cargo.toml")},
    "envoy-wasm": ROOT / "envoy-wasm",
    "stocks": ROOT / "compose" / "stocks",
}
# What puts the others together.
COMPOSITION = {"config", "metrics"}
COMPOSERS = {"config", "metrics", "supervise", "reload", "check", "main", "gather_command"}
# Circles of before; none is added.
CIRCLES = {
    "sim": {frozenset({"node", "policy", "scenario"})},
    "envoy-wasm": {frozenset({"fetcher", "follower"}), frozenset({"filter", "roots"})},
    "stocks": {
        frozenset(
            {"cache", "http", "pool", "postgres", "prices", "rows", "serve", "sqlite", "store", "views"}
        )
    },
}
USE = re.compile(r"\buse\s+crate::([^;]*);")
PATH = re.compile(r"\bcrate::(\w+)")
TESTS = re.compile(r"^#\[cfg\(test\)\].*", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"//[^\n]*")


def allowed() -> dict[str, set[str]]:
    drawn = re.search(
        r"^```crates\n(.*?)^```", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert drawn, "ARCHITECTURE.md has no block `crates`"
    lines = [line.split("->") for line in drawn[1].splitlines()]
    return {name.strip(): set(known.split()) for name, known in lines}


def depended_on(crate: Path) -> set[str]:
    manifest = tomllib.loads((crate / "Cargo.toml").read_text())
    tables = [manifest.get(kind, {}) for kind in ("dependencies", "dev-dependencies")]
    tables += [target.get("dependencies", {}) for target in manifest.get("target", {}).values()]
    return {
        name.removeprefix("plimsoll-") for table in tables for name in table if name.startswith("plimsoll-")
    }


def first_names(tree: str) -> Iterator[str]:
    """`a::{b, c}` begins with a, `{a::b, c}` with a and c."""
    if not tree.strip().startswith("{"):
        yield re.match(r"\s*(\w+)", tree)[1]
        return
    depth, word = 0, ""
    for character in tree.strip()[1:-1] + ",":
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            if word.strip():
                yield re.match(r"\s*(\w+)", word)[1]
            word = ""
        else:
            word += character


@cache
def arrows(crate: Path) -> dict[str, set[str]]:
    """From module to module of a crate's top level."""
    source = crate / "src"
    modules = {path.stem if path.suffix else path.name for path in source.iterdir()}
    found: dict[str, set[str]] = defaultdict(set)
    for path in source.rglob("*.rs"):
        module = path.relative_to(source).parts[0].removesuffix(".rs")
        text = COMMENT.sub("", path.read_text())
        names = {name for tree in USE.findall(text) for name in first_names(tree)}
        names |= set(PATH.findall(USE.sub("", text)))
        found[module] |= (names & modules) - {module}
    return found


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Modules that lead back to themselves, those of one circle together."""
    reach = {module: set(known) for module, known in graph.items()}
    for _ in reach:
        for known in reach.values():
            known |= {far for near in known for far in reach.get(near, ())}
    in_circle = [module for module, known in reach.items() if module in known]
    return {
        frozenset(other for other in in_circle if other in reach[it] and it in reach[other])
        for it in in_circle
    }


def test_the_picture_is_of_these_crates():
    assert set(allowed()) == set(CRATES)


@pytest.mark.parametrize("name", sorted(CRATES))
def test_a_crate_depends_on_what_the_picture_says(name: str):
    assert depended_on(CRATES[name]) == allowed()[name]


@pytest.mark.parametrize("name", sorted(CRATES))
def test_modules_of_a_crate_have_no_circles(name: str):
    assert circles(arrows(CRATES[name])) == CIRCLES.get(name, set())


def test_nothing_knows_the_composition_but_composers():
    known = arrows(CRATES["cli"])
    assert {module for module, names in known.items() if names & COMPOSITION} <= COMPOSERS


def test_nobody_counts_in_anothers_metrics():
    owners = {}
    for name in ("signal", "node", "outputs", "scatter"):
        source = CRATES[name] / "src"
        for path in source.rglob("*metrics.rs"):
            component = path.relative_to(source).parts[0]
            found = re.findall(r"^pub struct (\w+Metrics)\b", path.read_text(), re.MULTILINE)
            owners |= dict.fromkeys(found, (name, component))
    strangers = set()
    for name in ("signal", "node", "outputs", "scatter"):
        source = CRATES[name] / "src"
        for path in source.rglob("*.rs"):
            own = (name, path.relative_to(source).parts[0])
            used = set(re.findall(r"\b\w+Metrics\b", TESTS.sub("", path.read_text()))) & set(owners)
            strangers |= {(own, metrics) for metrics in used if owners[metrics] != own}
    # A loop counts for what it looks at.
    assert {metrics for own, metrics in strangers} == {"RoleMetrics", "SourceMetrics", "UpdateMetrics"}
    assert {own for own, _ in strangers} == {("node", "control_loop")}


def test_no_crate_has_over_10_000_lines_without_its_tests():
    sizes = {
        name: sum(len(TESTS.sub("", path.read_text()).splitlines()) for path in (crate / "src").rglob("*.rs"))
        for name, crate in CRATES.items()
    }
    assert not {name: lines for name, lines in sizes.items() if lines > 10_000}


def test_nothing_imports_a_test_file():
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = re.compile(r"^(?:from|import) \S*\.test_\w+", re.MULTILINE)
    users = {name for name in listed.stdout.split() if (ROOT / name).exists()}
    assert not {name for name in users if imported.search((ROOT / name).read_text())}


def test_a_circle_is_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
    assert circles(graph) == {frozenset("abc")}


def paths() -> list[str]:
    told = re.findall(r"`([^`\s]+)`", (ROOT / "ARCHITECTURE.md").read_text())
    roots = {path.name for path in ROOT.iterdir()}
    return [
        path
        for path in told
        if "/" in path and path.split("/")[0] in roots and not re.search(r"[{*<:]", path)
    ]


def test_what_the_map_names_is_there():
    assert not [path for path in paths() if not (ROOT / path).exists()]
