"""`plimsoll adopt` as an operator runs it."""

import subprocess
from pathlib import Path

from tests.harness import programs

HISTOGRAM = ["--metrics", "http://127.0.0.1:8080/metrics", "--histogram", "http_request_duration_seconds"]


def adopt(file: Path, *words: str, fails: bool = False, program: str | None = None, **other) -> str:
    """What it says; by default for backend or cluster `app` and 1 s."""
    proxy, known = "haproxy", ["--backend", "app", "--sla", "1s"]
    if file.suffix == ".yaml":
        proxy, known = "envoy", ["--cluster", "app", "--sla", "1s", *HISTOGRAM]
    if {"--undo", "--backend", "--cluster"} & set(words):
        known = []
    check = [f"--{proxy}", program] if program and "--no-check" not in words else []
    command = [programs.agent(), "adopt", str(file), *known, *check, *words]
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **other
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout
