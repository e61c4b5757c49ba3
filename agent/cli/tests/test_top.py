"""`plimsoll top` on a terminal of its own, with a real agent to look at."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.harness import programs
from tests.harness.agent import Agent
from tests.harness.eventually import LIMIT_S
from tests.harness.ports import free_ports

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
SERVICE = """\
[[service]]
name = "stocks"
identities = ["queries/node1"]
[service.sla]
delay = "250ms"
[service.bound]
nominal = 40
[service.source]
kind = "prometheus"
url = "http://127.0.0.1:{nobody}/metrics"
histogram = "seconds"
"""


class Screen:
    """A terminal with `plimsoll top` on it."""

    def __init__(self, *arguments: str, columns: int = 200) -> None:
        self._end, theirs = pty.openpty()
        self.resize(columns)
        self.before = termios.tcgetattr(theirs)
        command = [programs.agent(), "top", "--interval", "200ms", *arguments]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        self._theirs = theirs
        self.text = b""

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self._end, keys)

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, (what, self.text[-2000:])
            if select.select([self._end], [], [], 0.1)[0]:
                self.text += os.read(self._end, 65536)

    def shows(self, pattern: bytes) -> None:
        self.until(repr(pattern), lambda: re.search(pattern, plain(self.text)) is not None)

    def ends(self) -> int:
        self.until("the end", lambda: self.process.poll() is not None)
        self.until("the terminal given back", lambda: LEAVE in self.text)
        assert termios.tcgetattr(self._theirs) == self.before
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)
        os.close(self._theirs)


def plain(text: bytes) -> bytes:
    """Without what moves the cursor and colours."""
    return re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b" ", text)


@pytest.fixture(scope="module")
def agent(tmp_path_factory) -> Iterator[str]:
    (nobody,) = free_ports(1)
    with ExitStack() as stack:
        program = Agent(stack, tmp_path_factory.mktemp("top"), "agent", SERVICE.format(nobody=nobody))
        program.start()
        program.eventually("a step", lambda: "stocks" in once(program.url).stdout)
        yield program.url


@pytest.fixture
def screen(agent) -> Iterator[Screen]:
    opened = Screen(agent)
    yield opened
    opened.close()


def once(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [programs.agent(), "top", "--once", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_one_look_as_text(agent):
    seen = once(agent)
    assert seen.returncode == 0
    head, row = seen.stdout.splitlines()
    assert head.split()[:3] == ["NODE", "SERVICE", "STATE"]
    assert row.split()[:2] == [agent.removeprefix("http://"), "stocks"]
    assert "250 ms" in row


def test_an_agent_that_is_gone_is_named_beside_the_others(agent):
    (port,) = free_ports(1)
    seen = once(f"http://127.0.0.1:{port}", agent)
    assert seen.returncode == 0
    assert f"127.0.0.1:{port}: " in seen.stdout
    assert "stocks" in seen.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["http://127.0.0.1:1"], "no agent answered"),
        (["ftp://x"], "must be an address"),
        (["--interval", "1ms"], "must be from 200ms to 60s"),
    ],
)
def test_what_cannot_be_is_told(arguments, message):
    seen = once(*arguments)
    assert seen.returncode != 0
    assert message in seen.stderr


def test_without_a_terminal_it_says_so(agent):
    command = [programs.agent(), "top", agent]
    seen = subprocess.run(command, capture_output=True, text=True, check=False)
    assert seen.returncode == 1
    assert "use --once" in seen.stderr


def test_it_shows_sorts_and_quits(screen):
    screen.shows(rb"stocks +up|stocks\s+up")
    assert ENTER in screen.text
    screen.press(b"s")
    screen.shows(rb"by delay of SLA|delay of SLA")
    screen.press(b"q")
    assert screen.ends() == 0


def test_it_draws_anew_when_the_terminal_changes(screen):
    screen.shows(rb"stocks")
    screen.text = b""
    # What there is no room for is left out, from the right.
    screen.resize(60)
    # It is not this terminal's controlling process.
    os.kill(screen.process.pid, signal.SIGWINCH)
    screen.shows(rb"stocks\s+up")
    assert b"REASON" not in screen.text
    screen.press(b"\x03")
    assert screen.ends() == 0


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_the_terminal_back(screen, name):
    screen.shows(rb"stocks")
    os.kill(screen.process.pid, name)
    assert screen.ends() == 0
