"""Placement of requests by the filter in a real Envoy."""

import pytest

from tests.harness.envoy_filter import FILTERS, ON_OLDEST
from tests.harness.functions import owner


@pytest.mark.parametrize("filter_kind", [*FILTERS, ON_OLDEST], indirect=True)
def test_a_key_goes_to_the_owner_of_its_slot(site):
    envoy = site.envoy(concurrency=2)
    site.wait_in_force(envoy)
    _, _, names, owners = site.cluster.ring()
    for number in range(200):
        key = f"S{number:04}"
        assert envoy.node_of(key) == owner(key, names, owners)
