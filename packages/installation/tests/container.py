"""Containers with a Debian 12 that systemd runs, as a fresh machine of an operator's."""

import subprocess
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.harness.eventually import eventually
from tests.harness.podman import PODMAN, ContainerError, podman

# They are slow where others use the cores.
LIMIT_S = 60
# What apt, dpkg and systemd keep or change by themselves when packages, users or logs come and go.
KEPT = (
    *("/var/lib/apt", "/var/lib/dpkg", "/var/cache", "/var/log", "/var/tmp", "/var/lib/systemd"),
    *("/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/.pwd.lock"),
)


class Container:
    """A running one; `with` removes it."""

    def __init__(self, image: str, *options: str, command: Iterable[str] = ("/sbin/init",)) -> None:
        self.name = f"plimsoll-{uuid.uuid4().hex[:8]}"
        podman("run", "--detach", "--name", self.name, *options, f"localhost/{image}", *command)

    def __enter__(self) -> "Container":
        return self

    def __exit__(self, *_: object) -> None:
        podman("rm", "--force", "--time", "0", self.name)

    def tried(self, script: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        """Runs a script of bash, as root; standard error is in with the rest."""
        return subprocess.run(
            [PODMAN, "exec", "--interactive", self.name, "bash", "-eu", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=seconds,
            check=False,
        )

    def run(self, script: str, seconds: float = 300) -> str:
        """The same, which has to succeed."""
        ran = self.tried(script, seconds)
        if ran.returncode != 0:
            raise ContainerError(f"{script}\nended with {ran.returncode}:\n{ran.stdout}")
        return ran.stdout

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        eventually(what, condition, seconds=LIMIT_S, check=lambda: None)

    def put(self, source: Path, destination: str) -> None:
        podman("cp", str(source), f"{self.name}:{destination}")

    def write(self, path: str, text: str) -> None:
        subprocess.run(
            [PODMAN, "exec", "--interactive", self.name, "sh", "-c", f"cat >{path}"],
            input=text,
            text=True,
            check=True,
        )

    def property(self, unit: str, name: str) -> str:
        return self.run(f"systemctl show --property={name} --value {unit}").strip()

    def journal(self, unit: str = "plimsoll") -> str:
        self.run("journalctl --sync")
        return self.run(f"journalctl --no-pager --unit {unit}")

    def files(self) -> set[str]:
        """Of its own disk, without what programs keep by themselves."""
        found = self.run("find / -xdev -not -type d -print; find / -xdev -type d -printf '%p/\\n'")
        return {name for name in found.splitlines() if not name.startswith(KEPT)}


def booted(packages: Path) -> Container:
    """A host without a network beyond itself, with a directory of packages as its working directory."""
    options = ("--systemd=always", "--privileged", "--network=none", f"--volume={packages}:/packages:ro")
    host = Container("plimsoll-host", *options, "--workdir=/packages")
    try:
        # `degraded` where a unit of the image's own fails, which is no matter.
        states = {"running", "degraded"}
        host.wait("the boot", lambda: host.tried("systemctl is-system-running").stdout.strip() in states)
        # The guides' addresses.
        host.run("ip address add 192.0.2.11/32 dev lo; ip address add 192.0.2.5/32 dev lo")
    except BaseException:
        host.__exit__()
        raise
    return host
