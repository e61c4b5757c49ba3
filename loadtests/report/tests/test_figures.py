"""Every figure against one worked out by hand."""

import numpy as np
import pytest

from loadtests.report import failover
from loadtests.report.tests.conftest import request, sample, steady
from loadtests.report.tests.told import page, targets


def test_constant_delays_give_the_plain_figures(run):
    run.add("rr", steady(10, 30))
    figures = run.figures("rr")
    for name in ("total", "timely", "ideal", "offered"):
        assert figures[f"{name}_items_per_s"] == 100.0
    for name in ("mean", "p50", "p95", "p99"):
        assert figures[f"{name}_delay_s"] == 0.5
    assert (figures["overshoot_s"], figures["settling_s"], figures["settled"]) == (0.5, 0.0, True)
    assert (figures["refused_fraction"], figures["error_fraction"]) == (0.0, 0.0)
    assert (figures["timely_of_ideal"], figures["timely_of_ideal_after_event"]) == (1.0, 1.0)
    assert figures["node_shares"] == {"node1": 1.0}
    assert figures["max_share_deviation"] == 0.0
    assert figures["requests"] == 20
    for name in ("app", "failover", "group", "phases", "placement", "removal", "updates"):
        assert figures[name] is None


def test_the_run_is_described(run):
    run.add("static-maxconn", steady(10, 30), facts={"settings": {"maxconn": 64}})
    summary = run.summary()
    assert {k: summary[k] for k in ("scenario", "sla_seconds", "seed", "quick", "clients", "nodes")} == {
        **{"scenario": "burst", "sla_seconds": 1.0, "seed": 7, "quick": False, "clients": 10, "nodes": 1}
    }
    assert summary["machine"]["cpu"] == "abacus"
    assert summary["capacity"] is None
    assert summary["command"] == "by hand"
    figures = summary["runs"][0]
    assert (figures["settings"], figures["event"], figures["event_s"]) == ({"maxconn": 64}, "a burst", 15.0)
    assert (figures["proxy"], figures["proxy_cpu_share"]) == ("haproxy 2.6", 0.25)
    assert (figures["measured_from_s"], figures["measured_to_s"]) == (10.0, 30.0)


def test_warm_up_is_in_the_series_and_in_no_figure(run):
    run.add("rr", [*steady(0, 10, delay=5.0, items=900), *steady(15, 30)])
    figures = run.figures("rr")
    assert figures["mean_delay_s"] == 0.5
    assert figures["offered_items_per_s"] == 75.0
    # Five of the slow ones end within the measured time.
    assert figures["total_items_per_s"] == pytest.approx((5 * 900 + 15 * 100) / 20)
    assert figures["timely_items_per_s"] == 75.0
    series = figures["series"]
    assert {len(values) for values in series.values()} == {30}
    assert series["offered_items_per_s"][:10] == [900.0] * 10
    assert series["mean_delay_s"][:5] == [None] * 5
    assert series["mean_delay_s"][5:10] == [5.0] * 5


def test_one_late_second_is_total_but_not_timely(run):
    requests = steady(10, 30)
    requests[8] = request(18, 1.75)
    run.add("rr", requests)
    figures = run.figures("rr")
    assert figures["total_items_per_s"] == 100.0
    assert figures["timely_items_per_s"] == 95.0
    assert figures["timely_of_ideal"] == 0.95
    assert figures["timely_of_ideal_after_event"] == 1.0
    assert figures["mean_delay_s"] == pytest.approx((19 * 0.5 + 1.75) / 20, abs=1e-4)
    assert figures["p50_delay_s"] == 0.5
    # Rank 0.95 · 19 = 18.05 of 0..19, of which only the last is 1.75.
    assert figures["p95_delay_s"] == pytest.approx(0.5 + 0.05 * 1.25)
    # Finished at 19.75 next to one of 0.5: their mean is above the SLA in the bin 4 to 5 s after the event.
    assert figures["overshoot_s"] == pytest.approx(1.125)
    assert (figures["settling_s"], figures["settled"]) == (5.0, True)


@pytest.mark.parametrize(("delay", "timely"), [(1.0, 100.0), (1.0001, 0.0)])
def test_an_answer_at_the_sla_is_timely(run, delay, timely):
    run.add("rr", [request(t - 0.9, delay) for t in range(10, 30)])
    assert run.figures("rr")["timely_items_per_s"] == timely


