"""Agents that are away or slow: the last good state serves on, and when it is old, the fallback policy."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from envoy_site import Site
from fake_agent import FakeAgent, Reply

from tests.harness.envoy import Envoy
from tests.harness.eventually import eventually

OBSERVE, RING = "/v1/observe", "/v1/ring"
REQUESTS = 10
DECIDED, UNDECIDED = (REQUESTS, 0, 0), (0, 0, REQUESTS)


def ask(envoy: Envoy) -> tuple[float, ...]:
    """How requests were decided, none of which may fail."""
    before = envoy.counts()
    for number in range(REQUESTS):
        assert envoy.get(f"/stock/S{number}")[0] == 200
    return envoy.counted(before, REQUESTS)


@contextmanager
def away(site: Site, agent: FakeAgent) -> Iterator[None]:
    """Nobody listens where the agent did."""
    agent.stop()
    yield
    agent.start()


@pytest.fixture(scope="module")
def envoy(fake_site: tuple[Site, FakeAgent]) -> Envoy:
    """Started while the agent was away."""
    site, agent = fake_site
    with away(site, agent):
        envoy = site.envoy(concurrency=2)
        assert ask(envoy) == UNDECIDED
        envoy.wait_said("shares: ")
    eventually("decisions", lambda: ask(envoy) == DECIDED, 30)
    return envoy


def test_an_agent_goes_for_long_and_comes_back(fake_site, envoy):
    site, agent = fake_site
    with away(site, agent):
        assert ask(envoy) == DECIDED
        eventually("old news", lambda: ask(envoy) == UNDECIDED)
        assert {node for node, _ in site.nodes.seen[-5 * REQUESTS :]} == {"node1", "node2"}
    eventually("decisions", lambda: ask(envoy) == DECIDED, 30)


@pytest.mark.parametrize(
    "reply", [Reply(seconds=5), Reply(b'{"problem": "Redis: away"}', 503)], ids=["slow", "without Redis"]
)
def test_an_agent_that_does_not_help(fake_site, envoy, reply):
    _, agent = fake_site
    agent.replies[OBSERVE] = agent.replies[RING] = lambda asked: reply
    assert ask(envoy) == DECIDED
    eventually("old news", lambda: ask(envoy) == UNDECIDED)
    agent.replies.clear()
    eventually("decisions", lambda: ask(envoy) == DECIDED, 30)


def test_an_agent_that_is_behind(fake_site, envoy):
    """Its ring is not taken while others have a newer one, but when that one is nowhere any more."""
    _, agent = fake_site
    agent.version += 10
    newest = agent.version
    eventually("the newest ring", lambda: envoy.stats()["proxy_ring_version"] == newest)

    def behind(asked: dict[str, str]) -> Reply:
        agent.version = newest - 5
        try:
            return agent.truth(RING, asked)
        finally:
            agent.version = newest

    agent.replies[RING] = behind
    said = f"ring: version {newest - 5} after version {newest}: an agent is behind"
    envoy.wait_said(said)
    before = agent.answered[f"{OBSERVE} truth"]
    eventually("exchanges for over a lease", lambda: agent.answered[f"{OBSERVE} truth"] > before + 20)
    assert envoy.stats()["proxy_ring_version"] == newest
    assert ask(envoy) == DECIDED
    agent.replies.clear()
    agent.version = newest - 5
    eventually("the ring that all have", lambda: envoy.stats()["proxy_ring_version"] == newest - 5, 30)
    assert ask(envoy) == DECIDED


def test_a_ring_that_an_agent_does_not_tell_of(fake_site, envoy):
    """An agent that is asked to wait and knows nothing new is not waited for, when others know better."""
    _, agent = fake_site
    asked = []

    def silent(question: dict[str, str]) -> Reply:
        asked.append(question)
        return Reply(seconds=20, status=304)

    agent.replies[RING] = silent
    agent.version += 1
    eventually("several questions", lambda: len(asked) >= 3)
    agent.replies.clear()
    eventually("the newest ring", lambda: envoy.stats()["proxy_ring_version"] == agent.version)


def test_addresses_that_envoy_does_not_have(fake_site, envoy):
    """The fallback policy takes those requests, at the nodes that there are."""
    _, agent = fake_site
    known = dict(agent.addresses)
    agent.addresses |= dict.fromkeys(known, "192.0.2.1:80")
    before = agent.answered[f"{OBSERVE} truth"]
    eventually("two answers", lambda: agent.answered[f"{OBSERVE} truth"] > before + 2)
    assert ask(envoy) == DECIDED
    agent.addresses |= known
    eventually("nothing in flight", lambda: envoy.stats()["in_flight_requests"] == 0)


def test_redis_goes_and_comes_back(site, own_redis):
    """Behind real agents, which answer 503 meanwhile."""
    envoy = site.envoy()
    site.wait_in_force(envoy)
    own_redis.kill()
    assert ask(envoy) == DECIDED
    eventually("old news", lambda: ask(envoy) == UNDECIDED)
    assert 'shares: an agent answers 503: {"problem":"Redis: ' in envoy.said()
    own_redis.start().load()
    site.wait_ring()
    eventually("decisions", lambda: ask(envoy) == DECIDED, 30)
