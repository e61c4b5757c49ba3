"""Writes at the primary and reads at what is fresh, with the proxies' examples and real PostgreSQL."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from compose.lab import failover
from compose.lab.tests.replicated import Replicated, Told, ask
from tests.harness import programs

pytestmark = programs.needs(programs.stocks, programs.agent)


@pytest.fixture
def site(request, tmp_path: Path, monkeypatch):
    # The agents' defaults: a busy machine is slower than a lab's promises.
    monkeypatch.setattr(failover, "PERIOD", "1s")
    monkeypatch.setattr(failover, "MAX_LAG_S", 10.0)
    with ExitStack() as stack:
        yield Replicated(tmp_path, stack, request.param)


@pytest.mark.parametrize("site", ["envoy", "haproxy"], indirect=True)
def test_writes_follow_the_primary_and_reads_never_stop(site: Replicated) -> None:
    (primary, standby), (old, new) = site.databases, ("node1", "node2")
    writes, reads = site.client("POST", "/entry/w{}"), site.client("GET", "/beat")
    site.eventually("writes", lambda: Told(200, old) in writes.told)

    standby.member.sql("SELECT pg_wal_replay_pause()")
    site.eventually("a stale standby", lambda: not failover.takes(site.ports, "reads")[1])
    stale = len(reads.told)
    # HAProxy may go by one node for as many requests as that has weight.
    site.eventually("no reads there", lambda: reads.latest(150, stale) == {Told(200, old)})
    standby.member.sql("SELECT pg_wal_replay_resume()")
    site.eventually("a fresh standby", lambda: reads.latest(150) == {Told(200, old), Told(200, new)})
    assert new not in nodes(writes.told)

    killed = len(writes.told)
    primary.kill()
    # At once, and by the proxy itself.
    itself = Told(503, reason="down")
    site.eventually("no primary", lambda: writes.latest(10, killed) == {itself})
    promoted = len(writes.told)
    site.lock.holder = new
    assert standby.member.sql("SELECT pg_promote()").strip() == "t"
    site.eventually("a new primary", lambda: Told(200, new) in writes.told)
    resumed = writes.told.index(Told(200, new))
    assert resumed >= promoted and new not in nodes(writes.told[:resumed])

    # The old one comes back as if nothing had been, but has not got the lock.
    returned = len(writes.told)
    primary.start()
    lost = "primary without the lock"
    site.eventually("its agent has seen it", lambda: lost in site.log(f"{old}-agent"))
    assert ask(site.ports.nodes[0], "POST", "/entry/deposed") == Told(200, old)
    more = len(writes.told)
    site.eventually("more writes", lambda: writes.latest(50, more) == {Told(200, new)})
    assert old not in nodes(writes.told[returned:])

    assert {told.status for told in reads.told} == {200}


def nodes(told: list[Told]) -> set[str]:
    return {one.node for one in told}