def test_an_answer_belongs_to_the_second_in_which_it_came(run):
    run.add("rr", [request(10.7, 0.3), request(12.7, 0.2), request(13.7, 0.3)])
    assert run.figures("rr")["series"]["timely_items_per_s"][10:15] == [0.0, 100.0, 100.0, 0.0, 100.0]


def test_a_swing_back_counts_as_not_settled_before(run):
    delays = {16: 1.5, 25: 1.5}
    run.add("rr", [request(t, delays.get(t, 0.4)) for t in range(10, 30)])
    figures = run.figures("rr")
    # The one of 25 s comes in at 26.5, beside one of 0.4 s: mean 0.95, which is within the SLA.
    assert figures["settling_s"] == 0.0
    assert figures["overshoot_s"] == 0.95
    run.add("worse", [request(t, 1.7 if t in delays else 0.4) for t in range(10, 30)])
    assert run.figures("worse")["settling_s"] == 12.0


def test_a_policy_over_the_sla_at_the_end_has_not_settled(run):
    run.add("rr", steady(10, 40, delay=2.0))
    figures = run.figures("rr")
    assert (figures["settling_s"], figures["settled"], figures["overshoot_s"]) == (15.0, False, 2.0)


def test_a_policy_that_stops_answering_has_not_settled(run):
    run.add("rr", [*steady(10, 15), *steady(15, 20, delay=2.0)])
    figures = run.figures("rr")
    assert (figures["settling_s"], figures["settled"]) == (15.0, False)


def test_refused_and_failed_queries_have_no_delay_and_are_offered(run):
    requests = [
        *steady(10, 30),
        *(request(t, 0.001, outcome="refused", node="") for t in range(10, 25)),
        *(request(t, 9.0, outcome="error", node="") for t in range(10, 15)),
    ]
    run.add("rr", requests)
    figures = run.figures("rr")
    assert figures["requests"] == 40
    assert (figures["refused_fraction"], figures["error_fraction"]) == (0.375, 0.125)
    assert figures["offered_items_per_s"] == 200.0
    assert figures["total_items_per_s"] == figures["timely_items_per_s"] == 100.0
    assert figures["mean_delay_s"] == figures["p99_delay_s"] == 0.5
    assert figures["series"]["refused_per_s"] == [0.0] * 10 + [1.0] * 15 + [0.0] * 5


def test_unfinished_at_the_end_counts_with_its_whole_delay(run):
    requests = [*steady(10, 28), request(28, 4.0), request(29, 6.0, outcome="error", node="")]
    run.add("rr", requests)
    figures = run.figures("rr")
    assert figures["mean_delay_s"] == pytest.approx((18 * 0.5 + 4.0) / 19, abs=1e-4)
    assert figures["error_fraction"] == 0.05
    # Its answer came after the measured time.
    assert figures["total_items_per_s"] == 90.0
    assert figures["series"]["mean_delay_s"][28:] == [None, None]


def test_ideal_is_limited_by_capacity_second_by_second(run):
    requests = [*steady(10, 20, items=400), *steady(20, 30, items=1600)]
    run.add("rr", requests, [sample(t, capacity=1000) for t in range(30)])
    figures = run.figures("rr")
    assert figures["offered_items_per_s"] == 1000.0
    # By means it would be the smaller of 1000 and 1000.
    assert figures["ideal_items_per_s"] == 700.0
    assert figures["timely_of_ideal"] == pytest.approx(1000 / 700, abs=1e-4)


def test_capacity_is_held_between_samples_and_static_before_the_first(run):
    run.add(
        "rr", steady(10, 30, items=5000), [sample(12, capacity=500), sample(15), sample(20, capacity=200)]
    )
    ideal = run.figures("rr")["series"]["ideal_items_per_s"]
    assert ideal[10:] == [1000.0] * 2 + [500.0] * 8 + [200.0] * 10


