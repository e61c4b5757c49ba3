"""report.html, the Markdown table and the picture."""

import json
import re
from xml.etree import ElementTree

import pytest

from loadtests.report.picture import NAMES
from loadtests.report.tests.conftest import Run, request, sample, steady
from loadtests.report.tests.told import Page, page

HOSTILE = "<script>alert('x')&\"$_{$"
BOUNDS = [
    sample(t, capacity=1000, bound=500 + t, reason="under_sla" if t % 2 else "over_sla") for t in range(30)
]


def with_two(run: Run) -> Run:
    run.add("rr", [*steady(10, 15), *steady(15, 30, delay=2.0)])
    run.add("fc-prop", steady(10, 30), BOUNDS)
    return run


@pytest.fixture
def two(run) -> Run:
    return with_two(run)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> Page:
    return page(with_two(Run(tmp_path_factory.mktemp("run") / "20000101T000000Z-burst")))


def test_nothing_is_fetched(drawn):
    assert {tag for tag, _ in drawn.tags}.isdisjoint({"script", "link", "img", "iframe", "object", "image"})
    for tag, attributes in drawn.tags:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
                assert value.startswith("#"), (tag, name, value)
            assert not name.startswith("on")
    assert set(re.findall(r"url\(\s*(.)", drawn.text)) <= {"#"}
    assert "@import" not in drawn.text


def test_all_charts_are_there(drawn):
    assert drawn.labels() == [
        "Timely throughput per policy against ideal",
        "Timely items over time, rr",
        "Timely items over time, fc-prop",
        "Mean delay over time, rr",
        "Mean delay over time, fc-prop",
        "Bound per node over time, fc-prop",
        "Weight per node over time, fc-prop",
        "Why the bound changed, fc-prop",
    ]


def test_charts_have_axis_labels_and_the_event(drawn):
    words = drawn.words
    for expected in ("seconds since the clients started", "items/s", "bound, items", "weight, %", "over_sla"):
        assert expected in words
    assert "The event (dotted in the charts): a burst." in " ".join(words)


def test_a_policy_without_agents_has_no_bound_chart(run):
    run.add("rr", steady(10, 30), [sample(t, capacity=1000) for t in range(30)])
    assert not [label for label in page(run).labels() if "Bound" in label or "Weight" in label]


