"""The containers of compose.yaml, by podman-compose."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, Self

from tests.harness import ROOT
from tests.harness.eventually import eventually
from tests.harness.podman import PODMAN, ContainerError, podman

COMPOSE = ROOT / "compose"
# Of podman's own: of the container's network, volumes, containers.
LABEL = "io.podman.compose.project"
# A program that starts beside others on the same cores, or a database's first start.
READY_S = 120
# k6 ends so where a threshold was crossed, which is a result.
ENDED_WELL = {0, 99}
# No registry of images has it here, and Debian has no package of it.
LEFT_OUT = {"grafana"}


class Project:
    """What a profile starts; `with` takes it down, with its volumes and networks."""

    def __init__(self, directory: Path, profiles: str, **settings: str) -> None:
        loaded = subprocess.run(
            [ROOT / ".tools/bin/compose-check"],
            cwd=COMPOSE,
            env={"COMPOSE_PROFILES": profiles, **settings},
            capture_output=True,
            text=True,
            check=False,
        )
        if loaded.returncode != 0:
            raise ContainerError(loaded.stderr)
        # podman-compose splits a command into words before it replaces variables, so it gets it loaded.
        project = json.loads(loaded.stdout)
        services = {name: made for name, made in project["services"].items() if name not in LEFT_OUT}
        for service in services.values():
            service.pop("profiles", None)
            for key in [key for key, value in service.items() if value is None]:
                del service[key]
            needs = service.get("depends_on", {})
            service["depends_on"] = {name: need for name, need in needs.items() if name in services}
        project["services"] = self.services = services
        self.name = project["name"]
        self._file = directory / "project.json"
        self._file.write_text(json.dumps(project))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.compose("down", "--volumes", "--timeout", "2")

    def compose(self, *arguments: str) -> None:
        command = [ROOT / ".venv/bin/podman-compose", "--podman-path", PODMAN, "--in-pod", "false"]
        # A build reaches registries as the host does. As in docker nothing is writable that does not say so.
        command += ["--podman-build-args=--network=host", "--podman-run-args=--read-only-tmpfs=false"]
        command += ["--file", self._file, *arguments]
        ran = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if ran.returncode != 0:
            raise ContainerError(f"podman-compose {' '.join(arguments)}:\n{ran.stdout[-4000:]}")

    def build(self) -> None:
        images = {service["image"]: name for name, service in self.services.items() if "build" in service}
        self.compose("--parallel", "1", "build", *images.values())

    def start(self, *but: str) -> None:
        """All but these, each once what it depends on is healthy; podman waits so by itself from 4.6 on."""
        left = {name: service for name, service in self.services.items() if name not in but}
        ready: set[str] = set()
        while left:
            able = [name for name, service in left.items() if service["depends_on"].keys() <= ready]
            self.up(*able)
            for name in able:
                self.wait(name)
                ready.add(name)
                del left[name]

    def up(self, *services: str) -> None:
        self.compose("up", "--detach", "--no-deps", *services)

    def up_anew(self, service: str) -> None:
        podman("rm", "--force", "--ignore", self.container(service))
        self.up(service)

    def wait(self, service: str, seconds: float = READY_S) -> None:
        """Until its health check succeeds, or it has ended well where it has none."""
        condition = self.is_healthy if "healthcheck" in self.services[service] else self.has_ended_well
        try:
            eventually(f"{service} is ready", lambda: condition(service), seconds)
        except AssertionError as late:
            raise ContainerError(f"{late}\n{self.log(service)[-4000:]}") from None

    def container(self, service: str) -> str:
        return f"{self.name}_{service}_1"

    def state(self, service: str) -> dict[str, Any]:
        return json.loads(podman("inspect", "--format", "{{json .State}}", self.container(service)))

    def pid(self, service: str) -> int:
        """Of its first process; 0 where there is none, or where it ends while podman looks."""
        try:
            return self.state(service)["Pid"]
        except ContainerError:
            return 0

    def is_healthy(self, service: str) -> bool:
        command = [PODMAN, "healthcheck", "run", self.container(service)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def has_ended_well(self, service: str) -> bool:
        state = self.state(service)
        if state["Status"] == "exited" and state["ExitCode"] not in ENDED_WELL:
            raise ContainerError(f"{service} ended with {state['ExitCode']}:\n{self.log(service)[-4000:]}")
        return state["Status"] == "exited"

    def log(self, service: str) -> str:
        command = [PODMAN, "logs", self.container(service)]
        return subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        ).stdout

    def output(self, service: str) -> str:
        """Its log's standard output alone."""
        return podman("logs", self.container(service))

    def kill(self, service: str) -> int:
        """Its first process, as a crash does: the engine is not told. Returns which it was."""
        pid = self.pid(service)
        os.kill(pid, signal.SIGKILL)
        return pid

    def remains(self) -> list[str]:
        """What podman still has of the project."""
        found = []
        for kind in ("container", "volume", "network", "pod"):
            command = ["ps", "--all"] if kind == "container" else [kind, "ls"]
            if kind == "pod":
                command = ["pod", "ps"]
            found += podman(*command, "--filter", f"label={LABEL}={self.name}", "--quiet").split()
        return found
