"""A CPU quota, and all else that a node is to the kernel: one cgroup, of version 1 or 2, as mounted.

    with Quota("node1", 0.25) as quota:
        start([*quota.words, "server", "--port", "8080"])   # its children are inside, too
        quota.set(0.1)
        quota.pause()
        quota.resume()
        quota.cpu_seconds()

All that is inside dies with the Quota, also where its maker is killed: a reaper waits for that."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from compose.apps import reaper
from compose.lab.errors import LabError
from compose.lab.processes import Program, wait_until

# The kernel's default.
PERIOD_US = 100_000
# The kernel refuses quotas below 1 ms.
MIN_FRACTION = 1000 / PERIOD_US
PAUSE_SECONDS = 10
REMOVE_SECONDS = 10
NEEDED = (
    "nodes with a CPU quota need to make cgroups: run as root where /sys/fs/cgroup can be written to; "
    "in a container that is `--privileged --cgroupns=host -v /sys/fs/cgroup:/sys/fs/cgroup:rw`"
)
ENTER = 'for procs in {procs}; do echo $$ >"$procs" || exit 1; done; exec "$@"'


def write(path: Path, value: str) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        # The error lacks the path if the kernel rejects the value.
        raise OSError(error.errno, error.strerror, str(path)) from error


@dataclass(frozen=True)
class V1:
    """Directories of one node in the hierarchies of version 1, some of which may be the same."""

    cpu: Path
    accounting: Path
    freezer: Path

    @property
    def directories(self) -> list[Path]:
        return list(dict.fromkeys((self.cpu, self.accounting, self.freezer)))

    def prepare(self) -> None:
        write(self.cpu / "cpu.cfs_period_us", str(PERIOD_US))

    def limit(self, quota_us: int) -> None:
        write(self.cpu / "cpu.cfs_quota_us", str(quota_us))

    def used_seconds(self) -> float:
        return int((self.accounting / "cpuacct.usage").read_text()) / 1e9

    def throttled_seconds(self) -> float:
        return statistics(self.cpu)["throttled_time"] / 1e9

    def freeze(self, frozen: bool) -> None:
        write(self.freezer / "freezer.state", "FROZEN" if frozen else "THAWED")

    def is_frozen(self) -> bool:
        return (self.freezer / "freezer.state").read_text().strip() == "FROZEN"


@dataclass(frozen=True)
class V2:
    """The directory of one node in the hierarchy of version 2."""

    directory: Path

    @property
    def directories(self) -> list[Path]:
        return [self.directory]

    def prepare(self) -> None:
        pass

    def limit(self, quota_us: int) -> None:
        write(self.directory / "cpu.max", f"{quota_us} {PERIOD_US}")

    def used_seconds(self) -> float:
        return statistics(self.directory)["usage_usec"] / 1e6

    def throttled_seconds(self) -> float:
        return statistics(self.directory)["throttled_usec"] / 1e6

    def freeze(self, frozen: bool) -> None:
        write(self.directory / "cgroup.freeze", "1" if frozen else "0")

    def is_frozen(self) -> bool:
        return "frozen 1" in (self.directory / "cgroup.events").read_text()


def statistics(directory: Path) -> dict[str, int]:
    lines = (directory / "cpu.stat").read_text().splitlines()
    return {name: int(value) for name, value in map(str.split, lines)}


def mounted(name: str, mountinfo: str) -> tuple[dict[str, Path], list[Path]]:
    """Locations of a cgroup of this name, by the mounts: of version 1 by controller, and of version 2."""
    v1, v2 = {}, []
    for line in mountinfo.splitlines():
        mount, _, filesystem = line.partition(" - ")
        directory = Path(mount.split()[4])
        kind, _, options = filesystem.split(" ", 2)
        if kind == "cgroup":
            v1 |= dict.fromkeys(options.split(","), directory / name)
        elif kind == "cgroup2":
            v2.append(directory / name)
    return v1, v2


def find(name: str, mountinfo: str) -> V1 | V2:
    """Location of a node's cgroup, from the mounts of /proc/self/mountinfo."""
    v1, v2 = mounted(name, mountinfo)
    if "cpu" in v1:
        missing = [controller for controller in ("cpuacct", "freezer") if controller not in v1]
        if missing:
            raise LabError(
                f"cgroups of version 1 have cpu, but {' and '.join(missing)} not mounted; as root: "
                + "; ".join(f"mkdir /sys/fs/cgroup/{c} && mount -t cgroup -o {c} none $_" for c in missing)
            )
        return V1(v1["cpu"], v1["cpuacct"], v1["freezer"])
    for directory in v2:
        if "cpu" in (directory.parent / "cgroup.controllers").read_text().split():
            return V2(directory)
    raise LabError(
        "no cpu controller of cgroups is mounted, and nodes need it for their CPU quota; as root: "
        "mount -t cgroup2 none /sys/fs/cgroup"
    )


