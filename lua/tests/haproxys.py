"""The HAProxys that tests run: the machine's, and those of scripts/install-haproxys."""

import platform

import pytest

from compose.lab import machine
from compose.lab.topology import ROOT

# By where they are from: Debian 12, PyPI, Debian 13, and Debian testing, whose version moves.
HAPROXYS = ("machine", "2.8", "3.0", "testing")


@pytest.fixture(params=HAPROXYS)
def haproxy(request: pytest.FixtureRequest) -> str:
    """Each of them."""
    if request.param == "machine":
        return machine.haproxy()
    if platform.machine() != "x86_64":
        pytest.skip("scripts/install-haproxys has HAProxys for x86_64 only")
    directory = ROOT / ".tools" / f"haproxy-{request.param}"
    if (directory / "absent").exists():
        pytest.skip((directory / "absent").read_text().strip())
    program = directory / "haproxy"
    assert program.exists(), f"{program} is missing; run `make tools`"
    return str(program)
