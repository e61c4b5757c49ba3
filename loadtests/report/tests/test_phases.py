"""Runs on a real application: figures of each phase, by hand."""

import json

import pytest

from loadtests.report.tests.conftest import Run, request, sample

CAPACITY = {"how": "by hand", "start_per_s": {"node1": 2.0}, "end_per_s": {"node1": 1.5}}
PHASES = [
    {"from_s": 0.0, "to_s": 10.0, "load": 0.5, "offered_per_s": 1.0},
    {"from_s": 10.0, "to_s": 20.0, "load": 1.5, "offered_per_s": 3.0},
]


def add(run: Run, name: str, requests: list[str], group=None, phases=PHASES, event=None, nodes=()) -> None:
    run.facts |= {"app": "go", "capacity": CAPACITY}
    facts = {"app": "go", "group": group, "phases": phases, "measured_from_s": 0.0, "measured_to_s": 20.0}
    facts |= {"event_s": event, "event": event and "node1 stops"}
    run.add(name, requests, list(nodes), facts | {"node_capacity_items_per_s": CAPACITY["start_per_s"]})


def answered(begin: int, count: int, delay: float, outcome: str = "ok") -> list[str]:
    """So many requests, all within a second."""
    return [request(begin + n / count / 2, delay, items=1, outcome=outcome) for n in range(count)]


@pytest.fixture
def swept(run) -> Run:
    light = answered(1, 10, 0.5)
    # Of 30 in the second phase: 12 in time, 6 late, 6 refused, 3 given up, 1 failed, and 2 never sent.
    busy = [
        *answered(11, 12, 0.5),
        *answered(12, 6, 2.0),
        *answered(13, 6, 0.0, "refused"),
        *answered(14, 3, 5.0, "timeout"),
        *answered(15, 1, 0.1, "error"),
    ]
    add(run, "rr", [*light, *answered(11, 3, 0.9), *answered(12, 27, 4.0)])
    add(run, "static-2", [*light, *busy], "static")
    add(run, "static-4", [*light[:8], *answered(11, 24, 1.0), *answered(12, 6, 0.0, "refused")], "static")
    return run


def test_phase_counts_requests_sent_in_it(swept):
    first, second = swept.figures("static-2")["phases"]
    assert (first["timely_per_s"], first["offered_per_s"], first["load"]) == (1.0, 1.0, 0.5)
    assert (first["p50_delay_s"], first["p95_delay_s"], first["refused_fraction"]) == (0.5, 0.5, 0.0)
    assert (second["from_s"], second["to_s"], second["timely_per_s"]) == (10.0, 20.0, 1.2)
    assert second["refused_fraction"] == 0.2
    assert second["timeout_fraction"] == 0.1
    assert second["error_fraction"] == pytest.approx(1 / 30, abs=1e-4)
    # Of the two missing requests, one may be due at the border.
    assert second["dropped_fraction"] == pytest.approx(1 / 30, abs=1e-4)
    # 18 were served, six of them in 2 s.
    assert (second["p50_delay_s"], second["p95_delay_s"], second["p99_delay_s"]) == (0.5, 2.0, 2.0)


def test_the_highest_class_has_its_own_figures(run):
    mixed = [
        *(request(11, 0.2, items=1, kind="important") for _ in range(7)),
        request(12, 2.0, items=1, kind="important"),
        request(13, 0.0, items=1, outcome="refused", kind="important"),
        request(14, 0.0, items=1, outcome="refused", kind="important"),
        *answered(15, 5, 0.0, "refused"),
    ]
    add(run, "lua-fc-prop", mixed)
    first, second = run.figures("lua-fc-prop")["phases"]
    assert (first["important_timely_fraction"], first["important_p95_delay_s"]) == (None, None)
    assert (second["important_timely_fraction"], second["important_p95_delay_s"]) == (0.7, 1.37)
    assert second["refused_fraction"] == pytest.approx(7 / 30, abs=1e-4)


def test_a_phase_is_compared_with_the_best_of_the_run(swept):
    parts = {
        name: [phase["timely_of_best"] for phase in swept.figures(name)["phases"]]
        for name in ("rr", "static-2", "static-4")
    }
    assert parts == {"rr": [1.0, 0.125], "static-2": [1.0, 0.5], "static-4": [0.8, 1.0]}


def test_what_can_be_timely_is_what_is_offered_and_what_the_nodes_can_do(swept):
    first, second = swept.figures("static-2")["phases"]
    assert (first["possible_per_s"], first["timely_of_possible"]) == (1.0, 1.0)
    assert (second["possible_per_s"], second["timely_of_possible"]) == (2.0, 0.6)


def test_a_node_that_is_away_can_do_nothing(run):
    # The event is a moment after the phase's first sample, its end after that of the next.
    nodes = [
        sample(10.0, capacity=2),
        sample(11.0, capacity=0),
        sample(19.0, capacity=0),
        sample(20.0, capacity=0),
    ]
    phases = [*PHASES, {"from_s": 20.0, "to_s": 22.0, "load": 0.5, "offered_per_s": 1.0}]
    add(run, "rr", answered(11, 10, 0.5), phases=phases, event=10.0, nodes=[*nodes, sample(21.0, capacity=2)])
    found = [(p["possible_per_s"], p["timely_of_possible"]) for p in run.figures("rr")["phases"]]
    assert found == [(1.0, 0.0), (0.0, None), (1.0, 0.0)]


