"""The house: which crate may know which, and no circles within one (ARCHITECTURE.md)."""

import ast
import re
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.harness import ROOT

CRATES = {
    **{f.parent.name: f.parent for f in ROOT.glob("agent/*/Cargo.toml")},
    "envoy-abi": ROOT / "envoy-module" / "abi",
    "envoy-module": ROOT / "envoy-module",
    "envoy-policy": ROOT / "envoy-policy",
    "envoy-wasm": ROOT / "envoy-wasm",
    "fuzz-checks": ROOT / "fuzz" / "checks",
    "stocks": ROOT / "compose" / "stocks",
}
# What puts the others together.
COMPOSITION = {"config", "metrics"}
COMPOSERS = {"config", "metrics", "supervise", "reload", "check", "main", "gather_command"}
HARNESS = Path("tests/harness")
LAB_PROGRAMS = re.compile(r"compose\.lab\.(machine|errors|processes)\b")
# It runs programs under supervisord.
AS_THE_LAB = {Path("dashboards/tests/test_gathers.py")}
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
    names = {name.removeprefix("plimsoll-") for table in tables for name in table}
    return names & set(CRATES)


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
    assert circles(arrows(CRATES[name])) == set()


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


def sources(*patterns: str) -> list[Path]:
    """Files of the project, whether they are committed yet or not."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(name) for name in listed.stdout.split() if (ROOT / name).exists()]


@cache
def imports() -> dict[Path, set[str]]:
    """What each file of Python imports, by whole names: `from a import b` is a.b."""
    return {file: set(imported((ROOT / file).read_text())) for file in sources("*.py")}


def imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def area_of(name: str, files: set[Path]) -> Path | None:
    """The directory of tests that a module is in; None: it is in no such one."""
    words = name.split(".")
    # These are no packages: their tests know each other by their names alone.
    for area in (Path("envoy-module/tests"), Path("envoy-wasm/tests")):
        if area / f"{words[0]}.py" in files:
            return area
    if words[0] == "tests":
        return Path(*words[:2])
    return Path(*words[: words.index("tests") + 1]) if "tests" in words else None


def test_no_file_has_over_500_lines_without_its_tests():
    sizes = {
        path: len(TESTS.sub("", (ROOT / path).read_text()).splitlines())
        for path in sources("*.rs", "*.py", "*.lua", "*.js", "*.mjs")
    }
    assert not {path: lines for path, lines in sizes.items() if lines > 500}


def test_nothing_imports_a_test_file():
    assert not {file for file, names in imports().items() if any(".test_" in name for name in names)}


def test_an_areas_tests_are_known_to_no_other():
    found = imports()
    strangers = {
        (str(file), name)
        for file, names in found.items()
        for name in names
        for area in [area_of(name, set(found))]
        if area not in (None, HARNESS) and not file.is_relative_to(area)
    }
    assert not strangers


def test_the_harness_is_known_to_tests_and_benchmarks_alone():
    users = {file for file, names in imports().items() if any(name.startswith("tests.") for name in names)}
    own = ("test_", "bench")
    assert not {
        file for file in users if not any(part.startswith(own) or part == "tests" for part in file.parts)
    }


def test_programs_are_found_and_run_by_the_harness():
    """What the lab does with its own is not for others' tests."""
    users = {file for file, names in imports().items() if any(map(LAB_PROGRAMS.match, names))}
    others = {file for file in users if "tests" in file.parts and file.parts[0] != "compose"}
    assert {file for file in others if not file.is_relative_to(HARNESS)} <= AS_THE_LAB


def test_imports_of_other_areas_are_found():
    files = {Path("envoy-wasm/tests/http2.py")}
    assert set(imported("import a.b\nfrom c.tests import d")) == {"a.b", "c.tests.d"}
    assert area_of("c.tests.d", files) == Path("c/tests")
    assert area_of("tests.harness.redis", files) == HARNESS
    assert area_of("http2.connect", files) == Path("envoy-wasm/tests")
    assert area_of("compose.lab.run", files) is None


def test_a_circle_is_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
    assert circles(graph) == {frozenset("abc")}


# Made by a build or a run.
MADE = ("target/", "dist/", ".venv/", "loadtests/results/", "dashboards/generated", "dashboards/preview/out")


def paths(page: Path) -> list[str]:
    named = re.findall(r"`([^`\s]+)`", (ROOT / page).read_text())
    roots = {path.name for path in ROOT.iterdir()}
    return [
        path
        for path in named
        if "/" in path
        and path.split("/")[0] in roots
        and not path.startswith(MADE)
        and not re.search(r"[{*<:]", path)
    ]


# The changelog names what was there.
@pytest.mark.parametrize("page", [page for page in sources("*.md") if page.name != "CHANGELOG.md"], ids=str)
def test_paths_that_a_page_names_exist(page: Path):
    assert not [path for path in paths(page) if not (ROOT / path).exists()]
