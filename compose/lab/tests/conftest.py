"""A small lab for tests of the whole."""

import os
import subprocess
import sys

import pytest

from compose.lab.topology import ROOT
from tests.harness.process import MARK

LAB = [sys.executable, "-m", "compose.lab"]
SMALL = ["--quick", "--nodes", "2", "--clients", "20", "--duration", "16"]


@pytest.fixture
def lab(tmp_path):
    """Starts a small lab; ends it by force whatever the test did."""
    mark = f"{os.getpid()}-{tmp_path.name}"
    started = []

    def start(*arguments: str) -> tuple[subprocess.Popen, str]:
        environment = os.environ | {MARK: mark, "TMPDIR": str(tmp_path)}
        command = [*LAB, "run", *SMALL, "--results", str(tmp_path / "results"), *arguments]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        started.append(process)
        return process, mark

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