def test_every_reference_has_its_one_target(drawn):
    ids = [attributes["id"] for _, attributes in drawn.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = set(re.findall(r'(?:href="|url\()#([^")]+)', drawn.text))
    assert targets and targets <= set(ids)


def test_names_are_escaped_everywhere(run):
    run.facts["machine"]["cpu"] = HOSTILE
    run.facts["scenario"] = run.facts["command"] = HOSTILE
    bounds = [sample(t, "<i>n</i>", 1000, 500 + t, "<b>why</b>") for t in range(30)]
    facts = {"event": HOSTILE, "node_capacity_items_per_s": {"<i>n</i>": 1000.0}}
    run.add(HOSTILE, steady(10, 30), bounds, facts)
    found = page(run)
    assert {tag for tag, _ in found.tags}.isdisjoint({"script", "b"})
    assert "<i>n</i>" in found.words
    assert f"Mean delay over time, {HOSTILE}" in found.labels()
    assert "<b>why</b>" in found.words
    assert found.words.count(HOSTILE) >= 3


@pytest.mark.parametrize("requests", [[], [request(12, 0.1, outcome="refused", node="")]])
def test_a_policy_without_answers_has_a_page(run, requests):
    run.add("rr", requests)
    assert "Mean delay over time, rr" in page(run).labels()


def test_the_same_records_give_the_same_page(two):
    page(two)
    before = (two.directory / "report.html").read_bytes()
    page(two)
    assert (two.directory / "report.html").read_bytes() == before


def test_markdown_is_the_table_and_nothing_else(two, capsys):
    assert two.report("--markdown") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| policy | proxy | timely items/s | of ideal | from 5 s | vs rr | vs prop |")
    assert lines[1] == "| --- |" + " ---: |" * 16
    # rr: five timely seconds of twenty, and 18 answers before the end.
    assert lines[2] == (
        "| rr | haproxy | 25 | 25.0% | 0.0% | 1.00 | - | 90 | 1.62 | 2.00 | 2.00 | 2.00 | >15 | 0.0% "
        "| 0.00% | - | 0.25 |"
    )
    assert lines[3] == (
        "| fc-prop | haproxy | 100 | 100.0% | 100.0% | 4.00 | - | 100 | 0.50 | 0.50 | 0.50 | 0.50 | 0 "
        "| 0.0% | 0.00% | - | 0.25 |"
    )
    assert len(lines) == 4


def test_a_bar_in_a_name_does_not_break_the_markdown(run, capsys):
    run.add("a|b", steady(10, 30), facts={"generator": {"cpu_share": 1.0, "lag_p99_s": 0.0}})
    assert run.report("--markdown") == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("| a\\|b (generator limited) | haproxy | 100 |")


def test_the_terminal_has_an_aligned_table_and_the_targets(two, capsys):
    words = page(two).words
    lines = capsys.readouterr().out.splitlines()
    assert len({len(line) for line in lines[:3]}) == 1
    targets = two.targets()
    assert targets and set(targets) <= set(lines) and set(targets) <= set(words)


def test_what_a_quick_run_is_not_judged_by_is_said_in_both(two, capsys):
    two.facts["quick"] = True
    two.save()
    found = page(two)
    skipped = [line for line in capsys.readouterr().out.splitlines() if line.startswith("skip  ")]
    assert skipped and all(line.endswith("not judged in a quick run") for line in skipped)
    assert set(skipped) <= set(found.words)
    assert found.tags.count(("li", {"class": "skip"})) == len(skipped)


def picture(run) -> ElementTree.Element:
    path = run.directory / "picture.svg"
    assert run.report("--picture", str(path)) == 0
    assert path.stat().st_size < 60_000
    return ElementTree.parse(path).getroot()


def words(svg: ElementTree.Element) -> list[str]:
    return [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]


def test_the_picture_shows_bars_and_delays(two):
    svg = picture(two)
    found = words(svg)
    assert "25 · 25.0%" in found and "100 · 100.0%" in found
    # Each name once at its bar and once at its curve.
    assert found.count("rr") == found.count("fc-prop") == 2
    assert "SLA 1 s" in found and "seconds since the clients started; dotted: the event" in found
    bars = [
        (float(e.get("width")), e.get("fill"))
        for e in svg.iter("{http://www.w3.org/2000/svg}rect")
        if float(e.get("x", 0)) == NAMES
    ]
    ideal = [width for width, fill in bars if fill == "#dfe3e8"]
    timely = [width for width, fill in bars if fill != "#dfe3e8"]
    assert timely == pytest.approx([0.25 * ideal[0], ideal[1]], abs=0.1)


def test_everything_is_within_the_picture(run):
    for name in ("rr", "leastconn", "static-maxconn", "fc-prop", "fc-prop-mean", "fc-hash"):
        run.add(name, steady(10, 30, items=100_000), [sample(1, capacity=100_000)])
    svg = picture(run)
    width, height = float(svg.get("width")), float(svg.get("height"))
    for element in svg.iter("{http://www.w3.org/2000/svg}text"):
        # Wider than any common sans-serif has it.
        length = 0.62 * float(element.get("font-size")) * len(element.text)
        x = (
            float(element.get("x"))
            - {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor")] * length
        )
        assert x >= 0 and x + length <= width, element.text
        assert 0 < float(element.get("y")) < height


def test_the_picture_follows_from_the_summary_alone(two):
    path = two.directory / "picture.svg"
    picture(two)
    before = path.read_bytes()
    two.facts["started"] = "2001-01-01T00:00:00+00:00"
    two.save()
    picture(two)
    assert path.read_bytes() == before


def test_the_picture_of_other_policies_and_without_answers(run):
    run.add(HOSTILE, [], facts={"event_s": None, "event": None})
    found = words(picture(run))
    assert found.count(HOSTILE) == 2
    assert "seconds since the clients started" in found


def test_a_second_without_answers_is_a_gap(run):
    run.add("rr", [*steady(10, 15), *steady(20, 30)])
    svg = picture(run)
    curve = next(
        e for e in svg.iter("{http://www.w3.org/2000/svg}path") if e.get("stroke-width") == "2.4"
    ).get("d")
    assert curve.count("M") == 2
    assert curve.count("L") == 4 + 9


def test_the_summary_is_plain_json(two):
    assert two.report() == 0
    text = (two.directory / "summary.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == two.summary()
