"""Fixtures that tests of all areas may ask for."""

import platform
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.harness import ROOT, programs
from tests.harness.functions import Cluster, Placement
from tests.harness.haproxy_placement import HAProxySite
from tests.harness.placement import runner
from tests.harness.redis import Redis

# By where they are from: the first on the PATH, which is Debian 12's or what `make matrix` puts there; PyPI,
# Debian 13, and Debian testing, whose version moves.
HAPROXYS = (
    "machine",
    *(pytest.param(name, marks=pytest.mark.other_version) for name in ("2.8", "3.0", "testing")),
)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Stack of context managers that the test leaves at its end."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(params=HAPROXYS)
def haproxy(request: pytest.FixtureRequest) -> str:
    """Each of the HAProxys: the machine's, and those of scripts/install-versions."""
    if request.param == "machine":
        return programs.haproxy()
    if platform.machine() != "x86_64":
        pytest.skip("scripts/install-versions has HAProxys for x86_64 only")
    directory = ROOT / ".tools" / f"haproxy-{request.param}"
    if (directory / "absent").exists():
        pytest.skip((directory / "absent").read_text().strip())
    program = directory / "bin" / "haproxy"
    assert program.exists(), f"{program} is missing; run `make tools`"
    return str(program)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """One Redis of all tests that leave it as it is, but for what is in it."""
    with ExitStack() as stack:
        yield Redis(stack, tmp_path_factory.mktemp("redis")).start().load()


@pytest.fixture
def cluster(server: Redis) -> Cluster:
    server.client.flushdb()
    return Cluster(server.client)


@pytest.fixture
def placement(server: Redis) -> Placement:
    server.client.flushdb()
    return Placement(server.client)


@pytest.fixture
def own_redis(stack: ExitStack, tmp_path) -> Redis:
    """Not started yet; a test may kill it."""
    return Redis(stack, tmp_path)


@pytest.fixture
def run_site(tmp_path, own_redis: Redis) -> Callable[..., None]:
    """Runs a test's coroutine with a site for placement by HAProxy, which it starts."""
    return runner(HAProxySite, tmp_path, own_redis.start().load())
