"""The experiment, small: what it generates, and a run of the whole."""

import json
import subprocess
import sys

import numpy as np
import pytest

from compose.lab.topology import ROOT
from compose.scatter import data, figures
from compose.scatter.measure import Answer
from tests.harness.programs import needs_partitions

ROWS = 3000


def test_molecules_have_the_papers_sizes_and_its_growth_of_hits():
    points, cluster = data.molecules(200_000, 1)
    shares = np.bincount(cluster) / len(cluster)
    assert np.allclose(shares, np.array(data.SIZES) / sum(data.SIZES), atol=0.005)
    hits = {distance: data.hits(points, distance) for distance in data.HITS}
    most = hits[0.7].sum()
    for distance, paper in data.HITS.items():
        assert hits[distance].sum() / most == pytest.approx(paper / data.HITS[0.7], rel=0.25, abs=0.002)
    # Table 4: the fifth cluster has most of them, the first some, the third few.
    of = np.bincount(cluster[hits[0.7]], minlength=8) / most
    assert of[4] > 0.75 and 0.1 < of[0] < 0.25 and 0 < of[2] < 0.05 and of[[1, 3, 5, 6, 7]].sum() == 0


def test_the_same_seed_makes_the_same_file(tmp_path):
    texts = []
    for number in range(2):
        path = tmp_path / str(number)
        data.write(data.molecules(100, 7)[0], path)
        texts.append(path.read_text())
    assert texts[0] == texts[1]
    first = texts[0].splitlines()[1].split(",")
    assert tuple(map(float, first[1:])) == data.POINT


def answer(partitioning: str, total: float, query: float) -> Answer:
    pieces = {"client": 0.0, "dissemination": 0.0, "databases": query, "aggregation": total - query}
    return Answer(
        "memory", partitioning, 0.5, 1, 1, total, queries={"one": query, "two": query / 2}, **pieces
    )


def test_speed_ups_are_the_papers():
    totals = {"single": 1.0, "clusters": 0.9, "horizontal": 0.5, "both": 0.4}
    answers = [answer(name, total, 0.8 * total) for name, total in totals.items() for _ in range(3)]
    lines = figures.lines(answers)
    at = {line["partitioning"]: line for line in lines}
    assert at["horizontal"]["speedup"]["median"] == pytest.approx(2)
    # 1 / (0.2 + 0.8 / 2)
    assert at["horizontal"]["speedup_2"] == pytest.approx(1 / 0.6)
    met = [target.met for target in figures.targets("memory", lines)]
    assert met == [True, False, True]


@needs_partitions
@pytest.mark.timeout(400)
def test_a_small_run_measures_all(tmp_path):
    command = [sys.executable, "-m", "compose.scatter", "--rows", str(ROWS), "--repeats", "1"]
    done = subprocess.run(
        [*command, "--page-delay", "10", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (directory,) = tmp_path.iterdir()
    summary = json.loads((directory / "summary.json").read_text())
    sizes = {name: one["rows_by_node"] for name, one in summary["loaded"].items()}
    assert all(sum(by_node.values()) == ROWS for by_node in sizes.values())
    assert max(sizes["clusters"].values()) > 2 * ROWS / 8
    for mode in summary["modes"]:
        assert len(mode["lines"]) == 4 * len(data.HITS)
        for line in mode["lines"]:
            pieces = sum(line[f"{piece}_s"]["median"] for piece in figures.PIECES)
            assert pieces == pytest.approx(line["total_s"]["median"], abs=1e-6)
    memory, disk = (mode["pages"]["single"]["0.7"] for mode in summary["modes"])
    assert memory <= disk
    assert "<svg" in (directory / "report.html").read_text()
    assert "speed-up" in done.stdout
