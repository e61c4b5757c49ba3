"""Fixtures: sites of real programs, one per test or one per file."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from envoy_site import Site
from fake_agent import FakeAgent

from tests.harness.envoy_filter import FILTERS, KINDS, Filter, needs_envoy
from tests.harness.redis import Redis


@pytest.fixture(scope="module", params=FILTERS)
def filter_kind(request) -> Filter:
    """The build of the filter under test; files about a single build override this."""
    kind = KINDS[request.param]
    needs_envoy(kind.envoy(), kind.oldest)
    return kind


@pytest.fixture
def bounds() -> tuple[int, ...]:
    """Bounds of the nodes, in items; files may override them."""
    return (3000, 1000)


@pytest.fixture
def site(tmp_path, stack, own_redis, bounds, filter_kind) -> Site:
    own_redis.start().load()
    site = Site(tmp_path, stack, own_redis, bounds, filter_kind)
    site.start()
    return site


@pytest.fixture(scope="module")
def shared_bounds() -> tuple[int, ...]:
    """Bounds of the nodes of a file's shared site, in items."""
    return (3000, 1000)


@pytest.fixture(scope="module")
def module_stack() -> Iterator[ExitStack]:
    """Closes what a file's fixtures have opened, after its last test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def shared(tmp_path_factory, module_stack, shared_bounds, filter_kind) -> Site:
    """One site for all tests of a file; their Envoys differ by name."""
    directory = tmp_path_factory.mktemp("site")
    redis = Redis(module_stack, directory).start().load()
    site = Site(directory, module_stack, redis, shared_bounds, filter_kind)
    site.start()
    return site


@pytest.fixture(scope="module")
def fake_site(tmp_path_factory, module_stack, filter_kind) -> tuple[Site, FakeAgent]:
    """A site whose one agent is fake: its answers are up to the test."""
    directory = tmp_path_factory.mktemp("fake")
    # This Redis is never started.
    site = Site(directory, module_stack, Redis(module_stack, directory), (1, 1), filter_kind)
    site.agents = site.agents[:1]
    addresses = {f"node{i + 1}": f"127.0.0.1:{port}" for i, port in enumerate(site.nodes.ports)}
    agent = FakeAgent(site.agents[0], addresses)
    module_stack.callback(agent.stop)
    return site, agent
