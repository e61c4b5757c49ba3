"""A panic in any hook ends neither Envoy nor the request, and is counted."""

import pytest
from module_site import built, policy

from tests.harness.envoy import Envoy
from tests.harness.eventually import eventually

LIBRARY = "examples/libpanics.so"
OF_STREAMS = ["filter", "request headers", "wake", "response headers", "complete", "drop"]


def panics(envoy: Envoy) -> float:
    """Number of panics, as the module counts them."""
    return sum(envoy.stats("panics").values())


@pytest.mark.parametrize("hook", OF_STREAMS)
@pytest.mark.parametrize("position", ["downstream", "upstream"])
def test_a_request_passes_though_the_filter_panics(site, hook, position):
    plans = {"downstream": "none", "upstream": "none"} | {position: hook}
    envoy = site.envoy(site.config(built(LIBRARY), **plans)).start()
    for number in range(5):
        assert envoy.get(f"/{number}")[0] == 200, envoy.tail()
    # Envoy does not call this hook for upstream filters.
    if (position, hook) != ("upstream", "complete"):
        eventually("the panics counted", lambda: panics(envoy) >= 5)
        assert "panics: panicked at" in envoy.said()
    envoy.process.terminate()
    assert envoy.process.wait(30) == 0


@pytest.mark.parametrize("hook", ["request headers", "wake", "response headers", "complete"])
def test_a_second_panic_while_the_filter_is_dropped_is_caught(site, hook):
    """The second panic ended Envoy."""
    envoy = site.envoy(site.config(built(LIBRARY), f"{hook},drop", "none")).start()
    for number in range(5):
        assert envoy.get(f"/{number}")[0] == 200, envoy.tail()
    eventually("the panics counted", lambda: panics(envoy) >= 10)
    envoy.process.terminate()
    assert envoy.process.wait(30) == 0


@pytest.mark.parametrize("hook", ["none", "balancer", "choose", "drop", "config drop", "choose,drop"])
def test_a_request_finds_a_host_though_the_load_balancing_policy_panics(site, hook):
    config = site.config(built(LIBRARY), "none", "none")
    config["static_resources"]["clusters"][0]["load_balancing_policy"] = policy(built(LIBRARY), hook)
    envoy = site.envoy(config).start()
    for number in range(5):
        assert envoy.get(f"/{number}")[0] == 200, envoy.tail()
    envoy.process.terminate()
    assert envoy.process.wait(30) == 0
    assert ("as it was told to" in envoy.said()) == (hook != "none")


def test_a_policy_that_panics_while_it_is_configured_is_rejected(site):
    config = site.config(built(LIBRARY), "none", "none")
    config["static_resources"]["clusters"][0]["load_balancing_policy"] = policy(built(LIBRARY), "config")
    status, said = site.validated(config)
    assert status == 1
    assert "panics: panicked at" in said


def test_a_module_that_panics_while_it_starts_is_rejected(site):
    status, said = site.validated(site.config(built(LIBRARY), "none", "none"), PANICS="start")
    assert status == 1
    assert "libpanics.so" in said


@pytest.mark.parametrize("hook", ["config wake", "config answer", "config drop", "thread"])
def test_a_configuration_serves_though_its_hooks_panic(site, hook):
    envoy = site.envoy(site.config(built(LIBRARY), hook, "none")).start()
    if hook != "config drop":
        envoy.wait_said("as it was told to")
    assert envoy.get("/")[0] == 200
    envoy.process.terminate()
    assert envoy.process.wait(30) == 0
    assert "as it was told to" in envoy.said()


def test_a_configuration_that_panics_while_it_is_made_is_rejected(site):
    status, said = site.validated(site.config(built(LIBRARY), "config", "none"))
    assert status == 1
    assert "panics: panicked at" in said
