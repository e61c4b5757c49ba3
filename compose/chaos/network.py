"""Hosts that are network namespaces on one bridge, and what happens to their links."""

import subprocess
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from compose.lab.errors import LabError
from compose.lab.processes import TIED

NETWORK = "10.88.0"
# Of clients and nemesis, on the bridge.
DRIVER = f"{NETWORK}.1"
SLOW = ["tbf", "rate", "128kbit", "burst", "4000", "latency", "400ms"]
LOST_PART = "0.3"


def command(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"{' '.join(words)}: {done.stderr.strip()}")


class Host:
    def __init__(self, name: str, number: int, stack: ExitStack) -> None:
        self.name, self.address = name, f"{NETWORK}.{number}"
        self._port = f"port{number}"
        # Its namespace is there for as long as a process of it.
        held = ["unshare", "--net", "bash", "-c", "echo ready; exec sleep infinity"]
        process = subprocess.Popen([*TIED, *held], stdout=subprocess.PIPE, text=True)
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert process.stdout
        with process.stdout as said:
            if said.readline() != "ready\n":
                raise LabError(f"host {name} does not start")
        self._namespace = Path(f"/proc/{process.pid}/ns/net")
        plug = f"link add {self._port} type veth peer name eth0 netns {process.pid}"
        command("ip", *plug.split())
        command("ip", "link", "set", self._port, "master", "lan", "up")
        self.run("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "link", "set", "eth0", "up")

    def inside(self, *words: str) -> list[str]:
        return ["nsenter", f"--net={self._namespace}", "--", *words]

    def run(self, *words: str) -> None:
        command(*self.inside(*words))

    def cut(self, others: Iterable[str], both_ways: bool) -> Callable[[], None]:
        """Nothing comes from these addresses, or goes there either; undone by what is returned."""
        addresses = ",".join(others)
        rules = [["INPUT", "--source", addresses, "-j", "DROP"]]
        if both_ways:
            rules.append(["OUTPUT", "--destination", addresses, "-j", "DROP"])
        return self._filter(rules)

    def lose(self) -> Callable[[], None]:
        """A part of the packets that come."""
        chance = ["-i", "eth0", "-m", "statistic", "--mode", "random", "--probability", LOST_PART]
        return self._filter([["INPUT", *chance, "-j", "DROP"]])

    def _filter(self, rules: list[list[str]]) -> Callable[[], None]:
        for rule in rules:
            self.run("iptables", "--wait", "--append", *rule)

        def undo() -> None:
            for rule in rules:
                self.run("iptables", "--wait", "--delete", *rule)

        return undo

    def slow(self) -> Callable[[], None]:
        """Both ways."""
        command("tc", "qdisc", "add", "dev", self._port, "root", *SLOW)
        self.run("tc", "qdisc", "add", "dev", "eth0", "root", *SLOW)

        def undo() -> None:
            command("tc", "qdisc", "del", "dev", self._port, "root")
            self.run("tc", "qdisc", "del", "dev", "eth0", "root")

        return undo


def bridge() -> None:
    """In this process' own namespace."""
    command("ip", "link", "set", "lo", "up")
    command("ip", "link", "add", "lan", "type", "bridge")
    command("ip", "addr", "add", f"{DRIVER}/24", "dev", "lan")
    command("ip", "link", "set", "lan", "up")
