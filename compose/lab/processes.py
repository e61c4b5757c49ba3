"""Processes under supervisord, each tied to its parent's life, so that nothing outlives the driver."""

import collections
import http.client
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import xmlrpc.client
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from supervisor.xmlrpc import SupervisorTransport

from compose.lab.errors import LabError

STOP_SECONDS = 4
_CONFIG = """\
[supervisord]
nodaemon = true
silent = true
logfile = {log}/supervisord.log
pidfile = {run}/supervisord.pid
childlogdir = {log}
minfds = 20000
[unix_http_server]
file = {run}/supervisor.sock
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
"""
_PROGRAM = """\
[program:{name}]
command = {command}
autostart = true
autorestart = false
startsecs = 0
stopsignal = {signal}
stopwaitsecs = {stop}
redirect_stderr = true
stdout_logfile = {log}/{name}.log
stdout_logfile_maxbytes = 0
"""


def tied(signal: str, user: str | None = None) -> list[str]:
    """Words before a command: the kernel sends it the signal when its parent dies, even by SIGKILL."""
    who = ["--reuid", user, "--regid", user, "--init-groups"] if user else []
    return ["setpriv", "--pdeathsig", signal, *who, "--"]


TIED = tied("KILL")


@dataclass(frozen=True)
class Program:
    """A program that has an end of its own, by a signal that it also gets when the lab dies, or a user."""

    command: list[str]
    ends_by: str
    user: str | None = None


PORT_RANGES = 4
# The Rust tests have those above.
PORTS = range(15000, 23000)
PORTS_PER_RANGE = len(PORTS) // PORT_RANGES


# Ports that were given out and may not be bound yet.
_given: collections.deque[int] = collections.deque(maxlen=200)


def free_ports(count: int) -> list[int]:
    """Free loopback ports below the ephemeral range, so that no outgoing connection takes one meanwhile."""
    held: list[socket.socket] = []
    # Tests that run side by side have ports of their own, or one could take what another was given.
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    first = PORTS.start + worker % PORT_RANGES * PORTS_PER_RANGE
    try:
        for port in random.sample(range(first, first + PORTS_PER_RANGE), PORTS_PER_RANGE):
            if port in _given:
                continue
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                listener.close()
                continue
            held.append(listener)
            if len(held) == count:
                found = [listener.getsockname()[1] for listener in held]
                _given.extend(found)
                return found
    finally:
        for listener in held:
            listener.close()
    raise LabError(f"found no {count} free loopback ports")


def wait_until(what: str, condition: Callable[[], bool], seconds: float, check: Callable[[], None]) -> None:
    """Polls `condition`; `check` raises when waiting any longer is in vain."""
    deadline = time.monotonic() + seconds
    while not condition():
        check()
        if time.monotonic() > deadline:
            raise LabError(f"{what} is not ready after {seconds:g} s")
        time.sleep(0.05)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=0.5) as response:
            return response.status == 200
    except (OSError, urllib.error.URLError, http.client.HTTPException):
        return False


class Processes:
    """A supervisord with its programs; stops them all when it is left."""

    def __init__(self, programs: Mapping[str, list[str] | Program], run: Path, log: Path) -> None:
        self._run, self._log = run, log
        sections = [_CONFIG.format(run=run, log=log)]
        for name, program in programs.items():
            stop = "TERM"
            if isinstance(program, Program):
                stop = program.ends_by
                words = [*tied(stop, program.user), *program.command]
            else:
                words = [*TIED, *program]
            quoted = " ".join('"' + word.replace("%", "%%").replace('"', '\\"') + '"' for word in words)
            sections.append(
                _PROGRAM.format(name=name, command=quoted, log=log, signal=stop, stop=STOP_SECONDS)
            )
        self._config = run / "supervisord.conf"
        self._config.write_text("\n".join(sections))
        self._process: subprocess.Popen[bytes] | None = None
        self._transport = SupervisorTransport(None, None, f"unix://{run}/supervisor.sock")
        self._rpc = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=self._transport)

    def __enter__(self) -> Self:
        command = [
            *tied("KILL"),
            sys.executable,
            "-m",
            "supervisor.supervisord",
            "-n",
            "-c",
            str(self._config),
        ]
        with (self._log / "supervisord.out").open("wb") as out:
            # A session of its own: Ctrl-C is the driver's to handle.
            self._process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
        try:
            wait_until("supervisord", self._up, 10, self._alive)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _up(self) -> bool:
        try:
            return self._rpc.supervisor.getState()["statename"] == "RUNNING"
        except (OSError, http.client.HTTPException, xmlrpc.client.Error):
            # It keeps a connection that failed, and would never try another.
            self._transport.close()
            return False

    def _alive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            raise LabError(f"supervisord ended at once: {self.tail('supervisord', 'out')}")

    def check(self, expected_dead: Iterable[str] = ()) -> None:
        """Raises when a process ended that should not have."""
        self._alive()
        for info in self._rpc.supervisor.getAllProcessInfo():
            name = info["name"]
            if info["statename"] not in ("RUNNING", "STARTING") and name not in expected_dead:
                raise LabError(f"{name} ended ({info['description'] or info['spawnerr']}): {self.tail(name)}")

    def tail(self, name: str, suffix: str = "log") -> str:
        path = self._log / f"{name}.{suffix}"
        lines = path.read_text(errors="replace").splitlines()[-5:] if path.exists() else []
        return f"{path}\n  " + "\n  ".join(lines)

    def cpu_seconds(self, names: Iterable[str]) -> float:
        """CPU seconds that these programs have used together."""
        return sum(cpu_seconds(self.pid(name)) for name in names)

    def pid(self, name: str) -> int:
        return self._rpc.supervisor.getProcessInfo(name)["pid"]

    def signal(self, name: str, which: str) -> None:
        self._rpc.supervisor.signalProcess(name, which)

    def start(self, name: str) -> None:
        """Starts one that has ended."""
        self._rpc.supervisor.startProcess(name, False)

    def has_ended(self, name: str) -> bool:
        return self._rpc.supervisor.getProcessInfo(name)["statename"] not in ("RUNNING", "STOPPING")

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS + 3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def start_tied(command: list[str], environment: dict[str, str], output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as out:
        return subprocess.Popen(
            [*TIED, *command],
            env=os.environ | environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def require_running(k6: subprocess.Popen[bytes], directory: Path) -> None:
    if k6.poll() is not None:
        log = directory / "k6.log"
        last = "\n  ".join(log.read_text(errors="replace").splitlines()[-5:])
        raise LabError(f"k6 ended with status {k6.returncode}: {log}\n  {last}")


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
