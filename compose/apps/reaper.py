"""Ends what is left in cgroups and removes them once standard input ends, however the maker of them ended.

Run by its path, with the cgroups' directories as arguments."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path


def processes(directory: Path) -> list[int]:
    try:
        return [int(pid) for pid in (directory / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def end(directories: list[Path]) -> None:
    """Kills what is inside until nothing is, also what forks meanwhile and what is frozen."""
    while pids := {pid for directory in directories for pid in processes(directory)}:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for directory in directories:
            # Frozen processes of version 1 do not die.
            if (directory / "freezer.state").exists():
                (directory / "freezer.state").write_text("THAWED")
        time.sleep(0.01)


def remove(directories: list[Path]) -> None:
    for directory in directories:
        while directory.exists():
            end(directories)
            try:
                directory.rmdir()
            except OSError:
                # Busy for a moment after the last process has gone.
                time.sleep(0.01)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    remove([Path(word) for word in sys.argv[1:]])