def test_cache_hits_are_of_all_rows_read_in_the_measured_time(run):
    nodes = [sample(9, cache="999,1"), sample(10, cache="30,10"), sample(11), sample(29, cache="0,60")]
    run.add("rr", steady(10, 30), nodes)
    run.add("prop", steady(10, 30), [sample(12)])
    assert run.figures("rr")["cache_hit_ratio"] == 0.3
    assert run.figures("prop")["cache_hit_ratio"] is None


def test_five_seconds_after_the_event_are_left_to_the_policy(run):
    refused = [request(t, 0.001, outcome="refused", node="") for t in range(15, 21)]
    run.add("rr", [*steady(10, 15), *refused, *steady(21, 30)])
    figures = run.figures("rr")
    # Of the refusals only the one of second 20 counts.
    assert figures["timely_of_ideal_after_event"] == 0.9
    assert figures["timely_of_ideal"] == 0.7


def test_only_whole_seconds_count_in_rates(run):
    run.add("rr", steady(9, 32), facts={"measured_from_s": 10.5, "measured_to_s": 29.5})
    figures = run.figures("rr")
    assert figures["offered_items_per_s"] == figures["timely_items_per_s"] == 100.0
    assert figures["requests"] == 19


def test_without_an_event_there_is_no_transient(run):
    run.add("rr", steady(10, 30, delay=2.0), facts={"event_s": None, "event": None})
    figures = run.figures("rr")
    assert (figures["overshoot_s"], figures["settling_s"], figures["settled"]) == (None, None, None)
    assert figures["removal"] is None
    assert figures["timely_of_ideal_after_event"] == 0.0


def test_shares_are_compared_with_capacity_after_settling(run):
    capacity = {"node1": 1000.0, "node2": 250.0}
    requests = [
        *steady(10, 25, items=100, node="node1"),
        *steady(10, 25, items=100, node="node2"),
        *steady(25, 30, items=700, node="node1"),
        *steady(25, 30, items=300, node="node2"),
    ]
    run.add("rr", requests, facts={"node_capacity_items_per_s": capacity})
    figures = run.figures("rr")
    assert figures["node_shares"] == {"node1": 5000 / 8000, "node2": 3000 / 8000}
    assert figures["node_shares_settled"] == {"node1": 0.7, "node2": 0.3}
    assert figures["capacity_shares_settled"] == {"node1": 0.8, "node2": 0.2}
    assert figures["max_share_deviation"] == pytest.approx(0.5)


def test_the_removal_of_a_node(run):
    capacity = {"node1": 1000.0, "node2": 600.0}
    nodes = [sample(t, "node1", 1000) for t in range(30)]
    nodes += [sample(t, "node2", 500 if t <= 15 else 0) for t in range(30)]
    requests = [
        *steady(10, 16, items=400, node="node2"),
        *steady(10, 30, items=800),
        request(14.8, 0.4, outcome="error", node=""),
        request(14.0, 0.2, outcome="error", node=""),
    ]
    run.facts["scenario"] = "removal"
    run.add("fc-prop", requests, nodes, {"node_capacity_items_per_s": capacity})
    figures = run.figures("fc-prop")
    assert figures["removal"] == {
        "dead_nodes": ["node2"],
        "timely_before_items_per_s": 1200.0,
        "timely_after_items_per_s": 800.0,
        "lost_capacity_items_per_s": 500.0,
        "error_window_s": 0.2,
    }
    assert figures["series"]["ideal_items_per_s"][15:17] == [1200.0, 800.0]
    assert figures["capacity_shares_settled"] == {"node1": 1.0, "node2": 0.0}
    assert figures["max_share_deviation"] == 0.0


def test_an_error_before_the_event_opens_no_error_window(run):
    nodes = [sample(t, capacity=1000 if t <= 15 else 0) for t in range(30)]
    run.add("rr", [*steady(10, 15), request(12, 0.5, outcome="error", node="")], nodes)
    assert run.figures("rr")["removal"]["error_window_s"] == 0.0


def test_an_error_cut_off_at_the_end_is_in_the_error_window(run):
    nodes = [sample(t, capacity=1000 if t <= 15 else 0) for t in range(30)]
    run.add("rr", [*steady(10, 15), request(15.5, 19.5, outcome="error", node="")], nodes)
    removal = run.figures("rr")["removal"]
    assert removal["error_window_s"] == 20.0
    assert removal["timely_after_items_per_s"] == 0.0


