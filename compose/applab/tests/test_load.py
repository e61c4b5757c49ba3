"""Loads, what is wrong with others, and what became of the requests."""

import csv
import gzip

import pytest

from compose.applab.arrivals import Arrivals, due
from compose.applab.scenario import MAX_REQUESTS_PER_S, Step, parse, rates, scenario
from compose.lab.errors import LabError


def test_the_load_is_read_step_by_step():
    assert parse("0.5:20,3:2.5") == (Step(0.5, 20.0), Step(3.0, 2.5))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "--load '': step 1, '': must be load:seconds, as in 1.5:25"),
        ("0.5:20,", "--load '0.5:20,': step 2, '': must be load:seconds, as in 1.5:25"),
        ("0.5", "--load '0.5': step 1, '0.5': must be load:seconds, as in 1.5:25"),
        ("0.5:x", "--load '0.5:x': step 1, '0.5:x': must be load:seconds, as in 1.5:25"),
        ("0:5", "--load '0:5': step 1, '0:5': the load must be above 0 and at most 100 times the capacity"),
        ("nan:5", "--load 'nan:5': step 1, 'nan:5': the load must be above 0 and at most 100"),
        ("1:0.5", "--load '1:0.5': step 1, '1:0.5': must last within 1..3600 s"),
        ("1:inf", "--load '1:inf': step 1, '1:inf': must last within 1..3600 s"),
        ("1:2000,1:2000", "--load '1:2000,1:2000': must last at most 3600 s together"),
        (",".join(["1:1"] * 21), "--load: 21 steps, at most 20"),
    ],
)
def test_malformed_load_is_refused(text, error):
    with pytest.raises(LabError) as raised:
        parse(text)
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("burst",), "--scenario burst: with an application it must be one of overload, slow-node,"),
        (("overload", None, False, 0.5), "--value 0.5: only scenario slow-node has one"),
        (("slow-node", None, False, 0.01), "--value 0.01: must be within 0.05..1"),
        (("pause", "1:5,1:3"), "--load '1:5,1:3': scenario pause needs three steps"),
    ],
)
def test_a_scenario_that_is_not_there(arguments, error):
    with pytest.raises(LabError) as raised:
        scenario(*arguments)
    assert str(raised.value).startswith(error)


def test_a_slow_node_has_part_of_its_quota():
    assert scenario("slow-node", value=0.1).quotas() == {"node1": 0.25, "node2": 0.25, "node3": 0.025}
    assert set(scenario("overload").quotas().values()) == {0.25}


def test_a_pause_is_the_second_step():
    made = scenario("pause")
    assert (made.begins(1), made.begins(2) - made.begins(1)) == (15.0, 3.0)
    assert made.event_text() == "node3 stops for 3 s"
    assert scenario("kill").event_text() == "node3 is killed, and back after 10 s"


def test_rates_are_parts_of_the_capacity():
    assert rates((Step(0.5, 1), Step(3.0, 1)), 60.0) == [30.0, 180.0]
    with pytest.raises(LabError) as raised:
        rates((Step(20.0, 1),), 60.0)
    assert str(raised.value) == (
        "--load 20: of a capacity of 60.0 requests/s that is 1,200 requests/s; "
        f"k6 beside the nodes sends at most {MAX_REQUESTS_PER_S:g}"
    )


def test_requests_are_due_at_the_rate_of_each_step():
    times = due((Step(1, 1), Step(2, 2)), [2.0, 4.0])
    assert times == [0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0]


def test_fractional_rate_carries_its_remainder():
    assert due((Step(1, 1), Step(1, 2)), [1.5, 1.0]) == pytest.approx([2 / 3, 1.5, 2.5])


def test_records_begin_when_the_first_request_was_due(tmp_path):
    console = tmp_path / "console.log"
    arrivals = Arrivals(console, {"127.0.0.1:1": "node1"})
    arrivals.poll()
    # Half a line, as it may be read while k6 writes.
    console.write_text("start,1000\n1,1200,5000.0,0,timeout,5.9,,0\n0,700,20.0,200,ok,118.0,127.0")
    arrivals.poll()
    assert arrivals.start_unix == 1.0
    with console.open("a") as file:
        file.write(".0.1:1,0\n2,1730,3.0,503,refused,11.8,,1\n")
    lags = arrivals.finish(tmp_path / "requests.csv.gz", due((Step(1, 3),), [2.0]))
    with gzip.open(tmp_path / "requests.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    names = ("t_s", "delay_s", "status", "class", "outcome", "items", "node")
    told = [tuple(row[name] for name in names) for row in rows]
    # An item is the work of a mean request, 11.8 ms of CPU.
    assert told == [
        ("0.5000", "0.0200", "200", "query", "ok", "10.0000", "node1"),
        ("1.0000", "5.0000", "0", "query", "timeout", "0.5000", ""),
        ("1.5300", "0.0030", "503", "important", "refused", "1.0000", ""),
    ]
    assert lags == pytest.approx([0.0, 0.0, 0.03])
    assert arrivals.counts == {"error": 1, "ok": 1, "refused": 1}
    assert arrivals.timely(0, 1) == 1


def test_a_line_that_is_no_record_is_shown(tmp_path):
    (tmp_path / "console.log").write_text("k6 fell over\n")
    with pytest.raises(LabError, match=r"console.log: 'k6 fell over' is no record"):
        Arrivals(tmp_path / "console.log", {}).poll()
