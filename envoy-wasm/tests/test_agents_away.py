"""Agents that are away or slow: the last good state applies, and the fallback policy once that is stale."""

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
    """Sends requests, none of which may fail, and counts how they were decided."""
    before = envoy.counts()
    for number in range(REQUESTS):
        assert envoy.get(f"/stock/S{number}")[0] == 200
    return envoy.counted(before, REQUESTS)


@contextmanager
def away(site: Site, agent: FakeAgent) -> Iterator[None]:
    """Closes the agent's port for the duration of the block."""
    agent.stop()
    yield
    agent.start()


@pytest.fixture(scope="module")
def envoy(fake_site: tuple[Site, FakeAgent]) -> Envoy:
    """An Envoy that was started while the agent was away."""
    site, agent = fake_site
    with away(site, agent):
        envoy = site.envoy(concurrency=2)
        assert ask(envoy) == UNDECIDED
        envoy.wait_said("shares: ")
    eventually("decisions", lambda: ask(envoy) == DECIDED, 30)
    return envoy


def test_requests_fall_back_while_the_agent_is_away_for_long(fake_site, envoy):
    site, agent = fake_site
    with away(site, agent):
        assert ask(envoy) == DECIDED
        eventually("old news", lambda: ask(envoy) == UNDECIDED)
        assert {node for node, _ in site.nodes.seen[-5 * REQUESTS :]} == {"node1", "node2"}
    eventually("decisions", lambda: ask(envoy) == DECIDED, 30)


@pytest.mark.parametrize(
    "reply", [Reply(seconds=5), Reply(b'{"problem": "Redis: away"}', 503)], ids=["slow", "without Redis"]
)
def test_requests_fall_back_while_the_agent_is_slow_or_without_redis(fake_site, envoy, reply):
    _, agent = fake_site
    agent.replies[OBSERVE] = agent.replies[RING] = lambda asked: reply
    assert ask(envoy) == DECIDED
    eventually("old news", lambda: ask(envoy) == UNDECIDED)
    agent.replies.clear()
    eventually("decisions", lambda: ask(envoy) == DECIDED, 30)


def test_an_older_ring_is_refused_unless_all_agents_have_it(fake_site, envoy):
    """The older ring is refused while another agent has a newer one, and taken once none has."""
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


def test_a_new_ring_arrives_though_one_agent_does_not_answer(fake_site, envoy):
    """A long poll at an agent with nothing new is given up once shares show a newer ring."""
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


def test_addresses_unknown_to_envoy_are_left_to_the_fallback_policy(fake_site, envoy):
    """It sends those requests to the nodes that Envoy has."""
    _, agent = fake_site
    known = dict(agent.addresses)
    agent.addresses |= dict.fromkeys(known, "192.0.2.1:80")
    before = agent.answered[f"{OBSERVE} truth"]
    eventually("two answers", lambda: agent.answered[f"{OBSERVE} truth"] > before + 2)
    assert ask(envoy) == DECIDED
    agent.addresses |= known
    eventually("nothing in flight", lambda: envoy.stats()["in_flight_requests"] == 0)


def test_requests_fall_back_while_redis_is_away(site, own_redis):
    """With real agents, which answer 503 meanwhile."""
    envoy = site.envoy()
    site.wait_in_force(envoy)
    own_redis.kill()
    assert ask(envoy) == DECIDED
    eventually("old news", lambda: ask(envoy) == UNDECIDED)
    assert 'shares: an agent answers 503: {"problem":"Redis: ' in envoy.said()
    own_redis.start().load()
    site.wait_ring()
    eventually("decisions", lambda: ask(envoy) == DECIDED, 30)
