"""Free ports for a test, and checks for listeners."""

import socket

from compose.lab.processes import answers, free_ports

__all__ = ["answers", "free_ports", "listens"]


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