def test_a_policy_without_any_answer(run):
    run.add("rr", [request(t, 0.001, outcome="refused", node="") for t in range(10, 30)])
    figures = run.figures("rr")
    assert figures["refused_fraction"] == 1.0
    assert figures["timely_items_per_s"] == figures["total_items_per_s"] == 0.0
    assert figures["ideal_items_per_s"] == 100.0
    for name in ("mean_delay_s", "p50_delay_s", "p99_delay_s", "overshoot_s", "settling_s", "settled"):
        assert figures[name] is None
    assert figures["node_shares"] == {"node1": 0.0}
    assert figures["max_share_deviation"] is None


def test_a_policy_without_any_request(run):
    run.add("rr", [])
    figures = run.figures("rr")
    assert (figures["requests"], figures["offered_items_per_s"]) == (0, 0.0)
    assert figures["timely_of_ideal"] is None
    assert figures["error_fraction"] == 0.0


def test_transactions_stand_apart(run):
    requests = [
        *steady(10, 30),
        *(request(t, 0.2, 50, node="master", kind="transaction") for t in range(10, 28)),
        request(28, 3.0, 50, "error", "", "transaction"),
        request(29, 0.0, 50, "refused", "", "transaction"),
    ]
    run.add("rr", requests)
    figures = run.figures("rr")
    assert figures["transactions"] == {
        "requests_per_s": 1.0,
        "mean_delay_s": 0.2,
        "p99_delay_s": 0.2,
        "refused_fraction": 0.05,
        "error_fraction": 0.05,
    }
    assert figures["offered_items_per_s"] == figures["total_items_per_s"] == 100.0
    assert (figures["error_fraction"], figures["requests"]) == (0.0, 20)


@pytest.mark.parametrize(("cpu", "lag", "limited"), [(0.9, 0.1, False), (0.91, 0.0, True), (0.1, 0.11, True)])
def test_generator_limits(run, cpu, lag, limited):
    run.add("rr", steady(10, 30), facts={"generator": {"cpu_share": cpu, "lag_p99_s": lag}})
    figures = run.figures("rr")
    assert figures["generator_limited"] is limited
    assert (figures["generator_cpu_share"], figures["generator_lag_s"]) == (cpu, lag)


def test_policies_keep_the_order_in_which_they_ran(run):
    for name in ("prop", "fc-prop", "rr"):
        run.add(name, steady(10, 30))
    assert [figures["policy"] for figures in run.summary()["runs"]] == ["prop", "fc-prop", "rr"]


UPDATES_CALM = {"calm_s": 20.0}


def adaptive(t: float, relaxed: int, hot: int = 0, longest: float = 0.5, updates: int = 100) -> str:
    return sample(t, updates=f"{updates},1000,{relaxed},{longest},{hot}")


def test_the_overload_has_figures_of_its_own(run):
    requests = steady(10, 15) + steady(15, 20, delay=1.5) + steady(20, 30)
    requests += [request(16.5, 0.5, 300, age="4.0"), request(17.5, 0.0, outcome="refused")]
    requests += [request(12.5, 0.5, age="0.2")]
    nodes = [sample(t + 0.1, updates="2000,,,,") for t in range(10, 30)]
    run.add("rr", requests, nodes, UPDATES_CALM)
    found = run.figures("rr")["updates"]
    assert found["calm_s"] == 20
    # Five of 1.5 s and one of half a second.
    assert found["overload_mean_delay_s"] == pytest.approx(8 / 6, abs=1e-4)
    assert found["overload_p95_delay_s"] == 1.5
    assert found["overload_timely_items_per_s"] == 60
    assert found["overload_refused_fraction"] == pytest.approx(1 / 7, abs=1e-4)
    assert found["overload_updates_per_s"] == 2000
    assert (found["mean_age_s"], found["overload_mean_age_s"]) == (2.1, 4.0)
    # No agent, no periods.
    names = ("relaxed_share", "longest_period_s", "hot_relaxed", "back_s")
    assert [found[name] for name in names] == [None] * 4


