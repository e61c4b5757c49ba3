"""What kustomize makes of the manifests, read by the types of Kubernetes."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from tests.harness import ROOT

KUBERNETES = ROOT / "kubernetes"
# envoy has sidecar in it.
DIRECTORIES = ("sidecar", "daemonset", "haproxy", "envoy", "monitoring")

Object = dict[str, Any]


def check(directory: Path) -> subprocess.CompletedProcess[str]:
    program = ROOT / ".tools/bin/kubernetes-check"
    assert program.exists(), f"{program} is missing; run `make tools`"
    return subprocess.run([program, directory], capture_output=True, text=True, timeout=60, check=False)


@cache
def objects(directory: str) -> list[Object]:
    checked = check(KUBERNETES / directory)
    assert checked.returncode == 0, checked.stderr
    return json.loads(checked.stdout)


def kind(directory: str, *kinds: str) -> list[Object]:
    return [found for found in objects(directory) if found["kind"] in kinds]


def workloads(directory: str) -> list[Object]:
    return kind(directory, "StatefulSet", "DaemonSet", "Deployment")


def pod(workload: Object) -> Object:
    return workload["spec"]["template"]["spec"]


def labels(workload: Object) -> dict[str, str]:
    return workload["spec"]["template"]["metadata"]["labels"]


def ports(workload: Object) -> dict[str, int]:
    """Of all its containers, by name."""
    return {
        port["name"]: port["containerPort"]
        for container in pod(workload)["containers"]
        for port in container["ports"]
    }


def files(directory: str, map_name: str) -> dict[str, str]:
    """Of the ConfigMap that begins with this name: kustomize adds a hash."""
    (found,) = [
        each
        for each in kind(directory, "ConfigMap")
        if each["metadata"]["name"].rpartition("-")[0] == map_name
    ]
    return found["data"]
