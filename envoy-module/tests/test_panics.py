"""A panic in any hook ends neither Envoy nor the request, and is counted."""

import pytest
from module_site import built

from tests.harness.envoy import Envoy
from tests.harness.eventually import eventually

LIBRARY = "examples/libpanics.so"
OF_STREAMS = ["filter", "request headers", "wake", "response headers", "complete", "drop"]


def panics(envoy: Envoy) -> float:
    """As the module counts them."""
    return sum(envoy.stats("panics").values())


@pytest.mark.parametrize("hook", OF_STREAMS)
@pytest.mark.parametrize("position", ["downstream", "upstream"])
def test_a_request_passes(site, hook, position):
    plans = {"downstream": "none", "upstream": "none"} | {position: hook}
    envoy = site.envoy(site.config(built(LIBRARY), **plans)).start()
    for number in range(5):
        assert envoy.get(f"/{number}")[0] == 200, envoy.tail()
    # Upstream Envoy does not tell of the end.
    if (position, hook) != ("upstream", "complete"):
        eventually("the panics counted", lambda: panics(envoy) >= 5)
        assert "panics: panicked at" in envoy.said()
    envoy.process.terminate()
    assert envoy.process.wait(30) == 0


@pytest.mark.parametrize("hook", ["config wake", "config answer", "config drop"])
def test_a_configuration_serves(site, hook):
    envoy = site.envoy(site.config(built(LIBRARY), hook, "none")).start()
    if hook != "config drop":
        envoy.wait_said("as it was told to")
    assert envoy.get("/")[0] == 200
    envoy.process.terminate()
    assert envoy.process.wait(30) == 0
    assert "as it was told to" in envoy.said()


def test_one_that_cannot_be_made_is_rejected(site):
    status, said = site.validated(site.config(built(LIBRARY), "config", "none"))
    assert status == 1
    assert "panics: panicked at" in said
