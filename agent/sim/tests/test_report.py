"""agent/sim/report.md is what the simulator says now, and it says what the documentation claims."""

import difflib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ROOT, programs

REPORT = ROOT / "agent" / "sim" / "report.md"
# Plimsoll with its defaults.
OURS = ("fc-prop", "fc-hash")
FAULTS = ("black-hole", "slowdown", "fast-errors", "retry-storm", "varying", "spike")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The report, and all summaries by scenario."""
    summaries: Path = tmp_path_factory.mktemp("simulate") / "summaries.json"
    command = [programs.agent(), "simulate", "all", "--json-file", str(summaries)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout, {each["scenario"]: each for each in json.loads(summaries.read_text())}


def runs(shown: tuple[str, dict[str, Any]], scenario: str) -> dict[str, Any]:
    return {run["policy"]: run for run in shown[1][scenario]["runs"]}


@pytest.mark.timeout(1800)
def test_the_report_is_up_to_date(shown):
    kept, now = REPORT.read_text().splitlines(), shown[0].splitlines()
    diff = difflib.unified_diff(kept, now, "agent/sim/report.md", "make simulate", lineterm="")
    assert "\n".join(diff) == ""


def test_chronos_c_totals_and_means_are_the_papers(shown):
    by = runs(shown, "chronos-c")
    paper = {"rr": 41_647, "fc-prop-mean": 50_197, "fc-hash-mean": 54_821}
    for policy, total in paper.items():
        assert by[policy]["total_items_per_s"] == pytest.approx(total, rel=0.02), policy
    assert by["rr"]["mean_delay_s"] == pytest.approx(2.41, abs=0.27)


def test_chronos_orders_open_ac_and_feedback_as_the_paper(shown):
    mean = {policy: run["mean_delay_s"] for policy, run in runs(shown, "chronos").items()}
    assert mean["rr"] == pytest.approx(4.02, abs=0.53)
    assert mean["ac"] == pytest.approx(3.56, abs=0.83)
    assert mean["rr"] > mean["ac"] > mean["fc-prop-mean"]


@pytest.mark.parametrize("slaves", [1, 2, 3, 4])
def test_timely_work_grows_with_the_slaves_in_the_papers_order(shown, slaves):
    timely = {policy: run["timely_items_per_s"] for policy, run in runs(shown, f"chronos-c-{slaves}").items()}
    assert timely["fc-hash-mean"] >= timely["fc-prop-mean"] > 2 * timely["rr"]
    if slaves > 1:
        fewer = runs(shown, f"chronos-c-{slaves - 1}")
        assert timely["fc-hash-mean"] > fewer["fc-hash-mean"]["timely_items_per_s"]


def test_fc_hash_beats_round_robin_and_prop_by_more_than_the_paper(shown):
    by = runs(shown, "chronos-c")
    timely = {policy: run["timely_items_per_s"] for policy, run in by.items()}
    assert timely["fc-hash"] / timely["rr"] >= 3.37
    assert timely["fc-hash"] / timely["prop"] >= 2.28
    after = runs(shown, "chronos-c-removal")
    for peer in ("rr", "prop"):
        ratio = after["fc-hash"]["timely_items_per_s"] / after[peer]["timely_items_per_s"]
        assert ratio >= 2


@pytest.mark.parametrize("mix", ["", "-3", "-100"])
def test_the_thesis_order_of_schedulers(shown, mix):
    total = {policy: run["total_items_per_s"] for policy, run in runs(shown, f"thesis-equal{mix}").items()}
    assert total["job-informed"] > max(
        total[other] for other in ("round-robin", "weighted-round-robin", "weighted-random", "load-informed")
    )
    slow = {policy: run["total_items_per_s"] for policy, run in runs(shown, f"thesis-slow-node{mix}").items()}
    assert slow["round-robin"] == min(slow.values())
    assert slow["job-informed"] > slow["weighted-round-robin"]


@pytest.mark.parametrize("policy", (*OURS, "fc-prop-auto"))
def test_timely_work_under_overload_is_that_of_the_oracle(shown, policy):
    by = runs(shown, "overload")
    for ours, best in zip(by[policy]["phases"], by["oracle"]["phases"], strict=True):
        assert ours["timely_items_per_s"] >= 0.95 * best["timely_items_per_s"], ours


def test_at_equal_timely_work_fewer_jobs_wait_less(shown):
    by = runs(shown, "overload")
    for bounded, ours in zip(by["fc-prop-mpl"]["phases"], by["fc-prop-auto"]["phases"], strict=True):
        assert bounded["timely_items_per_s"] >= 0.95 * ours["timely_items_per_s"], bounded
    # The same law without a level, and the load line, which has no queue that stands.
    for policy in ("fc-prop-mpl", "fc-prop"):
        assert by[policy]["mean_delay_s"] < 0.5 * by["fc-prop-auto"]["mean_delay_s"], policy


def test_where_concurrency_hurts_the_multiprogramming_level_does_more(shown):
    by = runs(shown, "contention")
    limited = by["fc-prop-mpl"]
    for policy in ("fc-prop-mpl", "fc-prop"):
        assert by[policy]["timely_items_per_s"] > 1.2 * by["fc-prop-auto"]["timely_items_per_s"], policy
    # From the 20th period on, against the best limit of a sweep (nine requests a node).
    late = limited["series"]["timely_items_per_s"][20:]
    assert sum(late) / len(late) >= 0.95 * by["static"]["timely_items_per_s"]


def test_the_multiprogramming_level_follows_load_and_conflicts(shown):
    """Middle-R, experiment 1.3: within 10 % of the best fixed level from the 20th period of each phase on."""
    by = runs(shown, "middle-r-mpl")
    fixed = [
        run["series"]["timely_items_per_s"] for policy, run in by.items() if policy.startswith("static-")
    ]
    ours = by["fc-prop-mpl"]["series"]["timely_items_per_s"]
    for begin, end in ((0, 60), (60, 120), (120, 160)):
        settled = slice(begin + 10, end)
        assert sum(ours[settled]) >= 0.9 * max(sum(one[settled]) for one in fixed), begin


def test_placement_does_what_the_best_fixed_one_does_from_the_fourth_period_on(shown):
    """The first decision is made at the end of the first period."""
    by = runs(shown, "middle-r-placement")
    ours, best = (by[policy]["series"]["timely_items_per_s"] for policy in ("placement", "primary-even"))
    assert ours[4] >= 0.95 * best[4]
    assert sum(ours[4:]) >= 0.95 * sum(best[4:])
    assert by["primary-one"]["timely_items_per_s"] == pytest.approx(60, rel=0.05)


def test_an_even_load_is_left_alone(shown):
    by = runs(shown, "middle-r-placement")
    assert by["placement-even"]["slots_moved_per_s"] == 0
    assert by["placement-even"]["series"] == by["primary-even"]["series"]


def test_cold_data_give_way_under_overload_and_come_back(shown):
    """FC-CU of Chronos: the most timely work, no period above P_max, all back 30 s after the overload."""
    for scenario in ("chronos", "updates"):
        by = runs(shown, scenario)
        best = by["fc-prop-updates"]
        others = [run["timely_items_per_s"] for policy, run in by.items() if not policy.endswith("-updates")]
        assert best["timely_items_per_s"] > 1.1 * max(others)
        assert 2.5 < best["longest_period_s"] <= 5
        assert best["p95_delay_s"] <= {"chronos": 2, "updates": 1}[scenario]
    longest = runs(shown, "updates")["fc-prop-updates"]["series"]["longest_period_s"]
    # At the start the bound is too small for the load.
    assert longest[30:60] == [0.5] * 30
    assert max(longest[60:180]) > 2.5
    assert longest[210:] == [0.5] * len(longest[210:])


def test_old_news_costs_plimsoll_little(shown):
    for policy in OURS:
        fresh, old = (runs(shown, f"stale-news-{age}")[policy]["timely_items_per_s"] for age in (1, 10))
        assert old >= 0.95 * fresh


@pytest.mark.parametrize("policy", (*OURS, "fc-prop-auto"))
def test_a_step_to_1_4_times_the_capacity_is_within_the_sla_in_three_periods(shown, policy):
    run = runs(shown, "step")[policy]
    assert run["settled"]
    assert run["settling_s"] <= 3


@pytest.mark.parametrize("policy", (*OURS, "fc-prop-auto"))
def test_no_bound_drifts_in_half_an_hour(shown, policy):
    bounds = runs(shown, "drift")[policy]["series"]["bounds_items"]
    early, late = bounds[120:420], bounds[-300:]
    assert sum(late) == pytest.approx(sum(early), rel=0.05)


@pytest.mark.parametrize("scenario", FAULTS)
@pytest.mark.parametrize("policy", OURS)
def test_timely_work_is_back_to_95_percent_when_a_fault_is_over(shown, scenario, policy):
    series = runs(shown, scenario)[policy]["series"]
    # A ring gives keys back in steps, which takes longer than weights do.
    last = slice(-10 if policy == "fc-hash" else -20, None)
    ideal = sum(series["ideal_items_per_s"][last])
    assert sum(series["timely_items_per_s"][last]) >= 0.95 * ideal


@pytest.mark.parametrize("policy", OURS)
def test_a_node_that_was_starved_has_its_share_back(shown, policy):
    """At a tenth of its speed for a minute: in the half minute after it, it is needed."""
    run = runs(shown, "slowdown")[policy]
    series = run["series"]
    after = slice(110 if policy == "fc-hash" else 100, None)
    assert sum(series["timely_items_per_s"][after]) >= 0.95 * sum(series["ideal_items_per_s"][after])
