"""Redis with two nodes, and one whose clock is set."""

import pytest
from hypothesis import Phase, settings

from lua.tests.balancer import report
from lua.tests.clock import Clock
from tests.harness.functions import Placement
from tests.harness.redis import Redis

# The same examples each time in `make test`, new ones in `make properties`.
PHASES = [phase for phase in Phase if phase is not Phase.explain]
settings.register_profile("quick", derandomize=True, max_examples=60, stateful_step_count=40, deadline=None)
settings.register_profile(
    "long", max_examples=2000, stateful_step_count=60, deadline=None, print_blob=True, phases=PHASES
)
settings.load_profile("quick")


@pytest.fixture
def one(own_redis: Redis) -> Redis:
    """With the functions and two nodes; a test may kill it."""
    report(own_redis.start().load())
    return own_redis


@pytest.fixture
def set_redis(tmp_path, own_redis):
    """A Redis with the libraries, and its clock."""
    clock = Clock(tmp_path, own_redis)
    own_redis.start().load()
    return own_redis.client, clock


@pytest.fixture
def placement_of_set_clock(set_redis):
    """Placement in a Redis whose clock is set, and what sets it, by so many seconds."""
    server, clock = set_redis
    return Placement(server), clock.step
