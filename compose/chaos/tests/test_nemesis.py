"""The schedule of faults, and clocks that are set while a program runs."""

import os
import struct
import subprocess
import sys
from collections import Counter
from random import Random

from compose.chaos.nemesis import DECK, GAP_SECONDS, REDIS_MASTER, schedule
from compose.chaos.site import HOSTS, NODES, REQUEST_LIMIT_SECONDS, SENTINELS, built_clock

SECONDS = 600


def test_a_seed_always_draws_the_same_faults():
    assert schedule(7, SECONDS) == schedule(7, SECONDS)
    assert schedule(7, SECONDS) != schedule(8, SECONDS)


def test_all_of_the_deck_comes_before_any_of_it_again():
    chance = Random(1)
    deck = Counter(fault.kind for draw in DECK for fault in draw(chance))
    # As many draws as one deck takes at the least, and at the most.
    few = len(DECK) * GAP_SECONDS[0]
    for seed in range(20):
        assert Counter(fault.kind for fault in schedule(seed, few)) <= deck
    many = (len(DECK) + 1) * GAP_SECONDS[1] + 2
    for seed in range(20):
        assert Counter(fault.kind for fault in schedule(seed, many)) >= deck


def test_faults_end_within_the_run_and_name_what_there_is():
    known = {*HOSTS, *SENTINELS, REDIS_MASTER, *(f"{node}-agent" for node in NODES)}
    for seed in range(20):
        faults = schedule(seed, SECONDS)
        assert [fault.number for fault in faults] == list(range(1, len(faults) + 1))
        assert faults == sorted(faults, key=lambda fault: fault.at)
        for fault in faults:
            assert fault.seconds > 0
            assert fault.at + fault.seconds <= SECONDS + 0.001
            assert set(fault.target.split(",")) <= known
            assert not set(fault.detail.get("from", ())) & set(fault.target.split(","))
            if fault.kind == "pause" and fault.target in NODES:
                assert fault.seconds < REQUEST_LIMIT_SECONDS


def test_a_running_program_sees_its_clock_step_and_no_other_clock(tmp_path):
    clock = tmp_path / "clock"
    clock.write_bytes(bytes(8))
    script = "import time\nwhile input(): print(time.time() - time.monotonic(), flush=True)"
    program = subprocess.Popen(
        [sys.executable, "-c", script], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | {"LD_PRELOAD": str(built_clock(tmp_path)), "CLOCK_OFFSET": str(clock)},
    )  # fmt: skip
    with program:
        assert program.stdin
        assert program.stdout

        def ahead() -> float:
            program.stdin.write("now\n")
            program.stdin.flush()
            return float(program.stdout.readline())

        first = ahead()
        for offset in (3600, -5, 0):
            with clock.open("r+b") as file:
                file.write(struct.pack("<q", offset * 10**9))
            assert abs(ahead() - first - offset) < 1
        program.stdin.write("\n")
        program.stdin.close()
        assert program.wait() == 0
