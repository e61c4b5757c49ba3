"""What the table says of cells' summaries."""

import pytest

from loadtests.families import table


def phase(load, timely, possible, offered, refused, p50=0.1, p99=0.3, settling=1.0):
    return {
        "load": load,
        "timely_per_s": timely,
        "possible_per_s": possible,
        "timely_of_possible": timely / possible if possible else None,
        "offered_per_s": offered,
        "refused_fraction": refused,
        "p50_delay_s": p50,
        "p99_delay_s": p99,
        "settling_s": settling,
    }


def summary(seed, timely, app="go", scenario="overload", cpu=0.02, limited=False):
    run = {
        "policy": "fc-leastconn",
        "proxy": "haproxy 2.6.12",
        "app": app,
        "generator_limited": limited,
        "proxy_cpu_share": cpu,
        "requests": 1000,
        "measured_from_s": 0.0,
        "measured_to_s": 10.0,
        "phases": [phase(3.0, timely, 50.0, 150.0, 0.6)],
    }
    return {"scenario": scenario, "seed": seed, "runs": [run]}


def test_a_figure_is_the_median_of_the_seeds_with_both_ends():
    headings, [row] = table.rows([summary(1, 40.0), summary(2, 50.0), summary(3, 45.0)])
    found = dict(zip(headings, row, strict=True))
    assert found["3x: timely, of what can be"] == "90% (80% to 100%)"
    assert found["p50 s"] == "0.10"
    assert found[table.CPU] == "200"


@pytest.mark.parametrize(
    ("timely", "possible", "offered", "refused", "expected"),
    [
        # All that the nodes can do is done: what was refused could not have been served.
        (50.0, 50.0, 150.0, 0.66, 0.0),
        # Under the capacity, all that is refused could have been.
        (19.0, 25.0, 25.0, 0.04, 0.04),
        # In overload, no more than the nodes had left.
        (20.0, 50.0, 150.0, 0.8, 0.2),
        (20.0, None, 150.0, 0.8, None),
    ],
)
def test_a_refusal_counts_as_needless_while_the_nodes_could_have_done_more(
    timely, possible, offered, refused, expected
):
    assert table.needless(phase(1.0, timely, possible, offered, refused)) == (
        None if expected is None else pytest.approx(expected)
    )


def test_cells_are_apart_by_application_and_scenario_and_a_limited_generator_shows():
    text = table.markdown([summary(1, 40.0), summary(1, 30.0, app="flask", limited=True), summary(2, 44.0)])
    assert [line for line in text.splitlines() if line.startswith("##")] == [
        "## go, overload (seeds 1, 2)",
        "## flask, overload (seeds 1)",
    ]
    assert "fc-leastconn (generator limited)" in text


def test_a_figure_that_no_seed_has_is_a_dash():
    assert table.spread([None, None]).text(".0f") == "-"
