"""Invalid answers of an agent are logged, the last good state stays in force, and no request is refused."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from envoy_site import Site
from fake_agent import FakeAgent, Reply

from tests.harness.envoy import Envoy
from tests.harness.eventually import eventually

OBSERVE, RING = "/v1/observe", "/v1/ring"
REQUESTS = 3


@pytest.fixture(scope="module")
def envoy(fake_site: tuple[Site, FakeAgent]) -> Envoy:
    site, agent = fake_site
    config = site.config(age_limit=3600.0, lease=60.0)
    agents = next(c for c in config["static_resources"]["clusters"] if c["name"] == "plimsoll_agents")
    del agents["outlier_detection"]
    envoy = site.envoy(config=config)
    tells_truth(agent, envoy)
    eventually("decisions", lambda: decided(envoy) == (REQUESTS, 0, 0))
    return envoy


@pytest.fixture
def agent(fake_site: tuple[Site, FakeAgent], envoy: Envoy) -> Iterator[FakeAgent]:
    """The agent of a test; afterwards it answers correctly, and Envoy must act on that."""
    _, agent = fake_site
    yield agent
    tells_truth(agent, envoy)
    assert "panicked" not in envoy.said()


def tells_truth(agent: FakeAgent, envoy: Envoy) -> None:
    agent.replies.clear()
    agent.version += 1
    eventually("the newest ring", lambda: envoy.stats().get("proxy_ring_version") == agent.version)
    before = agent.answered[f"{OBSERVE} truth"]
    eventually("a true answer", lambda: agent.answered[f"{OBSERVE} truth"] > before)


def decided(envoy: Envoy) -> tuple[float, ...]:
    """Sends requests, all of which a node must answer, and counts how they were decided."""
    before = envoy.counts()
    for number in range(REQUESTS):
        assert envoy.get(f"/stock/S{number}")[0] == 200
    return envoy.counted(before, REQUESTS)


def edited(path: str, change: Callable[[dict[str, Any]], Any]) -> Callable[[FakeAgent], Any]:
    """The correct answer with a change."""

    def lie(agent: FakeAgent, asked: dict[str, Any]) -> Reply:
        truth = agent.table() if path == RING else agent.shares(asked)
        change(truth)
        text = json.dumps(truth)
        for name, number in (("NAN", "NaN"), ("HUGE", "1e400"), ("DEEP", "[" * 100_000)):
            text = text.replace(f'"{name}"', number)
        return Reply(text.encode())

    return lie


def always(reply: Reply) -> Callable[[FakeAgent, dict[str, Any]], Reply]:
    return lambda agent, asked: reply


BOTH = {
    "garbage": (always(Reply(b"\x00\xff<html>")), "expected value"),
    "nothing": (always(Reply(b"")), "EOF"),
    "cut short": (always(Reply(b'{"version": 1')), "EOF"),
    "a list": (always(Reply(b"[[],[]]")), ""),
    "too deep": (always(Reply(b'{"version":' + b"[" * 100_000)), ""),
    "too large": (always(Reply(b" " * (5 << 20))), "more than 4194304 bytes"),
    "error": (always(Reply(b'{"problem": "Redis: away"}', 503)), "answers 503: {"),
    "control characters": (always(Reply(b"a\r\n\x1b[31mb", 500)), "answers 500: a???[31mb"),
    "redirect": (always(Reply(b"", 302, {"location": "http://127.0.0.1:1/"})), "answers 302"),
    "no content": (always(Reply(b"", 204)), "answers 204"),
    "closed at once": (always(Reply(status=0)), "answers 503"),
    # Envoy ends the call at 32 MiB.
    "without end": (always(Reply(b"{", length=1 << 40, endless=True)), "breaks off"),
    "closed amid the body": (always(Reply(b'{"version": 1', length=1000)), "breaks off"),
}  # fmt: skip


def node(**change: Any) -> Callable[[dict[str, Any]], None]:
    return lambda answer: answer["nodes"]["node1"].update(change)


def rename(answer: dict[str, Any], name: str) -> None:
    answer["nodes"][name] = answer["nodes"].pop("node1")


def grant(value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda answer: [it["granted"].update(node1=value) for it in answer["dispatchers"].values()]


def many(answer: dict[str, Any]) -> None:
    answer["nodes"].update({f"n{number}": answer["nodes"]["node1"] for number in range(300)})


SHARES = {
    "not a number": (node(load="NAN"), "expected value"),
    "a number too large": (node(bound_jobs="HUGE"), "number out of range"),
    "a negative bound": (node(bound_jobs=-1), "nodes.node1: numbers must be within 0..1e15"),
    "a negative share": (grant(-5), "must be within 0..1e15"),
    "a huge share": (grant(1e300), "must be within 0..1e15"),
    "no share": (grant(None), ""),
    "a malformed name": (lambda answer: rename(answer, "node 1\r\n"), "nodes: malformed name"),
    "an empty name": (lambda answer: rename(answer, ""), "nodes: malformed name"),
    "a list of hosts": (node(address="127.0.0.1:1,127.0.0.1:2"), "nodes.node1.address: malformed"),
    "a header": (node(address="127.0.0.1:1\r\nx: y"), "nodes.node1.address: malformed"),
    "too many nodes": (many, "nodes: 302, maximum 255"),
    "version below zero": (lambda answer: answer.update(version=-1), "invalid value"),
    "version too large": (lambda answer: answer.update(version=1 << 70), "invalid type"),
    "no nodes": (lambda answer: answer.pop("nodes"), "missing field `nodes`"),
}


def ring(**change: Any) -> Callable[[dict[str, Any]], None]:
    return lambda table: table.update(version=table["version"] + 1, **change)


def delta(**change: Any) -> Callable[[dict[str, Any]], None]:
    def edit(table: dict[str, Any]) -> None:
        del table["owners"]
        ring(since=table["version"], **change)(table)

    return edit


RINGS = {
    "an unknown owner": (ring(owners=[0, 8, 7, 8]), "owner 7"),
    "an owner that is free": (ring(nodes=["node1", ""]), "owner 1 is no node"),
    "a node twice": (ring(nodes=["node1", "node1"]), "duplicate node1"),
    "too many slots of owners": (ring(owners=[0, 17]), "owners: more than slots"),
    "too few slots of owners": (ring(owners=[0, 15]), "owners: fewer than slots"),
    "odd owners": (ring(owners=[0]), "owners: an odd number"),
    "no slots": (ring(slots=0), "slots: 0 is not within"),
    "slots without end": (ring(slots=4_000_000_000, owners=[0, 4_000_000_000]), "slots: 4000000000 is not"),
    "a malformed name": (ring(nodes=["node1", "a b"]), "nodes: malformed name"),
    "too many nodes": (ring(nodes=[f"n{number}" for number in range(300)]), "nodes: 300, maximum 255"),
    "changes of another version": (delta(changes=[[0, 1, 1]], since=77), ""),
    "changes beyond the end": (delta(changes=[[15, 2, 1]]), "a slot beyond the table"),
    "changes to nobody known": (delta(changes=[[0, 1, 9]]), ""),
    "neither table nor changes": (ring(owners=None), "neither owners nor changes"),
}


def check(agent: FakeAgent, envoy: Envoy, path: str, lie: Callable[..., Reply], problem: str) -> None:
    known = len(envoy.log.read_bytes())
    agent.replies[path] = lambda asked: lie(agent, asked)
    purpose = "ring: " if path == RING else "shares: "
    said = lambda: envoy.log.read_bytes()[known:].decode(errors="replace")  # noqa: E731
    eventually(
        f"{purpose}{problem!r}",
        lambda: any(purpose in line and problem in line for line in said().splitlines()),
    )
    assert decided(envoy) == (REQUESTS, 0, 0)


@pytest.mark.parametrize("path", [OBSERVE, RING])
@pytest.mark.parametrize("what", BOTH)
def test_an_unreadable_answer_is_logged_and_ignored(envoy, agent, path, what):
    check(agent, envoy, path, *BOTH[what])


@pytest.mark.parametrize("what", SHARES)
def test_invalid_shares_are_logged_and_ignored(envoy, agent, what):
    change, problem = SHARES[what]
    check(agent, envoy, OBSERVE, edited(OBSERVE, change), problem)


@pytest.mark.parametrize("what", RINGS)
def test_an_invalid_ring_is_logged_and_ignored(envoy, agent, what):
    change, problem = RINGS[what]
    check(agent, envoy, RING, edited(RING, change), problem)
