"""The targets of the scenarios, held against figures by hand."""

import pytest

from loadtests.report.tests.conftest import request, sample, steady
from loadtests.report.tests.told import targets


def test_targets_of_a_burst(run):
    run.add("rr", [*steady(10, 15), *steady(15, 30, delay=1.05)])
    run.add("fc-prop", steady(10, 30))
    assert targets(run) == {
        # 20 timely seconds against 5.
        "fc-prop / rr, timely items/s": "pass",
        "fc-prop timely of ideal from 5 s after the event": "pass",
        "fc-prop timely of ideal, whole time": "pass",
        "fc-prop mean delay, s": "pass",
        "fc-prop overshoot, s": "pass",
        "fc-prop settling, s": "pass",
    }


def test_a_target_that_not_even_the_ideal_reaches_is_not_stated(run):
    # As in a quick run: 20 timely seconds against 7.
    run.add("rr", [*steady(10, 17), *steady(17, 30, delay=1.05)])
    run.add("fc-prop", steady(10, 30))
    stated = targets(run)
    assert "fc-prop / rr, timely items/s" not in stated and "FAIL" not in stated.values()


def test_a_run_too_short_to_settle_misses_the_target(run):
    facts = {"measured_to_s": 20.0}
    run.add("fc-prop", [*steady(10, 15), *steady(15, 20, delay=2.0)], facts=facts)
    assert targets(run)["fc-prop settling, s"] == "FAIL"


def test_a_quick_run_is_not_judged_by_what_only_a_full_one_can_meet(run):
    run.facts["quick"] = True
    run.add("fc-prop", [*steady(10, 15), *steady(15, 30, delay=2.0)])
    why = "not judged in a quick run"
    assert run.targets() == [
        f"skip  fc-prop timely of ideal from 5 s after the event: 0 (at least 0.95), {why}",
        f"skip  fc-prop timely of ideal, whole time: 0.25 (at least 0.9), {why}",
        "FAIL  fc-prop mean delay, s: 1.625 (at most 1)",
        f"skip  fc-prop overshoot, s: 2 (at most 1.1), {why}",
        f"skip  fc-prop settling, s: none (at most 10), {why}",
    ]


def test_targets_of_the_other_scenarios(run):
    run.facts["scenario"] = "heterogeneous"
    requests = [*steady(10, 30, items=900), *steady(10, 30, items=100, node="node2")]
    run.add("fc-hash", requests, facts={"node_capacity_items_per_s": {"node1": 1000.0, "node2": 200.0}})
    assert targets(run) == {"fc-hash largest share error against capacity": "FAIL"}
    run.facts["scenario"] = "removal"
    nodes = [sample(t, "node2", 200 if t <= 15 else 0) for t in range(30)]
    facts = {"node_capacity_items_per_s": {"node1": 1000.0, "node2": 200.0}}
    requests = [*steady(10, 30, items=900), *steady(10, 15, items=100, node="node2")]
    requests += [request(15.1, 0.6, outcome="error", node="")]
    run.add("fc-prop", requests, nodes, facts)
    assert targets(run) == {
        "fc-prop fall of timely items/s after the removal": "pass",
        "fc-prop client errors last, s": "FAIL",
    }


def test_short_phases_are_to_beat_long_ones(run):
    run.facts["scenario"] = "phases"
    for name, items in {"10s": 800, "2s": 900, "continuous-10s": 900, "continuous-2s": 899}.items():
        run.add(f"lua-job-informed-{name}", steady(10, 30, items=items))
    assert targets(run) == {
        "lua-job-informed-2s / lua-job-informed-10s, timely items/s": "pass",
        "lua-job-informed-continuous-2s / lua-job-informed-continuous-10s, timely items/s": "FAIL",
    }


def test_targets_on_envoy_are_against_its_own_policies(run):
    run.facts["scenario"] = "heterogeneous"
    run.add("rr", steady(10, 30, items=900))
    run.add("envoy-rr", steady(10, 30, items=100))
    run.add("envoy-static", steady(10, 30, items=300))
    run.add("envoy-eds-fc-prop", steady(10, 30, items=200), [sample(1, capacity=200)])
    run.add("wasm-fc-hash", steady(10, 30, delay=1.5, items=200), [sample(1, capacity=200)])
    found = targets(run)
    assert found["envoy-eds-fc-prop / envoy-rr, timely items/s"] == "pass"
    assert found["envoy-eds-fc-prop / envoy-static, timely items/s"] == "FAIL"
    assert found["envoy-eds-fc-prop timely of ideal, whole time"] == "pass"
    assert found["wasm-fc-hash mean delay, s"] == "FAIL"
    assert not [text for text in found if "/ rr" in text or "/ envoy-eds" in text or text.startswith("rr")]


@pytest.mark.parametrize("scenario", ["burst", "heterogeneous", "mix", "phases", "rejoin"])
def test_the_module_does_what_the_filter_does(run, scenario):
    run.facts["scenario"] = scenario
    run.add("wasm-fc-hash", steady(10, 30, items=1000))
    run.add("module-fc-hash", steady(10, 30, items=991))
    run.add("wasm-fc-prop", steady(10, 30, items=1000))
    run.add("module-fc-prop", steady(10, 30, items=989))
    run.add("module-load-line", steady(10, 30, items=1))
    found = targets(run)
    assert found["module-fc-hash / wasm-fc-hash, timely items/s"] == "pass"
    assert found["module-fc-prop / wasm-fc-prop, timely items/s"] == "FAIL"
    assert not [text for text in found if "/ wasm-load-line" in text]


@pytest.mark.parametrize("scenario", ["burst", "mix"])
def test_limits_of_several_proxies_lose_nothing_of_the_ideal(run, scenario):
    run.facts |= {"scenario": scenario, "proxies": 4}
    run.add("limits-fc-hash", [*steady(10, 15), *steady(15, 18, delay=1.5), *steady(18, 30)])
    run.add("lua-fc-hash", steady(10, 30, delay=1.5))
    assert targets(run) == {"limits-fc-hash timely of ideal, 4 proxies": "FAIL"}
    run.facts["proxies"] = 1
    run.save()
    assert targets(run) == {}


def test_limits_that_lose_a_proxy_are_not_held_against_the_ideal(run):
    run.facts |= {"scenario": "balancer-failover", "proxies": 2}
    run.add("limits-fc-hash", steady(10, 30, delay=1.5))
    assert targets(run) == {}
