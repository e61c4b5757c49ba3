"""Whatever ends the driver, no process and no port is left."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from compose.lab.errors import LabError
from compose.lab.processes import Processes, answers, free_ports, wait_until
from compose.lab.topology import ROOT
from tests.harness.eventually import eventually

# Supervises two HTTP servers, says so, and waits for its end.
DRIVER = """
import signal, sys, time
from pathlib import Path
from compose.lab.__main__ import interrupted
from compose.lab.processes import Processes
for name in (signal.SIGINT, signal.SIGTERM):
    signal.signal(name, interrupted)
run = Path(sys.argv[1])
serve = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1"]
with Processes({"one": [*serve, sys.argv[2]], "two": [*serve, sys.argv[3]]}, run, run):
    (run / "started").touch()
    if sys.argv[4] == "raise":
        while not (run / "go").exists():
            time.sleep(0.02)
        raise RuntimeError("an exception in the driver")
    time.sleep(60)
"""


def mentioning(text: str) -> list[str]:
    """Command lines of running processes in which `text` occurs."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdecimal() else b""
        except OSError:
            continue
        if text.encode() in line and int(entry.name) != os.getpid():
            found.append(line.decode().replace("\0", " "))
    return found


def is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, "raise"])
def test_nothing_is_left(tmp_path: Path, ending: signal.Signals | str) -> None:
    ports = free_ports(2)
    words = [str(tmp_path), *map(str, ports), str(ending)]
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        eventually("the driver has started", (tmp_path / "started").exists)
        eventually("both answer", lambda: all(answers(f"http://127.0.0.1:{port}/") for port in ports))
        if isinstance(ending, signal.Signals):
            driver.send_signal(ending)
        else:
            (tmp_path / "go").touch()
        assert driver.wait(15) != 0
        eventually("nothing of it runs", lambda: not mentioning(str(tmp_path)))
        eventually("the ports are free", lambda: all(is_free(port) for port in ports))
    finally:
        driver.kill()
        driver.wait()


def test_a_program_that_ends_is_reported_with_its_last_words(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo address in use >&2; exit 3"]
    with Processes({"broken": command}, tmp_path, tmp_path) as processes:

        def wait() -> None:
            wait_until("broken", lambda: False, 10, processes.check)

        with pytest.raises(LabError, match=r"(?s)broken ended.*address in use"):
            wait()


def test_a_killed_program_is_expected_to_be_dead(tmp_path: Path) -> None:
    with Processes({"one": ["sleep", "60"], "two": ["sleep", "60"]}, tmp_path, tmp_path) as processes:
        processes.signal("one", "KILL")

        def noticed() -> bool:
            try:
                processes.check()
            except LabError as error:
                return "one ended" in str(error)
            return False

        eventually("it is noticed", noticed)
        processes.check(["one"])
