"""An Envoy that is stopped for longer than its lease: the others have its shares when it resumes."""

import asyncio

import pytest
from envoy_site import Site

from tests.harness.eventually import until
from tests.harness.stopped import NODE, Pair, load

BOUND = 40


@pytest.fixture
def bounds() -> tuple[int, ...]:
    return (BOUND,)


def test_an_envoy_that_was_stopped_does_not_fill_shares_that_others_have(site: Site):
    # What was admitted is still there when the shares have gone elsewhere.
    site.nodes.seconds = 0.5
    settings = {"policy": "fc_prop", "lease": 2.0, "age_limit": 60.0}
    first, second = ((name, site.envoy(name=name, proxy=name, **settings)) for name in ("envoy1", "envoy2"))
    pair = Pair(site.cluster, BOUND, first, second)

    async def test() -> None:
        await pair.stop()
        async with load(pair.other[1]):
            await until("the other's share", lambda: pair.share(pair.other) == BOUND)
            assert pair.share(pair.stopped) == 0
            await until("a nearly full node", lambda: site.nodes.active[NODE] >= BOUND - 2)
            # Until it had shares, each Envoy placed its requests itself.
            site.nodes.peak.clear()
            late = await pair.resume()
            assert set(late.answers) <= {"200", "503 full"}
            async with late:
                await until("its share", lambda: pair.share(pair.stopped) > BOUND / 4)
                await until("answers", lambda: late.answers["200"] > BOUND)
        # What is larger than a share is admitted alone.
        assert site.nodes.peak[NODE] <= BOUND + 2

    asyncio.run(test())
