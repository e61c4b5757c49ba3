"""Fixtures: sites of real programs, one a test or one a file."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from envoy_site import Site
from fake_agent import FakeAgent

from lua.tests.conftest import Redis


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def own_redis(tmp_path) -> Iterator[Redis]:
    program = Redis(tmp_path)
    yield program
    program.kill()


@pytest.fixture
def bounds() -> tuple[int, ...]:
    """Of the nodes; tests may have others."""
    return (3000, 1000)


@pytest.fixture
def site(tmp_path, stack, own_redis, bounds) -> Site:
    own_redis.start()
    site = Site(tmp_path, stack, own_redis, bounds)
    site.start()
    return site


@pytest.fixture(scope="module")
def shared_bounds() -> tuple[int, ...]:
    """The same of a file's site."""
    return (3000, 1000)


@pytest.fixture(scope="module")
def shared(tmp_path_factory, shared_bounds) -> Iterator[Site]:
    """One site for all tests of a file; each has Envoys of its own name."""
    directory = tmp_path_factory.mktemp("site")
    with ExitStack() as stack:
        redis = Redis(directory)
        stack.callback(redis.kill)
        redis.start()
        site = Site(directory, stack, redis, shared_bounds)
        site.start()
        yield site


@pytest.fixture(scope="module")
def fake_site(tmp_path_factory) -> Iterator[tuple[Site, FakeAgent]]:
    """Nodes, and an agent that answers as a test likes."""
    directory = tmp_path_factory.mktemp("fake")
    with ExitStack() as stack:
        # Nobody starts it.
        site = Site(directory, stack, Redis(directory), (1, 1))
        site.agents = site.agents[:1]
        addresses = {f"node{i + 1}": f"127.0.0.1:{port}" for i, port in enumerate(site.nodes.ports)}
        agent = FakeAgent(site.agents[0], addresses)
        stack.callback(agent.stop)
        yield site, agent
