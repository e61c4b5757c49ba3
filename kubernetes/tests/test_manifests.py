"""The manifests against the types of Kubernetes and each other, and the files in them by the programs that
read them. Nothing here runs in a cluster."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from kubernetes.tests.manifests import (
    DIRECTORIES,
    KUBERNETES,
    check,
    files,
    kind,
    labels,
    objects,
    pod,
    ports,
    workloads,
)
from tests.harness import ROOT, programs

AGENTS = (("sidecar", "queries-agent"), ("daemonset", "plimsoll-agent"), ("envoy", "queries-agent"))
ENVIRONMENT = {"QUERIES_HOST": "queries", "NAMESPACE": "default", "CLUSTER_DOMAIN": "cluster.local"}


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_kubernetes_has_a_type_for_every_field(directory: str):
    assert objects(directory)


@pytest.mark.parametrize(
    ("file", "right", "wrong", "named"),
    [
        ("statefulset.yaml", "readOnlyRootFilesystem:", "readOnlyRootFileSystem:", "readOnlyRootFileSystem"),
        ("statefulset.yaml", "replicas: 2", "replicas: two", "replicas"),
        ("statefulset.yaml", "replicas: 2", "replicas: 2\n  replicas: 3", "already"),
        ("network.yaml", "policyTypes:", "policies:", "policies"),
        ("disruptions.yaml", "PodDisruptionBudget", "PodDisruptionBudge", "no type of this kind"),
    ],
)
def test_what_kubernetes_would_not_know_is_refused(tmp_path: Path, file, right, wrong, named):
    shutil.copytree(KUBERNETES / "sidecar", tmp_path, dirs_exist_ok=True)
    text = (tmp_path / file).read_text()
    assert right in text
    (tmp_path / file).write_text(text.replace(right, wrong))
    checked = check(tmp_path)
    assert checked.returncode == 1
    assert named in checked.stderr


def test_a_pod_monitors_unknown_field_is_refused(tmp_path: Path):
    shutil.copytree(KUBERNETES / "monitoring", tmp_path, dirs_exist_ok=True)
    text = (tmp_path / "agents.yaml").read_text()
    (tmp_path / "agents.yaml").write_text(text.replace("targetLabel:", "targetlabels:"))
    checked = check(tmp_path)
    assert checked.returncode == 1
    assert "targetlabels" in checked.stderr


def test_the_guides_own_kustomization_is_valid(tmp_path: Path):
    guide = (ROOT / "docs/kubernetes.md").read_text()
    (block,) = re.findall(r"^```yaml\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    shutil.copytree(KUBERNETES, tmp_path / "plimsoll/kubernetes")
    (tmp_path / "kustomization.yaml").write_text(block)
    shutil.copy(KUBERNETES / "sidecar/agent.toml", tmp_path)
    checked = check(tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert "registry.example.org" not in checked.stdout


@pytest.mark.parametrize(("directory", "name"), AGENTS)
def test_the_agent_accepts_each_configuration(tmp_path: Path, directory: str, name: str):
    for file, text in files(directory, name).items():
        (tmp_path / file).write_text(re.sub("/(var/lib|run)/plimsoll", str(tmp_path), text))
        checked = subprocess.run(
            [programs.agent(), "agent", "--check-config", "--config", tmp_path / file],
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(("directory", "name"), AGENTS)
def test_agents_listen_where_their_ports_say(directory: str, name: str):
    (workload,) = [each for each in workloads(directory) if each["kind"] != "Deployment"]
    of = ports(workload)
    for text in files(directory, name).values():
        config = tomllib.loads(text)
        assert config["http"]["listen"] == f"0.0.0.0:{of['agent-http']}"
        if "agent_check" in config:
            assert config["agent_check"]["listen"] == f"0.0.0.0:{of['agent-check']}"


def test_the_agent_of_each_pod_has_its_own_address_and_knows_all():
    (workload,) = kind("envoy", "StatefulSet")
    pods = [f"queries-{number}" for number in range(workload["spec"]["replicas"])]
    host = workload["spec"]["serviceName"]
    configs = {name: tomllib.loads(text) for name, text in files("envoy", "queries-agent").items()}
    assert list(configs) == [f"{each}.toml" for each in pods]
    for each in pods:
        config = configs[f"{each}.toml"]
        assert config["service"][0].pop("address") == f"{each}.{host}:{ports(workload)['http']}"
        assert config["envoy"]["peers"] == [f"http://{peer}.{host}:9464" for peer in pods]
    first, *others = configs.values()
    assert all(other == first for other in others)
    (agent,) = [each for each in pod(workload)["containers"] if each["name"] == "plimsoll"]
    assert agent["args"] == ["--config", "/etc/plimsoll/$(POD_NAME).toml"]


def test_haproxy_accepts_its_configuration_without_a_warning(tmp_path: Path, haproxy: str):
    (workload,) = workloads("haproxy")
    assert {each["name"] for each in pod(workload)["containers"][0]["env"]} == set(ENVIRONMENT)
    config = tmp_path / "haproxy.cfg"
    config.write_text(files("haproxy", "queries-haproxy")["haproxy.cfg"])
    checked = subprocess.run(
        [haproxy, "-c", "-f", config], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    output = checked.stdout + checked.stderr
    assert checked.returncode == 0, output
    assert not re.search("warning|alert", output, re.IGNORECASE), output


@programs.needs(programs.envoy)
def test_envoy_accepts_its_configuration(tmp_path: Path):
    config = tmp_path / "envoy.yaml"
    config.write_text(files("envoy", "queries-envoy")["envoy.yaml"])
    node = ["--service-node", "queries-envoy-0", "--service-cluster", "edge"]
    checked = subprocess.run(
        [programs.envoy(), "--mode", "validate", "--config-path", config, *node],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    assert "deprecated" not in checked.stderr


@pytest.mark.parametrize("directory", ["sidecar", "daemonset", "haproxy", "envoy"])
def test_what_manifests_name_is_there(directory: str):
    maps = {each["metadata"]["name"] for each in kind(directory, "ConfigMap")}
    for workload in workloads(directory):
        own = labels(workload)
        assert workload["spec"]["selector"]["matchLabels"] == own
        volumes = {volume["name"]: volume for volume in pod(workload)["volumes"]}
        assert {each["configMap"]["name"] for each in volumes.values() if "configMap" in each} <= maps
        for container in pod(workload)["containers"]:
            assert {each["name"] for each in container.get("volumeMounts", [])} <= set(volumes)
            named = {each["name"] for each in container["ports"]}
            probes = [container[key] for key in ("livenessProbe", "readinessProbe") if key in container]
            assert probes, container["name"]
            assert {(probe.get("httpGet") or probe["tcpSocket"])["port"] for probe in probes} <= named
        services = [each for each in kind(directory, "Service") if each["spec"]["selector"] == own]
        assert services
        assert {port["targetPort"] for each in services for port in each["spec"]["ports"]} <= set(
            ports(workload)
        )


def test_the_network_policy_names_pods_and_ports_that_are_there():
    deployed = [each for directory in DIRECTORIES for each in workloads(directory)]
    names = {labels(each)["app.kubernetes.io/name"] for each in deployed}
    (policy,) = kind("sidecar", "NetworkPolicy")
    (workload,) = workloads("sidecar")
    assert policy["spec"]["podSelector"]["matchLabels"] == labels(workload)
    for rule in policy["spec"]["ingress"]:
        assert {each["port"] for each in rule["ports"]} <= set(ports(workload))
        admitted = {each["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for each in rule["from"]}
        assert admitted <= names | {"prometheus"}


def test_pod_monitors_scrape_ports_of_pods_that_are_there():
    deployed = [each for directory in DIRECTORIES for each in workloads(directory)]
    found = {labels(each)["app.kubernetes.io/name"]: ports(each) for each in deployed}
    for monitor in kind("monitoring", "PodMonitor"):
        selector = monitor["spec"]["selector"]
        names = [*selector.get("matchLabels", {}).values()]
        names += [value for each in selector.get("matchExpressions", []) for value in each["values"]]
        assert names
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            assert all(endpoint["port"] in found[name] for name in names)


@pytest.mark.parametrize("directory", ["sidecar", "daemonset", "haproxy", "envoy"])
def test_containers_may_do_nothing_they_need_not(directory: str):
    image = (ROOT / "packages/image/Dockerfile").read_text()
    user = int(re.search(r"^USER (\d+)", image, re.MULTILINE)[1])
    for workload in workloads(directory):
        assert pod(workload)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod(workload)["automountServiceAccountToken"] is False
        # What stands for the reader's own service says nothing.
        for container in [each for each in pod(workload)["containers"] if each["name"] != "queries"]:
            context = container["securityContext"]
            assert context["runAsNonRoot"]
            assert context["readOnlyRootFilesystem"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert "memory" in container["resources"]["limits"]
            if container["name"] == "plimsoll":
                assert context["runAsUser"] == user
