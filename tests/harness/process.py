"""Processes of a test: they end with it however it ends, and what they said is in what fails."""

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Self

from compose.lab.processes import TIED
from tests.harness.eventually import LIMIT_S, eventually

# Characters of a log's end that are shown.
TAIL = 3000
MARK = "LAB_TEST"


class Program:
    """A command; a process of it may follow another one."""

    def __init__(
        self,
        stack: ExitStack | AsyncExitStack,
        command: list[str],
        log: Path,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.command, self.log, self.environment = command, log, environment or {}
        self.processes: list[subprocess.Popen[bytes]] = []
        stack.callback(self.kill)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The newest."""
        return self.processes[-1]

    def start(self, *words: str) -> Self:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*TIED, *self.command, *words],
                env=os.environ | self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return self

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def check(self) -> None:
        """Fails once it has ended."""
        assert self.process.poll() is None, f"{self.log} ended with {self.process.returncode}: {self.tail()}"

    def tail(self) -> str:
        return self.said()[-TAIL:]

    def eventually(self, what: str, condition: Callable[[], object], seconds: float = LIMIT_S) -> None:
        """While it runs."""
        try:
            eventually(what, condition, seconds, self.check)
        except AssertionError as error:
            if self.process.poll() is None:
                error.add_note(f"{self.log}:\n{self.tail()}")
            raise

    def wait_said(self, text: str) -> None:
        self.eventually(f"{text!r} in the log", lambda: text in self.said())

    def pause(self) -> None:
        """Until all its threads stand still: the signal alone leaves those that run to what they are at."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def resident_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def run(stack: ExitStack | AsyncExitStack, command: list[str], log: Path) -> Program:
    """A program that needs no more than to be started."""
    return Program(stack, command, log).start()


def marked(mark: str) -> list[tuple[int, str]]:
    """Processes that were started with this value of `MARK` in their environment, and their offspring."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}\0".encode() in (path / "environ").read_bytes():
                found.append((int(path.name), (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
        except OSError:
            continue
    return found
