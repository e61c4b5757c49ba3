"""The ring in Redis has the slots that the vectors and a model of them say."""

import random

import pytest
import redis

from tests.conformance import ring_model
from tests.harness.functions import NOBODY


@pytest.mark.parametrize("case", ring_model.cases("sizes.json"))
def test_the_model_has_the_vectors_sizes(case):
    assert ring_model.sizes(case["bounds"], case["slots"]) == case["sizes"]


@pytest.mark.parametrize("case", ring_model.cases("changes.json"))
def test_the_model_has_the_vectors_changes(case):
    after = ring_model.change(ring_model.expand(case["before"]), case["sizes"])
    assert after == ring_model.expand(case["after"])


def test_every_change_is_the_models_change(cluster):
    """Bounds of five nodes wander; Redis and the model stay the same to the last slot."""
    draw = random.Random(1)
    bounds: dict[str, float] = {}
    owners = bytes([NOBODY]) * 1000
    for _ in range(120):
        node = f"node{draw.randrange(5)}"
        bounds[node] = draw.choice([0, draw.uniform(1, 8000)])
        cluster.report(node, repr(bounds[node]), dead_band=0)
        if any(bounds.values()) or owners != bytes([NOBODY]) * 1000:
            _, _, names, found = cluster.ring()
            wanted = ring_model.sizes([bounds.get(name, 0) for name in names], 1000)
            owners = ring_model.change(owners, wanted)
            assert found == owners


@pytest.mark.parametrize("case", ring_model.cases("weights.json"))
def test_the_model_has_the_vectors_weights(case):
    assert ring_model.weights(case["capacities"]) == case["weights"]


@pytest.mark.parametrize("case", ring_model.cases("weights.json"))
def test_ring_sizes_go_by_capacity_and_by_the_mean_where_it_is_not_known(cluster, case):
    told = {f"n{i:03}": capacity for i, capacity in enumerate(case["capacities"])}
    for node, capacity in told.items():
        # The bound of a full node is small, that of a free one large: keys must not follow it.
        said = -1 if capacity is None else repr(capacity)
        cluster.report(node, 1e6 if capacity is None else 3, capacity=said, dead_band=0)
    names = cluster.ring()[2]
    wanted = ring_model.sizes(ring_model.weights([told[name] for name in names]), 1000)
    assert cluster.sizes() == dict(zip(names, wanted, strict=True))
    assert cluster.capacities() == {node: -1 if it is None else it for node, it in told.items()}


def test_a_ring_of_255_nodes_is_full(cluster):
    for n in range(255):
        cluster.report(f"n{n}", 10 + n, slots=16384)
    assert len(cluster.sizes()) == 255
    with pytest.raises(redis.ResponseError, match="255 nodes"):
        cluster.report("one-more", 10, slots=16384)
    _, _, names, owners = cluster.ring()
    wanted = ring_model.sizes([10 + int(name[1:]) for name in names], 16384)
    for index, size in enumerate(wanted):
        # Within the dead band of what the bounds ask for.
        assert abs(owners.count(index) - size) <= max(1, 0.05 * size)