# Of two a second that can be timely: how many are, second by second.
@pytest.mark.parametrize(
    ("timely", "seconds"),
    [
        ([2] * 10, 0),
        ([0, 0, 1] + [2] * 7, 3),
        # One more makes up for one too few a second later, and for none a good while later.
        ([0] + [1, 3] * 4 + [2], 2),
        ([2] * 5 + [0, 0] + [2] * 3, None),
        ([2] * 8 + [0, 2], None),
        ([0] * 10, None),
    ],
)
def test_a_phase_is_settled_from_when_enough_is_timely_for_good(run, timely, seconds):
    requests = [line for second, count in enumerate(timely) for line in answered(10 + second, count, 0.5)]
    add(run, "rr", [*answered(9, 1, 0.5), *requests])
    assert run.figures("rr")["phases"][1]["settling_s"] == seconds


def test_what_is_late_or_refused_settles_nothing(run):
    busy = [line for second in range(10, 20) for line in answered(second, 2, 1.5 if second < 14 else 0.5)]
    add(run, "rr", [*busy, *answered(12, 3, 0.0, "refused"), *answered(13, 1, 0.0, "refused")])
    first, second = run.figures("rr")["phases"]
    assert (first["last_refusal_s"], second["last_refusal_s"], second["settling_s"]) == (None, 3.0, 4)


def test_the_table_names_the_best_value_of_a_sweep(swept, capsys):
    assert swept.report("--markdown") == 0
    text = capsys.readouterr().out
    assert "| static-2 | 1.0 | 100% | 0.50 | 1.2 | 50% | 2.00 |" in text
    assert "| static-2 | 100% | 0 | - | 60% | - | 3.4 |" in text
    assert "| static-2 | 0.0% | 0.0% | 0.0% | 0.0% | 20.0% | 10.0% | 3.3% | 3.3% |" in text
    assert "best static: 0.5x static-2 (100%, p95 0.50 s); 1.5x static-4 (100%, p95 1.00 s)" in text


def test_page_names_the_run(swept):
    assert swept.report() == 0
    text = (swept.directory / "report.html").read_text()
    assert "application go; capacity 2.0 requests/s before the first policy, 1.5 after the last" in text
    assert "Open-loop clients" in text
    assert "95th percentile of delay over time, static-4" in text


@pytest.mark.parametrize(
    ("phases", "error"),
    [
        ([], "phases is [], expected a list of at least one phase"),
        ([PHASES[0] | {"load": 0}], "phases[0].load is 0, expected a number above 0"),
        ([PHASES[0] | {"to_s": 0.0}], "phases[0] ends at 0.0, before it begins"),
    ],
)
def test_bad_phases(run, capsys, phases, error):
    add(run, "rr", [], phases=phases)
    assert run.report() == 1
    assert f"rr/meta.json: {error}" in capsys.readouterr().err


def test_a_run_that_did_not_end_has_no_capacity_afterwards(run, capsys):
    add(run, "rr", [])
    run.facts["capacity"] = CAPACITY | {"end_per_s": None}
    run.save()
    assert run.report() == 1
    assert "run.json: capacity.end_per_s is null" in capsys.readouterr().err


def test_policies_of_one_run_have_the_same_phases(run, capsys):
    add(run, "rr", [])
    add(run, "leastconn", [], phases=PHASES[:1])
    assert run.report() == 1
    assert json.loads((run.directory / "run.json").read_text())["policies"] == ["rr", "leastconn"]
    assert "run.json: policies differ in their phases" in capsys.readouterr().err


def test_the_targets_are_those_of_the_best_static_limit_and_of_envoys_best(run, capsys):
    light = answered(1, 10, 0.5)
    add(run, "static-2", [*light, *answered(11, 20, 0.5)], "static")
    add(run, "static-4", [*light, *answered(11, 24, 1.0)], "static")
    add(run, "envoy-adaptive-concurrency", [*light, *answered(11, 25, 0.1)])
    add(run, "fc-prop", [*light[:9], *answered(2, 1, 0.0, "refused"), *answered(11, 24, 0.8)])
    assert run.targets() == [
        "FAIL  fc-prop at 0.5x from 0 s: refused: 0.1 (at most 0.005)",
        "pass  fc-prop at 1.5x from 10 s: settling, s: 0 (at most 3)",
        "pass  fc-prop at 1.5x from 10 s: timely, of the best static limit's: 1 (at least 0.98)",
        "pass  fc-prop at 1.5x from 10 s: p95, of that limit's: 0.8 (at most 1.2)",
        "FAIL  fc-prop at 1.5x from 10 s: timely, of Envoy's best: 0.96 (at least 1)",
    ]


def test_a_request_of_ten_times_the_work_is_ten_items(run):
    few = [request(1.0, 0.5, items=10), request(2.0, 0.5, items=1), request(3.0, 2.0, items=10)]
    add(run, "rr", few, phases=PHASES[:1])
    [phase] = run.figures("rr")["phases"]
    assert (phase["timely_per_s"], phase["timely_items_per_s"]) == (0.2, 1.1)


def test_static_limit_is_the_reference_while_a_node_is_away(run, capsys):
    away = [PHASES[0], PHASES[1] | {"load": 0.85}]
    add(run, "static-2", [*answered(1, 10, 0.5), *answered(11, 20, 0.5)], "static", away, 10.0)
    add(run, "fc-prop", [*answered(1, 10, 0.5), *answered(11, 20, 0.5)], phases=away, event=10.0)
    assert run.targets() == [
        "pass  fc-prop at 0.5x from 0 s: refused: 0 (at most 0.005)",
        "pass  fc-prop at 0.85x from 10 s: settling, s: 0 (at most 3)",
        "pass  fc-prop at 0.85x from 10 s: timely, of the best static limit's: 1 (at least 0.98)",
        "pass  fc-prop at 0.85x from 10 s: p95, of that limit's: 1 (at most 1.2)",
    ]
