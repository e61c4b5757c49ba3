"""Hosts for guides: each has an address, files, processes and a name of its own.

They are namespaces of the kernel. Files are this machine's, under a layer that takes what is written; of
Plimsoll there is only a checkout. All of a host's processes end with its first.
"""

import json
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.harness import ROOT
from tests.harness.eventually import eventually
from tests.harness.process import TIED

HERE = Path(__file__).parent
OWN = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"]
SECONDS = 30


class Host:
    def __init__(self, name: str, address: str, directory: Path, stack: ExitStack) -> None:
        self.name, self.address = name, address
        directory = directory / name
        directory.mkdir()
        words = [str(word) for word in (HERE / "boot", name, directory, ROOT)]
        self._process = subprocess.Popen([*TIED, *OWN, "bash", *words], stdout=subprocess.PIPE, text=True)
        stack.callback(self._process.wait)
        stack.callback(self._process.kill)
        assert self._process.stdout
        stack.callback(self._process.stdout.close)
        assert self._process.stdout.readline() == "ready\n", f"{name} does not start"
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self.pid = int(children.read_text())

    def _inside(self, *words: str) -> list[str]:
        return ["nsenter", "--target", str(self.pid), "--all", "--root", f"--wdns={ROOT}", "--", *words]

    def run(self, script: str) -> str:
        """As root's shell does, in the checkout; its output."""
        script = "set -e -o pipefail\n" + script
        done = subprocess.run(
            self._inside("bash", "-c", script), capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, f"{self.name}: {script}\n{done.stdout}{done.stderr}\n{self.log()}"
        return done.stdout

    def log(self) -> str:
        """The last lines of what was started here."""
        tails = ["bash", "-c", "tail -n 8 /var/log/started/* 2>/dev/null"]
        return subprocess.run(self._inside(*tails), capture_output=True, text=True, check=False).stdout

    def start(self, name: str, *words: str) -> None:
        """A program that stays; what it says is in the log."""
        output = f"mkdir -p /var/log/started; exec >>/var/log/started/{name} 2>&1 </dev/null"
        command = ["bash", "-c", f'{output}; setsid "$@" &', "-", *words]
        subprocess.run(self._inside(*command), check=True, timeout=SECONDS)

    def write(self, path: str, text: str) -> None:
        command = ["bash", "-c", 'cat >"$1"', "-", path]
        subprocess.run(self._inside(*command), input=text, text=True, check=True, timeout=SECONDS)

    def read(self, path: str) -> str:
        return self.run(f"cat {path}")

    def curl(self, words: str) -> str:
        """What is answered; empty where nothing is."""
        return self.run(f"curl -s --max-time 5 {words} || true")

    def status(self, words: str) -> str:
        return self.curl(f"-o /dev/null -w '%{{http_code}}' {words}")

    def json(self, words: str) -> Any:
        text = self.curl(words)
        try:
            return json.loads(text)
        except ValueError:
            return text

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        try:
            eventually(what, condition, SECONDS)
        except AssertionError as error:
            error.add_note(f"{self.name}:\n{self.log()}")
            raise


class Network:
    """Hosts that reach each other."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory, self._stack = directory, stack
        self._switch = Host("switch", "", directory, stack)
        self._switch.run("ip link add lan type bridge; ip link set lan up")
        self._count = 0

    def host(self, name: str, address: str) -> Host:
        host = Host(name, address, self._directory, self._stack)
        self._count += 1
        port = f"port{self._count}"
        # The other namespace is told by a process id of this machine's.
        plug = f"ip link add {port} type veth peer name eth0 netns {host.pid}"
        subprocess.run(["nsenter", "-t", str(self._switch.pid), "--net", *plug.split()], check=True)
        self._switch.run(f"ip link set {port} master lan up")
        host.run(f"ip addr add {address}/24 dev eth0; ip link set lo up; ip link set eth0 up")
        return host
