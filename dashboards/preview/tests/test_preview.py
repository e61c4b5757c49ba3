"""Queries of a preview, without Prometheus and without a browser."""

import copy
import json

import pytest

from dashboards import ALL
from dashboards.parts import encoded
from dashboards.preview.__main__ import drawing, only, options
from dashboards.preview.recording import PreviewError, Recording, Span, every, marks, stretches

BUILT = {name: json.loads(encoded(dashboard())) for name, dashboard in ALL.items()}


def test_variables_are_filled_as_grafana_fills_them() -> None:
    span = Span(100, 160)
    filled = span.filled('rate(x{job=~"$job"}[$__rate_interval]) / $__range', {"job": ".+"})
    assert filled == 'rate(x{job=~".+"}[4s]) / 60s'
    # An hour has more samples than a graph has pixels.
    assert Span(0, 3600).step == 6
    assert Span(0, 3600).filled("[$__rate_interval]", {}) == "[7s]"
    assert Span(0, 600, scrape=15).filled("[$__rate_interval]", {}) == "[60s]"


def test_a_variable_without_a_value_is_named() -> None:
    with pytest.raises(PreviewError, match=r"no value for \$node in up\{node=\"\$node\"\}"):
        Span(0, 1).filled('up{node="$node"}', {"job": ".+"})


@pytest.mark.parametrize(("start", "end"), [(1, 1), (2, 1), (float("nan"), 1), (0, float("inf"))])
def test_there_must_be_time_to_show(start: float, end: float) -> None:
    with pytest.raises(PreviewError, match="no time to show"):
        Span(start, end)


def test_every_variable_of_the_dashboards_has_a_value() -> None:
    for dashboard in BUILT.values():
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                assert "$" not in Span(0, 60).filled(target["expr"], every(dashboard))


def test_samples_that_follow_each_other_are_one_stretch() -> None:
    assert stretches([1, 2, 3, 7, 8, 20], 1) == [(1, 3), (7, 8), (20, 20)]
    assert stretches([], 1) == []


def test_marks_are_named_and_within_the_time_shown() -> None:
    alert = {"titleFormat": "{{alertname}} {{instance}}", "iconColor": "red"}
    firing = [{"metric": {"alertname": "Late", "instance": "a"}, "values": [[11, "1"], [12, "1"]]}]
    assert marks(alert, firing, Span(10, 20)) == [
        {"name": "Late a", "color": "red", "from": 11, "to": 12},
    ]
    event = {"titleFormat": "{{event}}", "iconColor": "blue", "useValueForTime": True}
    seen = [{"metric": {"event": "burst"}, "values": [[11, "15000"], [12, "15000"], [13, "99000"]]}]
    assert marks(event, seen, Span(10, 20)) == [{"name": "burst", "color": "blue", "from": 15, "to": 15}]


def test_chosen_panels_close_up() -> None:
    titles = ["Late nodes", "Which node, and why", "Timely share", "Burn rate over time"]
    kept = only(copy.deepcopy(BUILT["sla"]), titles)["panels"]
    places = [(panel["title"], panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in kept]
    expected = [("Late nodes", 0, 0), ("Which node, and why", 0, 4), ("Timely share", 0, 12)]
    assert places == [*expected, ("Burn rate over time", 12, 12)]


def test_a_recording_can_be_kept(tmp_path, monkeypatch) -> None:
    made = Recording(1.0, 2.0, 1.0, {"plimsoll-sla": {"1": {"A": []}}}, {"plimsoll-sla": []})
    assert Recording.read(made.text(), "it") == made
    with pytest.raises(PreviewError, match="it is not a recording"):
        Recording.read('{"start": 1}', "it")
    monkeypatch.setattr("sys.argv", ["preview", "--recording", str(tmp_path / "kept.json")])
    given = options()
    assert drawing(made, BUILT["sla"], given)["answers"] == {"1": {"A": []}}
    with pytest.raises(PreviewError, match=r"has no plimsoll-node: it was made of plimsoll-sla"):
        drawing(made, BUILT["node"], given)
