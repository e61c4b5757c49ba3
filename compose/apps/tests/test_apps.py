"""Each application in its quota: what it answers, what that costs, and how it ends."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from compose.apps import catalog
from compose.apps.quota import Quota
from compose.lab.errors import LabError
from compose.lab.processes import Processes, Program, answers, free_ports, wait_until
from tests.harness.eventually import eventually

HOST = "127.0.0.1"
START_SECONDS = 60


@dataclass
class Running:
    """One node of an application."""

    app: catalog.App
    port: int
    metrics_port: int
    run: Path
    quota: Quota
    programs: catalog.Programs

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def ready(self, processes: Processes) -> None:
        url = self.app.ready(HOST, self.port)
        wait_until(self.app.name, lambda: answers(url), START_SECONDS, processes.check)

    def work(self, cpu_ms: float) -> str:
        return get(f"{self.url}/work?cpu_ms={cpu_ms}")


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as response:
        assert response.status == 200
        return response.read().decode()


@dataclass
class Lab:
    processes: Processes
    nodes: dict[str, Running]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A node of each application, named as it is."""
    nodes, inside = {}, {}
    with ExitStack() as stack:
        root = stack.enter_context(catalog.directory())
        ports = iter(free_ports(2 * len(catalog.NAMES)))
        for name, port, metrics_port in zip(catalog.NAMES, ports, ports, strict=True):
            run = root / name
            run.mkdir()
            app = catalog.app(name)
            programs = app.programs(name, HOST, port, run, metrics_port)
            quota = stack.enter_context(Quota(name, 1))
            nodes[name] = Running(app, port, metrics_port, run, quota, programs)
            inside |= {program: quota.inside(command) for program, command in programs.items()}
        processes = stack.enter_context(Processes(inside, root, root))
        for node in nodes.values():
            node.ready(processes)
        yield Lab(processes, nodes)
        # supervisord would end them one after the other.
        for node in nodes.values():
            node.quota.kill()


@pytest.fixture(params=catalog.NAMES)
def node(request, lab) -> Running:
    return lab.nodes[request.param]


def test_burns_the_requested_cpu_time(node):
    asked = [2.5, 20, 60] * 4
    # A read's cost is an estimate: beside other tests on a slow machine it is more than twice that.
    least, most = (0.5, 5) if node.app.name == "postgres" else (0.95, 2)

    def burns() -> bool:
        before = node.quota.cpu_seconds()
        for cpu_ms in asked:
            assert node.work(cpu_ms).strip()
        used_ms = 1000 * (node.quota.cpu_seconds() - before)
        print(f"{used_ms:.0f} ms")
        return least * sum(asked) < used_ms < most * sum(asked)

    node.work(10)
    # A database that tidies up burns time too.
    eventually(f"burns {sum(asked)} ms", burns)


@pytest.mark.parametrize(
    "query", ["", "cpu_ms=0", "cpu_ms=-1", "cpu_ms=1000.1", "cpu_ms=nan", "cpu_ms=1e999", "cpu_ms=x"]
)
def test_refuses_malformed_times(node, query):
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(f"{node.url}/work?{query}")
    with refused.value as answer:
        assert answer.code == 400


def samples(text: str, name: str) -> dict[str, float]:
    """The series of a metric in Prometheus's text, by their labels."""
    lines = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return {line.rpartition(" ")[0].removeprefix(name): float(line.rpartition(" ")[2]) for line in lines}


def test_histogram_has_the_work_and_nothing_else(node):
    url = node.app.metrics_url(HOST, node.port, node.metrics_port)
    if node.app.source is None:
        assert url is None
        return
    labels = [f'{key}="{value}"' for key, value in node.app.source.get("labels", {}).items()]

    def count() -> float:
        series = samples(get(url), f"{node.app.source['histogram']}_count")
        return sum(value for key, value in series.items() if all(label in key for label in labels))

    node.work(1)
    before = count()
    for _ in range(5):
        node.work(1)
        get(f"{node.url}/healthz")
    assert count() - before == 5
    if node.app.jobs:
        assert samples(get(url), node.app.jobs["gauge"])


def test_requests_wait_where_it_says(node):
    kind, _, address = node.app.backlog(HOST, node.port, node.run).partition("://")
    table = "/proc/net/unix" if kind == "unix" else "/proc/net/tcp"
    local = address if kind == "unix" else f"0100007F:{node.port:04X} 00000000:0000 0A"
    assert local in Path(table).read_text()


def test_ends_on_signal_and_starts_again(lab, node):
    # Its application first, as a database's clients end before it.
    for name, program in reversed(node.programs.items()):
        lab.processes.signal(name, program.ends_by if isinstance(program, Program) else "TERM")
        eventually(f"the end of {name}", lambda name=name: lab.processes.has_ended(name))
    assert node.quota.processes() == []
    for name in node.programs:
        lab.processes.start(name)
    node.ready(lab.processes)
    assert node.work(1)


def test_a_killed_node_leaves_nothing_and_starts_again(lab, node):
    node.quota.kill()
    assert node.quota.processes() == []
    for name in node.programs:
        eventually(f"the end of {name}", lambda name=name: lab.processes.has_ended(name))
        lab.processes.start(name)
    node.ready(lab.processes)
    assert node.work(1)


def test_names_the_applications_it_knows():
    with pytest.raises(LabError, match="APP=rails: must be one of go, flask, express, php, postgres"):
        catalog.app("rails")


def test_missing_application_is_reported_with_the_make_target(tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "TOOLS", tmp_path)
    with pytest.raises(LabError, match=r"bin/go is not there; run `make apps`"):
        catalog.app("go").programs("node1", HOST, 1, tmp_path, 2)