def test_periods_are_followed_until_they_are_back(run):
    nodes = [adaptive(t + 0.1, 0) for t in range(10, 16)]
    nodes += [adaptive(t + 0.1, 900, longest=5.0, hot=1, updates=300) for t in range(16, 22)]
    nodes += [adaptive(t + 0.1, 400, longest=5.0) for t in range(22, 25)]
    nodes += [adaptive(t + 0.1, 0) for t in range(25, 30)]
    run.add("fc-prop-updates", steady(10, 30), nodes, UPDATES_CALM)
    found = run.figures("fc-prop-updates")["updates"]
    assert found["relaxed_share"] == 0.9
    assert found["longest_period_s"] == 5
    assert found["hot_relaxed"] == 1
    # The last sample with an item that has not its own period.
    assert found["back_s"] == pytest.approx(4.1)
    series = found["relaxed_share_by_second"]
    assert (series[9], series[15], series[18], series[29]) == (None, 0.0, 0.9, 0.0)


def test_periods_that_are_not_back_at_the_end(run):
    nodes = [adaptive(t + 0.1, 10) for t in range(10, 30)]
    run.add("fc-prop-updates", steady(10, 30), nodes, UPDATES_CALM)
    assert run.figures("fc-prop-updates")["updates"]["back_s"] is None


def test_targets_of_updates(run):
    run.facts["scenario"] = "updates"
    run.add("rr", steady(10, 15) + steady(15, 30, delay=1.5), [], UPDATES_CALM)
    nodes = [adaptive(t + 0.1, 10 if 15 <= t < 22 else 0, longest=2.0) for t in range(10, 30)]
    run.add("fc-prop-updates", steady(10, 30), nodes, UPDATES_CALM)
    found = targets(run)
    assert found == {
        "fc-prop-updates mean delay, s": "pass",
        "fc-prop-updates p95 delay, s": "pass",
        # Nothing of the other's was in time: there is no ratio.
        "fc-prop-updates / rr, timely items/s": "FAIL",
        "fc-prop-updates longest period, s": "pass",
        "fc-prop-updates hot items with longer periods": "pass",
        "fc-prop-updates all periods back after, s": "pass",
        "rr p95 delay, s, over the SLA": "pass",
    }
    drawn = [label for label in page(run).labels() if label.startswith("Items with longer")]
    assert drawn == ["Items with longer update periods over time, fc-prop-updates"]


def test_failures_after_a_death_are_separate_from_requests_in_flight(run):
    run.facts["scenario"] = "rejoin"
    facts = {"event_s": 15.0, "killed": ["lb2"], "killed_s": 15.0, "dead_s": 15.2, "back_s": 22.0}
    requests = [*steady(10, 15, items=900), *steady(17, 22, items=500), *steady(26, 30, items=900)]
    requests += [request(14.9, 0.3, outcome="error"), request(10.0, 1.0, outcome="error")]
    # Its sockets took this one before it had ended.
    requests += [request(15.1, 0.05, outcome="error")]
    requests += [request(16.0, 0.1, outcome="error", kind="transaction")]
    # On a connection to it that the client had kept, and to another.
    requests += [request(15.3, 0.1, outcome="error", node="lb2")]
    requests += [request(15.3, 0.1, outcome="error", node="lb1")]
    # Unfinished at the end.
    requests += [request(29.5, 0.6, outcome="error")]
    run.add("fc-hash", requests, facts=facts | {"node_capacity_items_per_s": {"node1": 500.0}})
    found = run.figures("fc-hash")["failover"]
    assert (found["errors_in_flight"], found["errors_after"]) == (3, 2)
    assert (found["killed_s"], found["dead_s"], found["back_s"]) == (15, 15.2, 22)
    assert targets(run)["fc-hash requests sent after the death that failed"] == "FAIL"


def test_recovery_is_the_first_of_three_good_seconds():
    ideal = np.full(30, 100.0)
    timely = np.full(30, 100.0)
    timely[15:18] = (0, 100, 40)
    assert failover.recovered(timely, ideal, 15, 30) == 3
    assert failover.recovered(timely, ideal, 14.5, 30) == 3.5
    assert failover.recovered(timely, ideal, 20, 30) == 0
    assert failover.recovered(timely, ideal, 15, 19) is None
    # A request late by a second is not lost.
    timely[15:18] = (90, 90, 110)
    assert failover.recovered(timely, ideal, 15, 30) == 0
