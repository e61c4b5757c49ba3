"""The page and the summary of a run."""

from compose.chaos import checker, page
from compose.chaos.checker import Violation
from compose.chaos.history import Attempt, History, Refusal


def history() -> History:
    attempts = [
        Attempt(number, f"w{number}", "write", "lb1", number + 0.5, number + 0.6, 200 if number % 2 else 503)
        for number in range(1, 11)
    ]
    cut = {"from": ["redis1"], "both_ways": True}
    fault = {"event": "fault", "seconds": 2.0}
    events = [
        {"at": 1.0, "event": "started"},
        {"at": 2.0, "number": 1, "event": "paused", "program": "redis2"},
        {"at": 2.0, "number": 1, "kind": "pause", "target": "redis-master", "detail": {}, **fault},
        {"at": 4.0, "number": 1, "event": "healed"},
        {"at": 5.0, "number": 2, "kind": "cut", "target": "lb1", "detail": cut, **fault},
        {"at": 7.0, "number": 2, "event": "healed"},
    ]
    return History(attempts, [], [Refusal("node1", "w3", 3, "late")], events, {})


def test_the_page_has_violations_faults_and_what_they_cost(tmp_path):
    found = [Violation(checker.ONE_PRIMARY, 4.25, "<A> at node1 and at node2")]
    path = tmp_path / "report.html"
    page.write(path, history(), found, {"seed": 7, "seconds": 60.0})
    text = path.read_text()
    assert "make chaos SECONDS=60 SEED=7" in text
    assert "3.25 s: &lt;A&gt; at node1 and at node2" in text
    assert text.count('<td class="FAIL">1</td>') == 1
    assert "1 pause redis2" in text
    assert "2 cut lb1" in text
    assert "10 operations, 50.00 % of them timely" in text
    # It fetches nothing.
    assert "src=" not in text
    lines = page.summary(history(), found)
    assert f"1 violations of: {checker.ONE_PRIMARY}" in lines
    assert f"0 violations of: {checker.BOUNDS}" in lines
    assert "  3.25 s: <A> at node1 and at node2" in lines
