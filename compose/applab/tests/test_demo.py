"""What the demo draws, from records by hand, and what it says where it cannot start."""

import os
import re
import subprocess
import sys

import pytest

from compose.applab import picture
from compose.applab.arrivals import Record
from compose.applab.picture import Show
from compose.applab.scenario import Step
from compose.lab.topology import ROOT
from tests.harness import programs

SHOW = Show((Step(0.5, 3), Step(2.0, 6), Step(0.5, 5)), (5.0, 20.0, 5.0), 10.0)
ESCAPE = re.compile(r"\x1b\[\d*m")


def sent(each: list[tuple[float, int, float, str]]) -> list[Record]:
    """So many requests at a time, with a delay and an outcome."""
    return [Record(0, at, delay, "", outcome, 1.0, "") for at, n, delay, outcome in each for _ in range(n)]


RECORDS = {
    "round robin": sent(
        [
            *((second, 5, 0.1, "ok") for second in range(3)),
            (3, 8, 0.4, "ok"),
            (3, 12, 1.5, "ok"),
            *((second, 20, 5.0, "timeout") for second in range(4, 9)),
        ]
    ),
    "with Plimsoll": sent(
        [
            *((second, 5, 0.1, "ok") for second in range(3)),
            *((second, 10, 0.4, "ok") for second in range(3, 9)),
            *((second, 10, 0.01, "refused") for second in range(3, 9)),
            *((second, 5, 0.1, "ok") for second in range(9, 14)),
        ]
    ),
}
GOLDEN = """\
The same requests to two equal sets of nodes; 95 % are to end within 0.5 s.
 10 of 14 s: 5 requests/s to either side, half the capacity

round robin
    0 timely requests/s       ▂▂▂█
    0 refused, 20 gave up     ████
with Plimsoll                    ▄▄▄▄▄▄
    5 timely requests/s       ▂▂▂██████▂
    0 refused, 0 gave up      ██████████
                              └0.└2x───└0.5x
p95 of the delay, up to the 5 s after which clients give up
round robin                            █
 5.00 s                                █
                              ▁▁▁▂▇    █
with Plimsoll
 0.10 s
                              ▁▁▁▂▂▂▂▂▂▁
                              └0.└2x───└0.5x
"""


def drawn(colours: bool, seconds: int = 10) -> list[str]:
    sides = {name: picture.by_second(records, seconds) for name, records in RECORDS.items()}
    return picture.picture(SHOW, sides, colours)


def test_the_picture_is_this_one():
    assert "\n".join([*drawn(False), ""]) == GOLDEN
    assert [ESCAPE.sub("", line).rstrip() for line in drawn(True)] == drawn(False)
    # A second in time is green, one that is late red.
    assert any(f"{picture.GREEN}▁▁▁▂{picture.RED}▇" in line for line in drawn(True))


def test_the_picture_is_as_high_and_wide_at_every_second():
    assert {len(drawn(False, seconds)) for seconds in range(SHOW.duration + 1)} == {len(drawn(False))}
    widest = Show((Step(0.5, 6), Step(2.0, 18), Step(0.5, 18)), (300.0, 600.0, 300.0), 300.0)
    full = {name: [picture.Figures(600, 600, 600, 1800, 5.0)] * 42 for name in RECORDS}
    lines = [*picture.picture(widest, full, False), picture.line(widest, full, 41), *picture.WHERE_NEXT]
    assert max(map(len, lines)) <= picture.WIDTH


def test_a_second_is_a_line_where_there_is_no_terminal():
    sides = {name: picture.by_second(records, 10) for name, records in RECORDS.items()}
    assert picture.line(SHOW, sides, 8) == (
        " 9 s 2x   round robin   0 timely p95 - s; with Plimsoll  10 timely p95 0.40 s"
    )


def test_the_summary_has_a_line_for_overload_and_one_for_what_follows():
    sides = {name: picture.by_step(records, SHOW.steps) for name, records in RECORDS.items()}
    assert picture.summary(SHOW, sides) == [
        "round robin → with Plimsoll, of 10 requests/s that the nodes can do:",
        "at 2x: 1 → 10 timely requests/s, p95 5.00 → 0.40 s, refused 0 → 50 %",
        "then at 0.5x: 0 → 5 timely requests/s, p95 - → 0.10 s, refused 0 → 0 %",
    ]


@pytest.mark.parametrize(
    ("arguments", "status", "error"),
    [
        (["--bin-dir", "/nowhere"], 1, "lab: /nowhere/plimsoll is not there; run `make build`"),
        (["--minutes", "2"], 2, "unrecognized arguments: --minutes 2"),
    ],
)
@programs.needs(programs.haproxy, programs.k6)
def test_why_it_does_not_start_is_said(arguments, status, error):
    command = [sys.executable, "-m", "compose.applab.demo", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, "")
    assert error in done.stderr
    assert "Traceback" not in done.stderr
