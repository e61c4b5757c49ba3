"""The limits of a unit of systemd, of memory, tasks and open files, on a program of a test."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from compose.apps import reaper
from compose.apps.quota import ENTER, mounted

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Limits:
    memory_bytes: int
    tasks: int
    files: int
    environment: dict[str, str]

    @classmethod
    def of_unit(cls, unit: Path) -> "Limits":
        text = unit.read_text()
        found = dict(re.findall(r"^(MemoryMax|TasksMax|LimitNOFILE)=(\w+)$", text, re.MULTILINE))
        environment = dict(re.findall(r"^Environment=(\w+)=(\S+)$", text, re.MULTILINE))
        number, suffix = re.fullmatch(r"(\d+)([KMG])", found["MemoryMax"]).groups()
        memory_bytes = int(number) * UNITS[suffix]
        return cls(memory_bytes, int(found["TasksMax"]), int(found["LimitNOFILE"]), environment)


class Cgroup:
    """Of version 1 or 2, as mounted."""

    def __init__(self, memory: Path, pids: Path) -> None:
        self._memory, self._pids = memory, pids
        self.is_v2 = memory == pids

    @property
    def directories(self) -> list[Path]:
        return list(dict.fromkeys((self._memory, self._pids)))

    def limit(self, limits: Limits) -> None:
        memory = "memory.max" if self.is_v2 else "memory.limit_in_bytes"
        (self._memory / memory).write_text(str(limits.memory_bytes))
        (self._pids / "pids.max").write_text(str(limits.tasks))

    def words(self, limits: Limits) -> list[str]:
        """Before a command that is started as root: they put it inside and become it."""
        procs = " ".join(f"'{directory}/cgroup.procs'" for directory in self.directories)
        files = ["prlimit", f"--nofile={limits.files}", "--"]
        return ["sh", "-c", ENTER.format(procs=procs), "limited", *files]

    def out_of_memory_kills(self) -> int:
        events = "memory.events" if self.is_v2 else "memory.oom_control"
        return self._count(self._memory / events, "oom_kill")

    def refused_tasks(self) -> int:
        return self._count(self._pids / "pids.events", "max")

    @staticmethod
    def _count(file: Path, name: str) -> int:
        return int(dict(line.split() for line in file.read_text().splitlines())[name])


def find(name: str, mountinfo: str) -> Cgroup | None:
    """What is to be the cgroup of this name; None where memory and tasks cannot be limited."""
    v1, v2 = mounted(name, mountinfo)
    if "memory" in v1 and "pids" in v1:
        return Cgroup(v1["memory"], v1["pids"])
    for directory in v2:
        if {"memory", "pids"} <= set((directory.parent / "cgroup.controllers").read_text().split()):
            return Cgroup(directory, directory)
    return None


@contextlib.contextmanager
def limited(name: str, limits: Limits) -> Iterator[Cgroup]:
    """A cgroup with these limits; skips the test where none can be made. All that is inside ends with it."""
    cgroup = find(name, Path("/proc/self/mountinfo").read_text())
    if not cgroup:
        pytest.skip("memory and tasks cannot be limited here: no such controllers of cgroups are mounted")
    try:
        if cgroup.is_v2:
            control = cgroup.directories[0].parent / "cgroup.subtree_control"
            control.write_text("+memory +pids")
        for directory in cgroup.directories:
            directory.mkdir()
        cgroup.limit(limits)
    except OSError as error:
        reaper.remove([directory for directory in cgroup.directories if directory.exists()])
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        yield cgroup
    finally:
        reaper.remove(cgroup.directories)