class Quota:
    """A node's cgroup, made when entered, removed with all processes in it when left."""

    def __init__(self, node: str, fraction: float) -> None:
        """`fraction` is that of one core."""
        self._node, self._fraction = node, fraction
        mounts = Path("/proc/self/mountinfo").read_text()
        self._cgroup = find(f"plimsoll-{os.getpid()}-{node}", mounts)
        self._reaper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        directories = self._cgroup.directories
        words = [sys.executable, reaper.__file__, *map(str, directories)]
        try:
            if isinstance(self._cgroup, V2):
                control = directories[0].parent / "cgroup.subtree_control"
                if "cpu" not in control.read_text().split():
                    write(control, "+cpu")
            for directory in directories:
                directory.mkdir()
                if self._reaper is None:
                    self._reaper = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
            self._cgroup.prepare()
            self.set(self._fraction)
        except OSError as error:
            self.__exit__()
            raise LabError(f"{error.filename}: {error.strerror}; {NEEDED}") from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        waiting, self._reaper = self._reaper, None
        if waiting is None:
            return
        assert waiting.stdin
        waiting.stdin.close()
        try:
            waiting.wait(REMOVE_SECONDS)
        except subprocess.TimeoutExpired as error:
            left = ", ".join(map(str, self._cgroup.directories))
            raise LabError(f"processes of {self._node} do not end: {left}") from error

    @property
    def words(self) -> list[str]:
        """Before a command that is started as root: they put it inside and become it."""
        procs = " ".join(f"'{directory}/cgroup.procs'" for directory in self._cgroup.directories)
        return ["sh", "-c", ENTER.format(procs=procs), self._node]

    def inside(self, program: list[str] | Program) -> list[str] | Program:
        """The same program in this cgroup."""
        if isinstance(program, Program):
            return replace(program, command=[*self.words, *program.command])
        return [*self.words, *program]

    def set(self, fraction: float) -> None:
        if not fraction >= MIN_FRACTION:
            raise LabError(
                f"a quota of {fraction:g} of a core for {self._node}: must be at least {MIN_FRACTION:g}"
            )
        self._cgroup.limit(round(fraction * PERIOD_US))

    def pause(self) -> None:
        """Stops all processes, as they are; a program is to be ended only after `resume`."""
        self._cgroup.freeze(True)
        wait_until(f"the pause of {self._node}", self._cgroup.is_frozen, PAUSE_SECONDS, lambda: None)

    def resume(self) -> None:
        self._cgroup.freeze(False)

    def kill(self) -> None:
        """Ends all processes by SIGKILL, as a node's death does; a program may be started inside again."""
        reaper.end(self._cgroup.directories)
        self.resume()

    def processes(self) -> list[int]:
        return reaper.processes(self._cgroup.directories[0])

    def cpu_seconds(self) -> float:
        """CPU seconds that all processes inside have used, including ended ones."""
        return self._cgroup.used_seconds()

    def throttled_seconds(self) -> float:
        """For how long they could have run but for the quota, summed over the machine's cores."""
        return self._cgroup.throttled_seconds()
