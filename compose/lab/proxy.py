"""HAProxy's own view, over its stats socket."""

import csv
import socket
from pathlib import Path


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
    """What `command` answers on the stats socket."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(0.8)
        stream.connect(str(path))
        stream.sendall(f"{command}\n".encode())
        chunks = []
        while chunk := stream.recv(65536):
            chunks.append(chunk)
    return b"".join(chunks).decode()
