"""A proxy of the lab, and HAProxy's own view over its stats socket."""

import csv
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from compose.lab import machine
from compose.lab.errors import LabError
from compose.lab.render import Ports


@dataclass(frozen=True)
class Server:
    """A node as its proxy sees it; what the proxy does not know is empty."""

    up: bool
    weight: str = ""
    maxconn: str = ""


class Proxy(Protocol):
    """A proxy with a written configuration, whether it runs or not."""

    @property
    def frontend(self) -> int:
        """The port for clients."""

    @property
    def command(self) -> list[str]:
        """Starts it, in the foreground."""

    @property
    def metrics(self) -> int:
        """The port where Prometheus reads its metrics."""

    def servers(self) -> dict[str, Server]:
        """The nodes for queries by name; none when it does not answer."""


@dataclass(frozen=True)
class HAProxy:
    frontend: int
    command: list[str]
    socket: Path
    metrics: int

    @classmethod
    def checked(cls, text: str, example: Path, ports: Ports, run: Path, name: str) -> Self:
        """One with this configuration, which is written into `run` and which HAProxy takes."""
        config = run / f"{name}.cfg"
        config.write_text(text)
        done = subprocess.run(
            [machine.haproxy(), "-c", "-f", config], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise LabError(f"HAProxy refuses {example} as rendered:\n{done.stderr}")
        return cls(ports.frontend, foreground(config), run / f"{name}.sock", ports.stats)

    def servers(self) -> dict[str, Server]:
        return {
            name: Server(
                row["status"].startswith("UP") or row["status"] == "no check", row["weight"], row["slim"]
            )
            for name, row in servers(self.socket).items()
        }


def foreground(config: Path) -> list[str]:
    # A master that forks would untie its worker from the runner.
    return [machine.haproxy(), "-db", "-f", str(config)]


def servers(path: Path) -> dict[str, dict[str, str]]:
    """The rows of `show stat` for the servers of backend queries; none when HAProxy does not answer."""
    try:
        return rows(ask(path, "show stat"))
    except OSError:
        return {}


def rows(text: str) -> dict[str, dict[str, str]]:
    """HAProxy's CSV, by server of backend queries."""
    found = csv.DictReader(text.removeprefix("# ").splitlines())
    return {
        row["svname"]: row
        for row in found
        if row["pxname"] == "queries" and row["svname"] not in ("BACKEND", "FRONTEND")
    }


def ask(path: Path, command: str) -> str:
    """Output of `command` on the stats socket."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(0.8)
        stream.connect(str(path))
        stream.sendall(f"{command}\n".encode())
        chunks = []
        while chunk := stream.recv(65536):
            chunks.append(chunk)
    return b"".join(chunks).decode()
