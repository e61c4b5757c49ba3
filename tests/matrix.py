"""`make matrix`: the tests about a program, and a quick lab, on each of its versions.

python -m tests.matrix [NAME...]. Tests, lab and agent take the first program of a name on the PATH, so a
version is chosen by PATH. Reports and logs are in target/matrix."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from loadtests.report.numbers import show
from tests.harness import ROOT

OUTPUT = ROOT / "target" / "matrix"
CARGO_TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
# As HAProxy, Envoy, Redis and PostgreSQL say theirs.
VERSION = re.compile(r"(?:version |/|v=|PostgreSQL\) )(\d+\.\d+(?:\.\d+)?)")
HEADINGS = ("version", "of", "passed", "failed", "skipped", "lab: policy, timely of ideal, p99")


@dataclass(frozen=True)
class Kind:
    """What is run on each version of a program."""

    versions: tuple[str, ...]
    program: str
    # Paths for pytest.
    python: tuple[str, ...]
    # A filter of the agent's end-to-end tests; empty for none.
    rust: str
    # The lab's options; empty for none.
    lab: tuple[str, ...] = ()


REDIS = Kind(
    ("redis-7.0", "redis-8.0", "valkey-8.1", "valkey-testing"),
    "redis-server",
    (
        "lua/tests/test_functions.py",
        "lua/tests/test_functions_hostile.py",
        "lua/tests/test_placement_functions.py",
        "lua/tests/test_placement_functions_hostile.py",
        "lua/tests/test_redis_faults.py",
        "tests/conformance",
    ),
    "test(/^(redis|placement)/)",
)
KINDS = (
    Kind(
        ("haproxy-2.6", "haproxy-2.8", "haproxy-3.0", "haproxy-testing", "haproxy-experimental"),
        "haproxy",
        (
            "haproxy/tests",
            "lua/tests",
            "tests/end_to_end/haproxy",
            "tests/end_to_end/doctor/test_haproxy.py",
            "agent/cli/tests/test_adopt.py",
        ),
        "test(/^(agent_check_haproxy|source_haproxy_log)/)",
        ("--proxy", "haproxy", "--policies", "rr fc-prop lua-fc-hash"),
    ),
    Kind(
        ("envoy-1.36", "envoy-1.37", "envoy-1.38", "envoy-1.39", "envoy-1.40"),
        "envoy",
        ("tests/end_to_end/envoy", "envoy-wasm/tests", "envoy-module/tests"),
        "",
        ("--proxy", "envoy", "--policies", "envoy-rr envoy-eds-fc-prop wasm-fc-hash"),
    ),
    REDIS,
    Kind(
        ("postgresql-15", "postgresql-17"),
        "postgres",
        ("compose/lab/tests/test_master_failover.py",),
        "test(/^(jobs_postgresql|role_postgresql|partition_(kept|load|map|query))::/)",
    ),
)


@dataclass
class Result:
    name: str
    version: str = "absent"
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    lab: str = ""
    problems: list[str] = field(default_factory=list)

    def read(self, report: Path) -> None:
        """Counts the tests of a JUnit report."""
        for case in ElementTree.parse(report).iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed += 1
                self.problems.append(f"{case.get('classname')}::{case.get('name')}")
            elif case.find("skipped") is not None:
                self.skipped += 1
            else:
                self.passed += 1

    def cells(self) -> tuple[str, ...]:
        return (self.name, self.version, *map(str, (self.passed, self.failed, self.skipped)), self.lab)


class Run:
    """One version."""

    def __init__(self, kind: Kind, name: str) -> None:
        self.kind, self.result = kind, Result(name)
        self._logs = OUTPUT / name
        self._logs.mkdir(parents=True, exist_ok=True)
        # The newest Envoy is that of requirements.txt.
        local = ROOT / ".tools" / name
        programs = ROOT / ".venv" / "bin" if name == "envoy-1.40" else local / "bin"
        path = [str(programs), os.environ["PATH"], str(ROOT / ".venv" / "bin")]
        self._environment = os.environ | {"PATH": ":".join(path)}
        if programs.parent == local:
            subprocess.run([ROOT / "scripts" / "install-versions", name], check=True)
        self.is_absent = not (programs / kind.program).exists()
        if self.is_absent:
            return
        command = [programs / kind.program, "-v" if kind.program == "haproxy" else "--version"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self.result.version = VERSION.search(said)[1]
        number = name.rpartition("-")[2]
        if number[0].isdigit() and not self.result.version.startswith(number):
            raise SystemExit(f"matrix: {name} is {self.result.version}")

    def _say(self, what: str) -> None:
        print(f"{self.result.name} ({self.result.version}): {what}", flush=True)

    def _do(self, what: str, command: Iterable[str]) -> bool:
        log = self._logs / f"{what}.log"
        self._say(f"{what}, log {log.relative_to(ROOT)}")
        with log.open("w") as output:
            done = subprocess.run(
                list(command), cwd=ROOT, env=self._environment, stdout=output, stderr=output, check=False
            )
        return done.returncode == 0

    def _test(self, what: str, command: list[str], report: Path) -> None:
        report.unlink(missing_ok=True)
        is_good, before = self._do(what, command), self.result.failed
        if report.exists():
            self.result.read(report)
        # Such as tests that cannot be collected.
        if not is_good and self.result.failed == before:
            self.result.failed += 1
            self.result.problems.append(f"{what} ended with an error")

    def tests(self) -> None:
        report = self._logs / "pytest.xml"
        with tempfile.TemporaryDirectory(prefix="pt-", dir="/tmp") as directory:
            words = [
                sys.executable,
                "-m",
                "pytest",
                "-n",
                "2",
                "--dist",
                "loadfile",
                "-m",
                "not other_version",
            ]
            words += [f"--basetemp={directory}/t", f"--junitxml={report}", *self.kind.python]
            self._test("pytest", words, report)
        if self.kind.rust:
            words = ["cargo", "nextest", "run", "--locked", "-p", "plimsoll", "--test", "end_to_end"]
            report = CARGO_TARGET / "nextest" / "default" / "junit.xml"
            self._test("nextest", [*words, "-E", self.kind.rust], report)

    def lab(self) -> None:
        if not self.kind.lab:
            return
        results = self._logs / "lab"
        words = [sys.executable, "-m", "compose.lab", "run", "--quick", "--results", str(results)]
        if not self._do("lab", [*words, *self.kind.lab]):
            self.result.failed += 1
            self.result.problems.append("the lab ended with an error")
            return
        summary = json.loads((results / "latest" / "summary.json").read_text())
        self.result.lab = "; ".join(
            f"{run['policy']} {show(run['timely_of_ideal'], '.0%')} {show(run['p99_delay_s'], '.2f')} s"
            + " (generator limited)" * run["generator_limited"]
            for run in summary["runs"]
        )


def chosen(names: list[str]) -> list[tuple[Kind, str]]:
    known = {version: kind for kind in KINDS for version in kind.versions}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"matrix: {', '.join(unknown)}: must be of {', '.join(known)}")
    return [(known[name], name) for name in names or known]


def main() -> None:
    results = []
    for kind, name in chosen(sys.argv[1:]):
        run = Run(kind, name)
        results.append(run.result)
        if not run.is_absent:
            run.tests()
            run.lab()
    rows = [HEADINGS, ("---",) * len(HEADINGS), *(result.cells() for result in results)]
    print("\n".join(f"| {' | '.join(row)} |" for row in rows))
    for result in results:
        for problem in result.problems:
            print(f"failed on {result.name}: {problem}")
    # Nothing that could be had is no success.
    sys.exit(any(result.failed for result in results) or not any(result.passed for result in results))


if __name__ == "__main__":
    main()
