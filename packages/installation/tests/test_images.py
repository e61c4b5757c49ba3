"""The images of the agent and of `plimsoll gather`, made from the archive of a release."""

import subprocess

import pytest

from packages.installation.tests.container import LIMIT_S, Container
from packages.installation.tests.pages import blocks
from tests.harness import ROOT
from tests.harness.eventually import eventually
from tests.harness.podman import PODMAN, podman

USER = "10001"
HARDENED = ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--network=none")
GATHER = '[nodes]\nnode1 = "192.0.2.11:9464"\n[[partition]]\nname = "p1"\nnodes = ["node1"]\n'


@pytest.fixture(scope="module")
def unpacked(packages, tmp_path_factory):
    directory = tmp_path_factory.mktemp("archive")
    (archive,) = packages.glob("plimsoll-[0-9]*-linux-*.tar.gz")
    subprocess.run(["tar", "-xzf", archive, "-C", directory, "--strip-components=1"], check=True)
    return directory


@pytest.fixture
def built(unpacked, request):
    """The name of the image of a target, as docs/install.md builds it."""
    name = f"plimsoll-image-{request.param}"
    recipe = ["--file", str(ROOT / "packages/image/Dockerfile"), "--target", request.param]
    # OCI's own format has no health check.
    podman("build", "--quiet", "--format", "docker", *recipe, "--tag", f"localhost/{name}", str(unpacked))
    yield name
    podman("rmi", f"localhost/{name}")


def is_healthy(container):
    """By the image's own check."""
    command = [PODMAN, "healthcheck", "run", container.name]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def is_bare(container):
    (user,) = podman("inspect", "--format", "{{.Config.User}}", container.name).splitlines()
    assert user == f"{USER}:{USER}"
    assert subprocess.run([PODMAN, "exec", container.name, "sh"], capture_output=True, check=False).returncode
    return True


def configured(text, directory, name):
    file = directory / name
    file.write_text(text)
    file.chmod(0o644)
    return f"--volume={file}:/etc/plimsoll/{name}:ro"


@pytest.mark.parametrize("built", ["agent"], indirect=True)
def test_the_agent_runs_in_its_image(built, tmp_path):
    text = blocks("haproxy.md", "### 2. Configure the agent", "toml")[0].replace("192.0.2.11", "127.0.0.1")
    options = (*HARDENED, configured(text, tmp_path, "agent.toml"))
    with Container(built, *options, command=()) as agent:
        eventually("health", lambda: is_healthy(agent), LIMIT_S)
        assert is_bare(agent)
        assert "queries" in podman("exec", agent.name, "/usr/bin/plimsoll", "node", "status")
        podman("kill", "--signal", "STOP", agent.name)
        assert not is_healthy(agent)


@pytest.mark.parametrize("built", ["gather"], indirect=True)
def test_gather_runs_in_its_image(built, tmp_path):
    options = (*HARDENED, configured(GATHER, tmp_path, "gather.toml"))
    with Container(built, *options, command=()) as gather:
        eventually("health", lambda: is_healthy(gather), LIMIT_S)
        assert is_bare(gather)
        podman("kill", "--signal", "STOP", gather.name)
        assert not is_healthy(gather)
