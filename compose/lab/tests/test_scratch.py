"""A lab removes what a killed one left, but not what is in use or not a lab's."""

import subprocess
import sys
from pathlib import Path

from compose.lab import scratch
from compose.lab.topology import ROOT

# Makes a directory below its argument, says which, and waits for its end.
MAKER = """
import sys, time
from compose.lab import scratch
with scratch.directory("plimsoll-test-", sys.argv[1]) as made:
    (made / "data").mkdir()
    print(made, flush=True)
    time.sleep(60)
"""


def made_by_another(tmp_path: Path) -> tuple[subprocess.Popen[str], Path]:
    command = [sys.executable, "-c", MAKER, str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return process, Path(process.stdout.readline().strip())


def test_directories_of_killed_labs_are_removed_and_live_ones_stay(tmp_path):
    foreign = tmp_path / "plimsoll-test-foreign"
    foreign.mkdir()
    killed, left = made_by_another(tmp_path)
    living, kept = made_by_another(tmp_path)
    try:
        killed.kill()
        killed.communicate()
        assert (left / "data").exists()
        with scratch.directory("plimsoll-test-", str(tmp_path)) as mine:
            assert not left.exists()
            assert {path.name for path in tmp_path.iterdir()} == {foreign.name, kept.name, mine.name}
        assert not mine.exists()
        assert (kept / "data").exists()
    finally:
        living.kill()
        living.communicate()


def test_targets_of_links_are_not_removed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / scratch.OWNER).touch()
    (tmp_path / "plimsoll-test-link").symlink_to(elsewhere)
    scratch.remove_left(tmp_path, "plimsoll-test-")
    assert (elsewhere / scratch.OWNER).exists()
