"""podman, as scripts/install-containers set it up."""

import subprocess

from tests.harness import ROOT

PODMAN = ROOT / "scripts/podman"


class ContainerError(AssertionError):
    """A command of podman's, or one in a container."""


def podman(*arguments: str) -> str:
    ran = subprocess.run([PODMAN, *arguments], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise ContainerError(f"podman {' '.join(arguments)}: {ran.stderr}")
    return ran.stdout
