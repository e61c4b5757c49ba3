"""Redis shares a bound as the model that is checked exhaustively does (`agent/core/tests/models`)."""

import pytest

from tests.conformance import ring_model


@pytest.mark.parametrize("case", ring_model.cases("shares.json"))
def test_redis_grants_what_the_vectors_say(cluster, case):
    for call in case["calls"]:
        cluster.report("node1", repr(call["bound"]), mean_cost=0)
        told = f"{call['demand']!r}/{call['held']!r}"
        *_, granted = cluster.observe(f"proxy{call['dispatcher']}", [("node1", told, "-")])
        assert granted == {"node1": pytest.approx(call["granted"], rel=1e-12, abs=1e-12)}
