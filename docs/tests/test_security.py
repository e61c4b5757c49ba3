"""SECURITY.md's threat model names tests that are there."""

import re

from tests.harness import ROOT

NAMED = re.compile(r"`([\w/.-]+\.(?:py|rs))::(\w+)`")
DEFINED = r"^\s*(?:fn|def) {name}\("


def model() -> str:
    page = (ROOT / "SECURITY.md").read_text()
    return page.split("\n## Threat model\n", 1)[1].split("\n## ", 1)[0]


def is_test(file: str, name: str) -> bool:
    path = ROOT / file
    if not path.exists():
        return False
    text = path.read_text()
    found = re.search(DEFINED.format(name=name), text, re.MULTILINE)
    if found is None:
        return False
    before = text[: found.start()].rstrip().rsplit("\n", 1)[-1].strip()
    return before == "#[test]" if file.endswith(".rs") else name.startswith("test_")


def test_every_line_of_the_threat_model_names_tests_that_are_there():
    lines = [line for line in model().splitlines() if line.startswith("| ")][1:]
    assert lines
    for line in lines:
        tests = NAMED.findall(line.rsplit("|", 2)[1])
        assert tests, f"no test: {line}"
        assert not [f"{file}::{name}" for file, name in tests if not is_test(file, name)]


def test_a_name_that_is_no_test_is_found_out():
    here = "docs/tests/test_security.py"
    assert is_test(here, "test_a_name_that_is_no_test_is_found_out")
    assert not is_test(here, "model")
    assert not is_test("agent/cli/tests/end_to_end/tls.rs", "guarded")
    assert not is_test("agent/cli/tests/end_to_end/gone.rs", "guarded")
