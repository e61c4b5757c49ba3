"""A node's cgroup: its limit, its pause, its end, and what is said where there can be none."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compose.apps import quota
from compose.apps.quota import Quota
from compose.lab.errors import LabError
from compose.lab.topology import ROOT
from tests.harness.eventually import eventually

V1 = """\
30 23 0:26 / /sys/fs/cgroup/cpu,cpuacct rw shared:1 - cgroup cgroup rw,cpu,cpuacct
31 23 0:27 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer
"""
# A loop, and a child that its shell does not wait for.
BUSY = ["sh", "-c", "setsid sleep 1000 & while :; do :; done"]


@pytest.fixture
def node():
    with Quota("node", 0.1) as made:
        yield made


def start(node: Quota, command: list[str] = BUSY) -> subprocess.Popen:
    process = subprocess.Popen([*node.words, *command], stdout=subprocess.PIPE, start_new_session=True)
    eventually("the start", lambda: len(node.processes()) >= 2)
    return process


def uses(node: Quota, seconds: float) -> None:
    more = node.cpu_seconds() + seconds
    eventually(f"{seconds:g} s of CPU time", lambda: node.cpu_seconds() > more, 30)


def test_quota_throttles_the_processes_inside(node):
    start(node)
    began = time.monotonic()
    used = node.cpu_seconds()
    uses(node, 0.1)
    # Never more than a tenth, and one period's quota.
    assert node.cpu_seconds() - used <= 0.1 * (time.monotonic() - began) + 0.05
    assert node.throttled_seconds() > 0
    node.set(2)
    throttled = node.throttled_seconds()
    uses(node, 0.3)
    assert node.throttled_seconds() - throttled < 0.1


def test_pauses_and_resumes_all_processes(node):
    start(node)
    uses(node, 0.01)
    node.pause()
    used = node.cpu_seconds()
    time.sleep(0.3)
    assert node.cpu_seconds() == used
    node.resume()
    uses(node, 0.01)


def test_kills_all_even_paused_and_can_be_entered_again(node):
    first = start(node)
    node.pause()
    node.kill()
    assert first.wait(5) == -signal.SIGKILL
    assert node.processes() == []
    start(node)
    uses(node, 0.01)


def test_leaves_nothing_even_of_a_paused_node():
    with Quota("node", 0.1) as node:
        process = start(node)
        directories = node._cgroup.directories
        node.pause()
    assert process.wait(5) == -signal.SIGKILL
    assert not any(directory.exists() for directory in directories)


MAKER = """
import subprocess, sys, time
from compose.apps.quota import Quota
with Quota("crash", 0.1) as node:
    subprocess.Popen([*node.words, "sh", "-c", "setsid sleep 1000 & sleep 1000"], start_new_session=True)
    while len(node.processes()) < 3:
        time.sleep(0.01)
    print(*node._cgroup.directories, *node.processes(), flush=True)
    time.sleep(1000)
"""


def test_leaves_nothing_of_a_maker_that_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", MAKER], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as maker:
        left = maker.stdout.readline().split()
        maker.kill()
    paths = [Path(word) if word.startswith("/") else Path("/proc") / word for word in left]
    assert len(paths) >= 4
    eventually("the reaper", lambda: not any(path.exists() for path in paths))


def test_refuses_less_than_the_kernel_does(node):
    for fraction in (0.009, 0, -1, float("nan")):
        with pytest.raises(LabError, match=r"of a core for node: must be at least 0\.01"):
            node.set(fraction)


def test_finds_either_version():
    v2 = "29 23 0:25 / {} rw - cgroup2 cgroup2 rw\n"
    assert isinstance(quota.find("node", V1 + v2.format("/sys/fs/cgroup/unified")), quota.V1)
    assert [str(path) for path in quota.find("node", V1).directories] == [
        "/sys/fs/cgroup/cpu,cpuacct/node",
        "/sys/fs/cgroup/freezer/node",
    ]


def test_missing_mount_is_named(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("memory pids\n")
    with pytest.raises(LabError, match="no cpu controller of cgroups is mounted"):
        quota.find("node", f"29 23 0:25 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    with pytest.raises(LabError, match="freezer not mounted; as root: mkdir /sys/fs/cgroup/freezer"):
        quota.find("node", V1.splitlines()[0])
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    found = quota.find("node", f"29 23 0:25 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    assert found.directories == [tmp_path / "node"]


def test_missing_permission_is_named():
    nobody = ["setpriv", "--reuid", "nobody", "--clear-groups", sys.executable, "-c"]
    script = "from compose.apps.quota import Quota\nwith Quota('node', 0.1): pass"
    done = subprocess.run([*nobody, script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "LabError: /sys/fs/cgroup/" in done.stderr
    assert "Permission denied; nodes with a CPU quota need to make cgroups: run as root" in done.stderr
