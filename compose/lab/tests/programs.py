"""What tests of the lab start, and what is left of it."""

import time
from pathlib import Path

import pytest

from compose.lab import envoy, machine
from compose.lab.errors import LabError


def _built() -> bool:
    try:
        return bool(
            machine.binary("stocks")
            and machine.binary("plimsoll")
            and machine.k6()
            and machine.haproxy()
            and machine.envoy()
            and envoy.module()
            and machine.postgres("postgres")
        )
    except LabError:
        return False


needs_programs = pytest.mark.skipif(not _built(), reason="needs `make tools build`")


def marked(mark: str) -> list[tuple[int, str]]:
    """Processes that carry `mark` in their environment: the driver's whole family."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"LAB_TEST={mark}\0".encode() in (path / "environ").read_bytes():
                found.append((int(path.name), (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
        except OSError:
            continue
    return found


def until(condition, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
