"""The package of a node for arm64, on an emulator."""

import shutil
import socket
import subprocess
from contextlib import ExitStack

import pytest

from tests.harness import ROOT, programs
from tests.harness.agent import Agent, service

EMULATOR = shutil.which("qemu-aarch64-static")


def answer(port, request):
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request)
        return connection.makefile().readline()


@pytest.mark.skipif(not EMULATOR, reason="needs qemu-aarch64-static, which `make package` installs")
def test_an_agent_for_arm64_answers_haproxy(tmp_path, monkeypatch):
    deb = next(ROOT.joinpath("dist").glob("plimsoll_*_arm64.deb"))
    subprocess.run(["dpkg-deb", "--extract", deb, tmp_path / "root"], check=True)
    emulated = tmp_path / "plimsoll"
    emulated.write_text(f'#!/bin/sh\nexec {EMULATOR} {tmp_path}/root/usr/bin/plimsoll "$@"\n')
    emulated.chmod(0o755)
    monkeypatch.setattr(programs, "agent", lambda: str(emulated))
    with ExitStack() as stack:
        made = Agent(stack, tmp_path / "node", "node1", service(20, 'identities = ["queries/node1"]'))
        made.wait_ready()
        assert answer(made.check_port, b"queries/node1 lb1\n").startswith("up 100% maxconn:20 ")
        made.node("drain")
        assert answer(made.check_port, b"queries/node1 lb1\n").startswith("drain")
