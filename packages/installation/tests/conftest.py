"""Packages to install: those of this version, and of one before it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from packages.installation.tests.container import booted
from tests.harness import ROOT

OLDER = "0.0.1"


def older(deb: Path, directory: Path) -> None:
    """The same package under a lower number."""
    tree = directory / "tree"
    subprocess.run(["dpkg-deb", "--raw-extract", deb, tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub("^Version: .*", f"Version: {OLDER}", control.read_text(), flags=re.MULTILINE))
    command = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, directory / "older.deb"]
    subprocess.run(command, check=True, capture_output=True)
    shutil.rmtree(tree)


@pytest.fixture(scope="session")
def packages(tmp_path_factory) -> Path:
    """dist/ and `older.deb`, the node's under a lower number."""
    dist = ROOT / "dist"
    if not list(dist.glob("plimsoll_*.deb")):
        pytest.fail("dist/ has no package: run `make package-test`, which makes it first", pytrace=False)
    directory = tmp_path_factory.mktemp("packages")
    for path in dist.iterdir():
        (directory / path.name).hardlink_to(path)
    older(next(dist.glob("plimsoll_*_amd64.deb")), directory)
    return directory


@pytest.fixture
def host(packages):
    """A freshly installed Debian 12."""
    with booted(packages) as made:
        yield made
